"""Events of a tier watch: each failure once, a giving-up once, and no event for a killed driver
that was replaced.
"""

import pytest

from sluice_airflow.triggers.tier_watch import AGAIN_SECONDS, CATCH_UP_SECONDS, TierWatch
from sluice_ops.model import paths
from sluice_ops.model.backpressure import Lag, Pressure
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Placement,
    State,
    TierWanted,
)
from sluice_ops.model.status import ControllerStatus, Loss, TierState, TierStatus
from tests.unit.sluice_airflow.memory import MemoryChannel

TIER = TierName("counts")


@pytest.fixture
def channel():
    memory = MemoryChannel()
    memory.put(paths.wanted(TIER), TierWanted(running=True, by="anna"))
    return memory


def incarnation(channel, number, state, reason="launch", **report_fields):
    placement = Placement(driver=HostName("h1"), slots=(HostName("h1"),))
    spec = IncarnationSpec(
        tier=TIER, incarnation=Incarnation(number), placement=placement, reason=reason, created_at=0
    )
    channel.put(paths.incarnation(TIER, number), spec)
    channel.put(
        paths.report(TIER, number),
        IncarnationReport(**({"state": state, "since": 0, "pid": 1} | report_fields)),
    )


def owned_by(channel, number):
    channel.put(paths.owner(TIER), OwnerRecord(owner=Incarnation(number)))


def status(channel, state, error=None, pressure=None):
    tier_status = TierStatus(state=state, sentence=f"it is {state}", error=error, pressure=pressure)
    channel.put(
        paths.CONTROLLER_STATUS,
        ControllerStatus(leader="c1", epoch=1, at=0, sentence="", tiers={TIER: tier_status}),
    )


def test_a_running_tier_has_no_event(channel):
    incarnation(channel, 1, State.RUNNING)
    owned_by(channel, 1)
    status(channel, TierState.RUNNING)
    assert TierWatch(TIER, 0, 0, 0).look(channel) is None


def test_a_failed_incarnation_is_reported_once_with_its_last_error(channel):
    incarnation(channel, 1, State.FAILED, error="no such column: campain")
    watch = TierWatch(TIER, 0, 0, 0)
    event = watch.look(channel)
    assert (event.kind, event.incarnation, event.error) == ("failed", 1, "no such column: campain")
    assert watch.look(channel) is None
    assert TierWatch(TIER, event.incarnation, 0, 0).look(channel) is None, (
        "a restarted triggerer must not report it again"
    )


def test_failures_are_reported_one_by_one(channel):
    for number in (1, 2):
        incarnation(channel, number, State.FAILED, error=f"error {number}")
    watch = TierWatch(TIER, 0, 0, 0)
    assert [watch.look(channel).incarnation, watch.look(channel).incarnation] == [1, 2]


def test_a_replaced_driver_is_only_logged(channel):
    incarnation(channel, 1, State.RUNNING)
    owned_by(channel, 1)
    watch = TierWatch(TIER, 0, 0, 0)
    assert watch.look(channel) is None
    incarnation(channel, 2, State.RUNNING, reason="driver of 1 was killed")
    owned_by(channel, 2)
    assert watch.look(channel) is None
    assert watch.notes() == [
        "counts: incarnation 1 owns the tier on h1 (launch)",
        "counts: incarnation 2 owns the tier, after incarnation 1 on h1 (driver of 1 was killed)",
    ]
    assert watch.notes() == []


def test_a_given_up_tier_is_reported_until_it_is_restarted(channel):
    incarnation(channel, 5, State.RUNNING)
    owned_by(channel, 5)
    status(channel, TierState.FAILED, error="killed by signal 9")
    event = TierWatch(TIER, 5, 0, 0).look(channel)
    assert (event.kind, event.incarnation, event.error) == ("given_up", 5, "killed by signal 9")
    assert TierWatch(TIER, 5, restarted=5, loss=0).look(channel) is None
    incarnation(channel, 6, State.RUNNING)
    assert TierWatch(TIER, 5, restarted=5, loss=0).look(channel).kind == "given_up", (
        "incarnation 6 was tried after the restart, and given up too"
    )


def test_a_stop_request_is_reported(channel):
    channel.put(paths.wanted(TIER), TierWanted(running=False, by="cli:anna"))
    event = TierWatch(TIER, 0, 0, 0).look(channel)
    assert (event.kind, event.sentence) == ("unwanted", "stop requested by cli:anna")


def test_a_stopped_tier_reports_losses_but_no_failures(channel):
    incarnation(channel, 1, State.FAILED, error="Kafka is away")
    owned_by(channel, 1)
    status(channel, TierState.FAILED, pressure=Pressure(stream="enriched", lag=None, since=10_000.0))
    channel.put(paths.wanted(TIER), TierWanted(running=False, by="cli:anna"))
    assert TierWatch(TIER, 0, 0, 0).look(channel).kind == "unwanted"
    channel.put(paths.loss(TIER), Loss(number=4, sentence="2 records are nowhere"))
    assert TierWatch(TIER, 0, 0, 0).look(channel).kind == "lost", (
        "a loss is reported although the tier is stopped"
    )


def test_a_tier_has_half_an_hour_to_catch_up_after_a_stop(channel):
    begun = 50_000.0
    incarnation(channel, 1, State.RUNNING, since=begun)
    owned_by(channel, 1)
    status(
        channel,
        TierState.RUNNING,
        pressure=Pressure(stream="enriched", lag=Lag(records=90, seconds=7200), since=begun + 3),
    )

    def event_at(now, reported_behind=0.0):
        return TierWatch(TIER, 0, 0, 0, reported_behind, clock=lambda: now).look(channel)

    assert event_at(begun + 5) is None
    assert event_at(begun + CATCH_UP_SECONDS - 1) is None
    assert event_at(begun + CATCH_UP_SECONDS + 1).kind == "behind"
    status(
        channel,
        TierState.RUNNING,
        pressure=Pressure(stream="enriched", lag=Lag(records=90, seconds=130), since=begun + 300),
    )
    assert event_at(begun + 301).kind == "behind", "the tier had caught up before"
    status(channel, TierState.STARTING, pressure=Pressure(stream="enriched", lag=None, since=begun + 3))
    assert event_at(begun + 200).kind == "behind", "a tier that takes no records does not catch up"


def test_a_loss_is_reported_once_by_its_number(channel):
    incarnation(channel, 1, State.RUNNING)
    watch = TierWatch(TIER, 0, 0, 0)
    assert watch.look(channel) is None
    channel.put(paths.loss(TIER), Loss(number=4, sentence="2 records are nowhere"))
    event = watch.look(channel)
    assert (event.kind, event.loss, event.sentence) == ("lost", 4, "2 records are nowhere")
    assert watch.look(channel) is None
    assert TierWatch(TIER, 0, 0, event.loss).look(channel) is None, (
        "a restarted triggerer must not report it again"
    )
    channel.put(paths.loss(TIER), Loss(number=5, sentence="another one"))
    assert watch.look(channel).loss == 5


def test_a_lagging_tier_alerts_and_alerts_again_only_after_a_while(channel):
    incarnation(channel, 1, State.RUNNING)

    def behind(since):
        lag = Lag(records=200_000, seconds=60)
        status(
            channel,
            TierState.RUNNING,
            pressure=Pressure(stream="enriched", lag=lag, since=since, rate_in=800, rate_done=400),
        )

    behind(10_000.0)
    watch = TierWatch(TIER, 0, 0, 0)
    event = watch.look(channel)
    assert (event.kind, event.behind) == ("behind", 10_000)
    assert (
        event.sentence
        == "counts is 200000 records, 60 s behind in enriched; 800/s came in and 400/s were done"
    )
    behind(10_000.0 + AGAIN_SECONDS)
    assert watch.look(channel) is None
    assert TierWatch(TIER, 0, 0, 0, event.behind).look(channel) is None, (
        "a restarted triggerer must not report it again"
    )
    behind(10_001.0 + AGAIN_SECONDS)
    assert watch.look(channel).kind == "behind"
    behind(10_001.0 + AGAIN_SECONDS - 3600)
    assert watch.look(channel).kind == "behind", "a clock that jumped back must not hide the lag"
