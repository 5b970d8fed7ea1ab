import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_ops.cli import status
from sluice_ops.model.assignment import (
    Assignment,
    HostFacts,
    HostRecord,
    HostState,
    Observed,
    Unit,
    UnitKind,
    UnitObserved,
    UnitState,
    driver_id,
    label_of,
    slot_id,
)
from sluice_ops.model.backpressure import Expiry, Lag, Pressure
from sluice_ops.model.ids import HostName, Incarnation, Tenant, TierName
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Phase,
    Placement,
    State,
    TierProgress,
    TierWanted,
    WorkerReceipt,
)
from sluice_ops.model.resources import Quantum
from sluice_ops.model.scaler import Decision, ScalerRecord
from sluice_ops.model.scaler import Mode as ScalerMode
from sluice_ops.model.share import Layer, LayerEntry, Layers, PipelineShare, Share
from sluice_ops.model.status import ControllerStatus, TierState, TierStatus
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.operations.snapshot import Seen
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.planning.placement.shares import capacity_totals
from sluice_ops.queries import describe
from sluice_ops.queries.figures import Figures
from sluice_ops.queries.lines import ShareLine, TierLine
from sluice_ops.queries.status import outstayed, troubles, wanted_sizes
from sluice_ops.site.site_file import SiteError
from sluice_ops.snapshot.view import HostView, TierView, View

ENRICH = TierName("enrich")


def unit(kind: UnitKind, number: int = 0, incarnation: int = 2) -> Unit:
    name = driver_id(ENRICH, incarnation) if kind is UnitKind.DRIVER else slot_id(ENRICH, incarnation, number)
    return Unit(
        id=name,
        kind=kind,
        tenant=Tenant(ENRICH),
        incarnation=Incarnation(incarnation),
        quantum=Quantum(),
        label=label_of(ENRICH, incarnation),
    )


def host(
    name: str,
    *units: Unit,
    live: bool = True,
    state: UnitState = UnitState.RUNNING,
    record: HostState = HostState.UP,
) -> HostView:
    seen = tuple(UnitObserved(id=unit_of_host.id, state=state, pid=7, since=1.0) for unit_of_host in units)
    return HostView(
        name=HostName(name),
        facts=HostFacts(
            name=HostName(name), address=f"127.0.1.{name[1:]}", zone="onprem", cpu=8, memory=8192
        ),
        live=live,
        record=HostRecord(state=record),
        assignment=Assignment(epoch=1, units=units),
        observed=Observed(epoch=1, units=seen, agent_started=1.0, limits="cgroup v1"),
    )


def view(*hosts: HostView, state: State = State.RUNNING, following: int | None = None) -> View:
    tier = TierView(
        spec=TierSpec(
            name=ENRICH,
            kind=Kind.PROCESSING,
            mode=Mode.REALTIME,
            delivery=Delivery.AT_LEAST_ONCE,
            inputs=("hits",),
        ),
        owner=OwnerRecord(
            owner=Incarnation(2),
            next=None if following is None else Incarnation(following),
            phase=Phase.STEADY if following is None else Phase.PREPARE,
        ),
        wanted=TierWanted(running=True),
        incarnations={},
        reports={Incarnation(2): IncarnationReport(state=state, since=1.0, pid=7, gap_seconds=0.2)},
    )
    status = ControllerStatus(
        leader="c",
        epoch=1,
        at=1.0,
        sentence="all is well",
        tiers={ENRICH: TierStatus(state=TierState.RUNNING, sentence="runs")},
    )
    return View(tiers={ENRICH: tier}, hosts={host_view.name: host_view for host_view in hosts}, status=status)


DRIVER, FIRST, SECOND = unit(UnitKind.DRIVER), unit(UnitKind.SLOT, 0), unit(UnitKind.SLOT, 1)
READ = {"127.0.1.1/0": 10, "127.0.1.2/11": 30, "127.0.1.2/2": 20}
FIGURES = Figures(
    {ENRICH: TierProgress(tier=ENRICH, incarnation=Incarnation(2), at=1.0, rate_in=500.0, lag=3, slots=READ)}
)


def test_a_tier_is_shown_with_driver_workers_and_figures() -> None:
    (line,) = describe.tiers(view(host("h1", DRIVER, FIRST), host("h2", SECOND)), FIGURES)
    assert (line.state, line.incarnation, line.driver.host, line.rate_in, line.gap_seconds) == (
        "running",
        2,
        "h1",
        500.0,
        0.2,
    )
    workers = [(worker.slot, worker.host, worker.state) for worker in line.workers]
    assert workers == [(FIRST.id, "h1", "active"), (SECOND.id, "h2", "active")]


def test_a_light_tier_is_shown_as_in_the_driver() -> None:
    seen = view(host("h1", DRIVER))
    light = seen.tiers[ENRICH].spec.model_copy(update={"light": True})
    seen = replace(seen, tiers={ENRICH: replace(seen.tiers[ENRICH], spec=light)})
    (line,) = describe.tiers(seen, FIGURES)
    assert (line.light, line.workers, line.workers_in_words) == (True, (), "in the driver")
    (share,) = describe.shares(seen, Rules(shares={ENRICH: Share(minimum=1, target=3, maximum=4)}))
    assert (share.light, share.maximum, describe.slots_text(share)) == (True, 0, "in the driver")
    assert share.by == "its declaration as light"


@pytest.mark.parametrize(("slots", "light"), [((), True), (("h1",), False)])
def test_a_running_tier_is_shown_as_it_runs_and_not_as_declared(
    slots: tuple[str, ...], *, light: bool
) -> None:
    runs = IncarnationSpec(
        tier=ENRICH,
        incarnation=Incarnation(2),
        placement=Placement(driver=HostName("h1"), slots=tuple(map(HostName, slots))),
        reason="start",
        created_at=1.0,
    )
    seen = view(host("h1", DRIVER))
    spec = seen.tiers[ENRICH].spec.model_copy(update={"light": not light})
    tier = replace(seen.tiers[ENRICH], spec=spec, incarnations={Incarnation(2): runs})
    (line,) = describe.tiers(replace(seen, tiers={ENRICH: tier}), FIGURES)
    assert line.light is light


def test_a_tier_is_shown_with_figures_by_stream_if_its_driver_tells_them() -> None:
    details = {"input_lags": {"hits": 3}, "input_rates": {"hits": 4.5}, "quarantined": 2}
    tells = Figures({ENRICH: TierProgress(tier=ENRICH, incarnation=Incarnation(2), at=1.0, details=details)})
    (line,) = describe.tiers(view(host("h1", DRIVER)), tells)
    assert (line.input_lags, line.input_rates, line.output_rates) == ({"hits": 3}, {"hits": 4.5}, {})
    assert line.quarantined == 2
    (line,) = describe.tiers(view(host("h1", DRIVER)), FIGURES)
    assert (line.input_lags, line.quarantined) == ({}, None)


def test_a_tier_without_a_driver_shows_no_old_figures() -> None:
    (line,) = describe.tiers(view(host("h1")), FIGURES)
    assert (line.driver.host, line.rate_in, line.lag) == (None, None, None)


def test_slots_of_a_preparing_incarnation_are_not_the_tiers_workers() -> None:
    (line,) = describe.tiers(
        view(host("h1", DRIVER, FIRST, unit(UnitKind.SLOT, incarnation=3)), following=3), Figures()
    )
    assert [worker.slot for worker in line.workers] == [FIRST.id]
    assert line.next == 3


def test_a_host_is_shown_with_running_and_preparing_units() -> None:
    seen = view(host("h1", DRIVER, FIRST, SECOND, unit(UnitKind.SLOT, incarnation=3)), following=3)
    (line,) = describe.hosts(seen)
    assert (
        status._runs(line, describe.tiers(seen, Figures()))
        == "enrich (driver + 2 workers), enrich (next 1 worker)"
    )
    assert status._runs(line, []) == ", ".join((*line.drivers, *line.slots))


def test_an_unreadable_host_is_shown_too() -> None:
    seen = replace(
        view(replace(host("h1", DRIVER, FIRST), facts=None)), unread_hosts={HostName("h1"): "/hosts/h1"}
    )
    (line,) = describe.hosts(seen)
    assert (line.name, line.zone, line.state, line.slots, line.drivers) == (
        "h1",
        "?",
        "up",
        (FIRST.id,),
        (DRIVER.id,),
    )
    assert not describe.hosts(replace(seen, unread_hosts={}))


def test_a_workers_state_follows_host_slot_and_driver() -> None:
    def state(seen: View) -> str:
        return describe.tiers(seen, Figures())[0].workers[0].state

    assert state(view(host("h1", FIRST))) == "active"
    assert state(view(host("h1", FIRST), state=State.PAUSED)) == "paused"
    assert state(view(host("h1", FIRST), state=State.STARTING)) == "starting"
    assert state(view(host("h1", FIRST, state=UnitState.STARTING))) == "starting"
    assert state(view(host("h1", FIRST, state=UnitState.STOPPING))) == "draining"
    assert state(view(host("h1", FIRST, live=False))) == "lost"


def test_a_single_paused_worker_is_shown() -> None:
    seen = view(host("h1", FIRST, SECOND))
    tier = seen.tiers[ENRICH]
    workers = {
        FIRST.id: WorkerReceipt(paused=True, seconds=1.0, at=1.0),
        SECOND.id: WorkerReceipt(paused=False, seconds=1.7, at=2.0),
    }
    report = tier.reports[Incarnation(2)].model_copy(update={"workers": workers})
    changed = replace(seen, tiers={ENRICH: replace(tier, reports={Incarnation(2): report})})
    assert {line.id: line.state for line in describe.slots(changed, Figures())} == {
        FIRST.id: "paused",
        SECOND.id: "active",
    }


def test_a_host_without_an_agent_is_lost_unless_it_reboots() -> None:
    lines = describe.hosts(
        view(
            host("h1", live=False),
            host("h2", live=False, record=HostState.REBOOTING),
            host("h3", FIRST, DRIVER),
        )
    )
    assert [line.state for line in lines] == ["lost", "rebooting", "up"]
    assert lines[2].slots == (FIRST.id,)
    assert lines[2].drivers == (DRIVER.id,)


def test_records_are_shown_by_slot_older_executors_first() -> None:
    lines = describe.slots(view(host("h1"), host("h2", FIRST, SECOND)), FIGURES)
    assert {line.id: line.records for line in lines} == {FIRST.id: 20, SECOND.id: 30}


def test_tiers_that_run_an_unpublished_release_are_named() -> None:
    seen = view(host("h1", DRIVER, FIRST))
    place = Placement(driver=HostName("h1"), slots=(HostName("h1"),))
    running = IncarnationSpec(
        tier=ENRICH, incarnation=Incarnation(2), placement=place, reason="test", created_at=0, release="r1-aa"
    )

    def behind(published: str) -> list[str]:
        tier = seen.tiers[ENRICH]
        spec = tier.spec.model_copy(update={"release": published})
        changed = replace(tier, spec=spec, incarnations={Incarnation(2): running})
        return describe.release_notes(describe.tiers(replace(seen, tiers={ENRICH: changed}), Figures()))

    assert behind("r2-bb") == [
        "Release r2-bb is published, but another one runs in enrich (r1-aa). Next: sluice upgrade TIER"
    ]
    assert behind("r1-aa") == []


def test_shares_show_the_number_in_force_and_the_slots_held() -> None:
    rules = Rules(
        shares={
            "enrich": Share(minimum=1, target=2, maximum=4),
            "batch": Share(minimum=0, target=0, maximum=2),
        }
    )
    batch, enrich = describe.shares(view(host("h1", DRIVER, FIRST)), rules)
    assert (enrich.slots, enrich.held, enrich.layer, enrich.by) == (2, 1, "base", "the site file")
    assert (batch.slots, batch.held) == (0, 0)


def test_the_share_of_the_pipeline_is_one_line() -> None:
    seen = view(host("h1", DRIVER, FIRST))

    def said(share: str, **numbers: int) -> tuple[str, list[str], str]:
        rules = Rules(
            shares={"enrich": Share.model_validate(numbers)},
            pipeline_share=PipelineShare.model_validate(share),
        )
        (enrich,) = shares = describe.shares(seen, rules)
        line = describe.pipeline_share(seen, rules, shares)
        assert line is not None
        return describe.pipeline_share_text(line), describe.pipeline_share_notes(line), enrich.by

    whole = capacity_totals([(8.0, 8192)], {"enrich": seen.tiers[ENRICH].spec.quantum})["enrich"]
    assert whole == 8
    assert said("50%", target=3) == (
        "Pipeline: has 1 of the 3 slots of its share, 37.5 % of the cluster, within 50% and 50%",
        [],
        "the site file",
    )
    text, notes, by = said("50%", target=6)
    assert text.endswith("of its share, 50 % of the cluster, within 50% and 50%; the maximum lowers enrich")
    assert (notes, by) == ([], "the site file (the pipeline's maximum)")
    _, (note,), _ = said("10%", minimum=2, target=6)
    assert note.startswith("The minimums of the tiers are above the pipeline's maximum of 10%; each tier")


def test_without_a_share_of_the_pipeline_nothing_is_said() -> None:
    assert describe.pipeline_share(view(), Rules(), []) is None
    assert describe.pipeline_share_notes(None) == []


def test_the_author_of_a_number_is_shown_with_since_and_until() -> None:
    entry = LayerEntry(
        tenant=Tenant(ENRICH), layer=Layer.PERSON, target=3, owner="anna", at=1000.0, until=2000.0
    )
    rules = Rules(shares={"enrich": Share(minimum=1, target=2, maximum=4)}, layers=Layers(entries=(entry,)))
    (enrich,) = describe.shares(view(host("h1", DRIVER, FIRST)), rules)
    assert (enrich.slots, enrich.layer, enrich.by, enrich.since, enrich.until) == (
        3,
        "person",
        "anna",
        1000.0,
        2000.0,
    )
    assert outstayed([enrich], 2000.0) == []
    (note,) = outstayed([enrich], 9000.0)
    assert note.startswith("enrich still has its temporary share (3, by anna), which ended at ")


def test_a_tier_that_does_not_run_is_shown_with_the_reason() -> None:
    (line,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    assert troubles([line]) == []
    waiting = line.model_copy(
        update={
            "state": "waiting",
            "sentence": 'tier "enrich" needs 64000 MiB for one quantum, but the largest host, h1, has 8192',
        }
    )
    failing = line.model_copy(
        update={
            "state": "starting",
            "sentence": "incarnation 3 is starting",
            "error": "ValueError: no such table",
        }
    )
    assert troubles([waiting, failing]) == [
        'enrich: tier "enrich" needs 64000 MiB for one quantum, but the largest host, h1, has 8192',
        "enrich: incarnation 3 is starting. Last error: ValueError: no such table",
    ]


def test_a_starved_tier_is_shown_with_the_next_step() -> None:
    (line,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    done = "the tier is moved after 300 s of starvation"
    enrich, counts = (
        line.model_copy(
            update={"name": name, "starved": f"is starved of processor time on {host_names}: {done}"}
        )
        for name, host_names in (("enrich", "h1, h2"), ("counts", "h1"))
    )
    other = line.model_copy(
        update={"name": "entry", "starved": "is starved of processor time on h3: change m1 moves the tier"}
    )
    assert troubles([enrich, other, counts]) == [
        (
            "Starved of processor time: enrich on h1, h2; counts on h1. "
            "The tier is moved after 300 s of starvation."
        ),
        "Starved of processor time: entry on h3. Change m1 moves the tier.",
    ]


def test_a_tier_that_ignores_added_partitions_is_shown_with_the_next_step() -> None:
    (line,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    unread = line.model_copy(update={"unread": "it takes `sluice scale enrich 3`"})
    assert troubles([unread]) == [
        "enrich does not read the added partitions: it takes `sluice scale enrich 3`"
    ]
    narrow = line.model_copy(update={"narrow": "shown has 5 partitions and 4 of them get records"})
    assert troubles([narrow]) == [
        "enrich does not write to the added partitions yet: shown has 5 partitions and 4 of them get records"
    ]


def test_a_hung_task_is_shown() -> None:
    (line,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    hung = line.model_copy(update={"hung": "hung since 12:00:00 UTC: input waits, and nothing was processed"})
    assert troubles([hung]) == ["enrich: hung since 12:00:00 UTC: input waits, and nothing was processed"]


def test_a_lagging_tier_is_shown_with_the_tier_throttled_for_it() -> None:
    (line,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    behind = line.model_copy(update={"pressure": "is 200000 records, 60 s behind in hits"})
    assert troubles([behind]) == ["enrich is 200000 records, 60 s behind in hits"]
    entry = line.model_copy(update={"name": "entry", "held_for": "enrich", "admitted": 8900.0})
    assert troubles([entry, behind]) == [
        "enrich is 200000 records, 60 s behind in hits. Throttled until it has caught up: entry"
    ]
    assert "running, throttled to 8,900/s for enrich" in status._tier_cells(entry)
    assert "running, catching up" in status._tier_cells(
        entry.model_copy(update={"held_for": None, "metered": True})
    )


def test_a_tier_that_may_lag_shows_its_expiry_and_throttles_no_entry() -> None:
    seen = view(host("h1", DRIVER, FIRST))
    expiry = Expiry(stream="hits", kept=259_200, left=180_000)
    lag = Pressure(stream="hits", lag=Lag(records=900, seconds=79_200), since=1.0, expiry=expiry)
    runs = TierStatus(state=TierState.RUNNING, sentence="runs", pressure=lag)
    assert seen.status is not None
    seen_lagging = replace(seen, status=seen.status.model_copy(update={"tiers": {ENRICH: runs}}))
    assert describe.tiers(seen_lagging, Figures())[0].pressure == "is 900 records, 79200 s behind in hits"
    tier = seen_lagging.tiers[ENRICH]
    branch = replace(tier, spec=tier.spec.model_copy(update={"holds": False}))
    assert describe.tiers(replace(seen_lagging, tiers={ENRICH: branch}), Figures())[0].pressure == (
        "is 900 records, 79200 s behind in hits; it may lag (holds=False), so it throttles no entry; "
        "Kafka deletes the oldest of these records of hits in 50.0 h"
    )
    down = runs.model_copy(update={"state": TierState.FAILED, "down_since": time.time() - 3600})
    seen_down = replace(seen, status=seen.status.model_copy(update={"tiers": {ENRICH: down}}))
    (line,) = describe.tiers(replace(seen_down, tiers={ENRICH: branch}), Figures())
    assert line.pressure is not None
    assert line.pressure.endswith("in 49.0 h"), "a tier that does not run lets its records grow old"


def view_of_decision(wanted: int, mode: ScalerMode, slots: int = 2) -> View:
    """Return a view of a tier with two workers after a decision of the scaler."""
    decision = Decision(mode=mode, slots=slots, wanted=wanted, reason="400 records/s need them", since=7.0)
    seen = view(host("h1", DRIVER, FIRST), host("h2", SECOND))
    return replace(seen, scaler=ScalerRecord(decisions={ENRICH: decision}))


def decided(wanted: int, mode: ScalerMode, slots: int = 2) -> TierLine:
    (line,) = describe.tiers(view_of_decision(wanted, mode, slots), Figures())
    return line


def test_another_number_of_workers_is_shown_with_the_reason() -> None:
    assert wanted_sizes([decided(4, ScalerMode.ACT)], []) == [
        "enrich: the scaler sets 4 workers instead of 2: 400 records/s need them"
    ]
    assert wanted_sizes([decided(1, ScalerMode.ADVISE)], []) == [
        (
            "enrich: the scaler advises 1 worker instead of 2: 400 records/s need them. "
            "To let it act: `sluice scaler act enrich`"
        )
    ]


def test_the_scaler_is_not_shown_while_it_wants_nothing() -> None:
    (undecided,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    stopped = decided(4, ScalerMode.ACT).model_copy(update={"workers": ()})
    for line in (undecided, stopped, decided(2, ScalerMode.ACT), decided(4, ScalerMode.OFF)):
        assert wanted_sizes([line], []) == []
    paused = decided(1, ScalerMode.ADVISE, slots=1)
    assert wanted_sizes([paused], []) == [], "a person paused one of two workers"


def test_workers_of_a_burst_are_not_the_scalers() -> None:
    rules = Rules(
        shares={"enrich": Share(minimum=1, target=1, maximum=4)},
        layers=Layers(
            entries=(
                LayerEntry(
                    tenant=Tenant(ENRICH),
                    layer=Layer.PERSON,
                    extra=1,
                    extra_to="zone:ec2",
                    owner="anna",
                    at=1.0,
                ),
            )
        ),
    )
    shares: list[ShareLine] = describe.shares(view(host("h1", DRIVER, FIRST)), rules)
    assert wanted_sizes([decided(1, ScalerMode.ACT)], shares) == []
    assert wanted_sizes([decided(2, ScalerMode.ACT)], shares) == [
        "enrich: the scaler sets 2 workers instead of 1: 400 records/s need them"
    ]


def test_each_tier_has_the_scalers_last_decision() -> None:
    decision = decided(4, ScalerMode.ADVISE).scaler
    assert decision is not None
    assert decision.model_dump(mode="json") == {
        "tier": "enrich",
        "mode": "advise",
        "slots": 2,
        "wanted": 4,
        "reason": "400 records/s need them",
        "since": 7.0,
    }
    (undecided,) = describe.tiers(view(host("h1", DRIVER, FIRST)), Figures())
    assert undecided.scaler is None


def test_status_shows_what_the_scaler_wants_as_text_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def no_site() -> None:
        message = "no site file"
        raise SiteError(message)

    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.setattr(status, "read_figures", Figures)
    monkeypatch.setattr(status, "the_site", no_site)
    view = view_of_decision(4, ScalerMode.ACT)
    monkeypatch.setattr(status, "snapshot_with_figures", lambda: Seen(view))
    sentence = "enrich: the scaler sets 4 workers instead of 2: 400 records/s need them"
    status.show(as_json=False)
    assert sentence in capsys.readouterr().out.splitlines()
    status.show(as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert sentence in shown["notes"]
    assert shown["tiers"][0]["scaler"]["wanted"] == 4
