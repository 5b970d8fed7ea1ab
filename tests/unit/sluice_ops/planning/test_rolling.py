"""A rolling reboot takes each host once, never too many together, and continues where it was."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.alert import Alert, AlertRecord, AlertRequests, Severity, Silence
from sluice_ops.model.assignment import HostFacts, HostState
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.rolling import RollingReboot
from sluice_ops.planning.alerts.catalogue import ALERTS
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.rolling import (
    CONTINUE_SECONDS,
    Batch,
    Complete,
    HostNow,
    Stop,
    Wait,
    begin,
    events,
    next_turn,
)
from tests.unit.sluice_ops.planning.clusters import checked_plan, clusters

NOW = 1_000_000.0
CALM, NO_REQUESTS = AlertRecord(), AlertRequests()


def host(name, *, rack="r1", live=True, state=HostState.UP, boot="first", reboot_needed=False):
    facts = HostFacts(
        name=name, address="127.0.0.1", zone="z", rack=rack, labels=("old",), cpu=4, memory=4096
    )
    return HostNow(facts, live, state, boot, reboot_needed)


def hosts(count, **more):
    return {f"h{number}": host(f"h{number}", **more) for number in range(1, count + 1)}


def wanted(place="rack:r1", run="run 1", at=NOW, **more):
    return RollingReboot(place=place, run=run, by="test", begun_at=at, at=at, **more)


def begun(there, place="rack:r1", earlier=None, *, only_needed=False, **more):
    return begin(wanted(place, **more), there, earlier, only_needed=only_needed)


def turn(reboot, known, *, at_once=1, alerts=CALM, requests=NO_REQUESTS, opens=None):
    return next_turn(reboot, known, at_once, alerts, requests, opens, NOW)


def alert(key="tier-lags:counts", *, fired=True, wait=60, **more):
    kind, subject = key.split(":")
    fields = {"severity": Severity.WARNING, "wait": wait, "happened": "counts lags", "did": "", "do": ""}
    return Alert(kind=kind, subject=subject, since=NOW, fired_at=NOW if fired else None, **fields, **more)


def told(*alerts):
    return AlertRecord(alerts={each.key: each for each in alerts})


@given(st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_each_host_boots_once_in_batches_of_the_wanted_size(count, at_once, random: Random):
    """Runs die after any batch, hosts are retired, and people reboot hosts by themselves."""
    known, reboot, booted, run = hosts(count), None, [], 1
    reboot = begun(known).reboot
    while True:
        if random.random() < 0.3:
            run += 1
            reboot = begun(known, earlier=reboot, run=f"run {run}").reboot
        if random.random() < 0.2 and known:
            name = random.choice(sorted(known))
            if random.random() < 0.5:
                del known[name]
            elif known[name].boot == "first":
                known[name] = replace(known[name], boot="by a person")
        next_ = turn(reboot, known, at_once=at_once)
        if isinstance(next_, Complete):
            break
        assert isinstance(next_, Batch)
        assert 1 <= len(next_.hosts) <= at_once
        assert next_.number == reboot.number + 1
        reboot = reboot.model_copy(update={"number": next_.number, "batch": next_.hosts})
        if random.random() < 0.7:
            booted += next_.hosts
            known |= {name: replace(known[name], boot=f"batch {next_.number}") for name in next_.hosts}
    assert len(booted) == len(set(booted))
    assert all(each.boot != "first" for each in known.values())


@settings(deadline=None)
@given(clusters(), st.data())
def test_a_batch_leaves_its_hosts_and_keeps_every_worker(cluster, data):
    names = data.draw(st.lists(st.sampled_from(sorted(cluster.hosts)), min_size=1, max_size=3, unique=True))
    planned = checked_plan(ChangeSpec(kind="reboot-hosts", hosts=tuple(names)), cluster)
    if planned is None:
        return
    for move in planned.moves:
        spare = cluster.rules.shares[move.tier].spare
        assert move.after.hosts.isdisjoint(names)
        assert move.short <= spare
        tier = cluster.tiers[move.tier]
        share = target(move.tier, cluster.rules).own if tier.awaits_upgrade else len(move.before.slots)
        assert len(move.after.slots) >= share - spare
    moved = {move.tier for move in planned.moves}
    for name, tier in cluster.tiers.items():
        assert name in moved or tier.placement is None or tier.placement.hosts.isdisjoint(names)


def test_a_batch_is_refused_for_unknown_hosts_and_for_none():
    empty = Cluster({}, {}, (), Rules())
    with pytest.raises(RefusedError, match="there is no host h9; known hosts: none has registered yet"):
        plan(ChangeSpec(kind="reboot-hosts", hosts=("h9",)), empty)
    with pytest.raises(RefusedError, match="reboot-hosts names no hosts"):
        plan(ChangeSpec(kind="reboot-hosts"), empty)


def test_places_are_joined_by_commas_and_each_must_have_a_host():
    known = {**hosts(2), "h3": host("h3", rack="r2"), "h4": host("h4", rack="r3")}
    assert [*begun(known, "h4,rack:r1").reboot.boots] == ["h1", "h2", "h4"]
    assert [*begun(known, "label:old").reboot.boots] == ["h1", "h2", "h3", "h4"]
    with pytest.raises(RefusedError, match=r"no host is at 'rack:r9'.*known hosts: h1, h2, h3, h4"):
        begun(known, "h1,rack:r9")


def test_hosts_that_cannot_be_rebooted_are_left_out_with_the_reason():
    known = {
        "h1": host("h1", live=False),
        "h2": host("h2", state=HostState.DRAINED),
        "h3": host("h3", boot=None),
        "h4": host("h4"),
        "h5": host("h5", reboot_needed=True),
    }
    start = begun(known, only_needed=True)
    assert [*start.reboot.boots] == ["h5"]
    assert start.left_out["h1"] == "its agent does not answer"
    assert start.left_out["h2"].endswith("first run `sluice return h2`")
    assert "older version" in start.left_out["h3"]
    assert start.left_out["h4"] == "no update needs a reboot"
    assert [*begun(known).reboot.boots] == ["h4", "h5"]


def test_a_later_run_continues_for_a_day_and_then_begins_anew():
    known = hosts(3)
    first = begun(known).reboot
    known["h1"] = replace(known["h1"], boot="second")
    soon = begun(known, earlier=first, run="run 2", at=NOW + CONTINUE_SECONDS - 1)
    assert (soon.continued, soon.reboot.run) == (True, "run 2")
    assert turn(soon.reboot, known, at_once=9).hosts == ("h2", "h3")
    late = begun(known, earlier=first, run="run 2", at=NOW + CONTINUE_SECONDS)
    assert not late.continued
    assert turn(late.reboot, known, at_once=9).hosts == ("h1", "h2", "h3")


def test_a_rebooted_host_that_reports_its_old_boot_is_not_rebooted_again():
    known = hosts(2)
    reboot = begun(known).reboot.model_copy(update={"rebooted": ("h1",)})
    assert turn(reboot, known).hosts == ("h2",)


def test_an_open_alert_stops_it_unless_it_is_silenced():
    known = hosts(2)
    reboot, lags = begun(known).reboot, alert()
    stop = turn(reboot, known, alerts=told(lags))
    assert isinstance(stop, Stop)
    assert "tier-lags:counts" in stop.sentence
    assert "`sluice alert silence tier-lags:counts --for 2h`" in stop.sentence
    both = turn(reboot, known, alerts=told(lags, alert("tier-lags:enrich")))
    assert "`sluice alert silence 'tier-lags:*' --for 2h`" in both.sentence
    silent = AlertRequests(silences={"tier-lags:*": Silence(until=NOW + 60, by="test", at=NOW)})
    assert isinstance(turn(reboot, known, alerts=told(lags), requests=silent), Batch)
    over = lags.model_copy(update={"gone_at": NOW})
    assert isinstance(turn(reboot, known, alerts=told(over)), Batch)


def test_an_alert_with_another_cause_than_reboots_does_not_stop_it():
    known = hosts(2)
    starved = alert("tier-starved:counts")
    assert isinstance(turn(begun(known).reboot, known, alerts=told(starved)), Batch)
    lags = alert(fired=False, explained_by="tier-starved:counts")
    assert isinstance(turn(begun(known).reboot, known, alerts=told(starved, lags)), Wait)
    long = lags.model_copy(update={"since": NOW - 60})
    stop = turn(begun(known).reboot, known, alerts=told(starved, long))
    assert isinstance(stop, Stop), "the starved tier cannot keep up"
    assert "tier-lags:counts" in stop.sentence
    down = alert(fired=False, explained_by="host-lost:h9").model_copy(update={"since": NOW - 600})
    assert isinstance(turn(begun(known).reboot, known, alerts=told(down)), Batch), "its cause stops it"
    assert isinstance(turn(begun(known).reboot, known, alerts=told(alert("of-a-later-version:x"))), Stop)


def test_no_critical_alert_lets_a_rolling_reboot_go_on():
    assert all(kind.stops_reboots for kind in ALERTS if kind.severity is Severity.CRITICAL)


def test_only_events_since_its_run_began_stop_it():
    known, failed = hosts(2), alert("change-failed:c1", ends_at=NOW + 86_400)
    record = told(failed)
    before = begun(known, earlier_events=events(record)).reboot
    assert isinstance(turn(before, known, alerts=record), Batch)
    assert isinstance(turn(begun(known).reboot, known, alerts=record), Stop)
    again = begun(known, earlier=before, earlier_events=()).reboot
    assert again.earlier_events == before.earlier_events, "a retry of the run still stops at a new event"
    assert begun(known, earlier=before, run="run 2", earlier_events=("a", "b")).reboot.earlier_events == (
        "a",
        "b",
    )


def test_it_waits_for_a_condition_that_may_soon_become_an_alert():
    known = hosts(2)
    wait = turn(begun(known).reboot, known, alerts=told(alert(fired=False)))
    assert isinstance(wait, Wait)
    assert "tier-lags:counts may become an alert" in wait.reason
    slow = alert("tier-down:counts", fired=False, wait=600)
    assert isinstance(turn(begun(known).reboot, known, alerts=told(slow)), Batch), "it may last for long"
    explained = alert(fired=False, explained_by="host-lost:h9")
    assert isinstance(turn(begun(known).reboot, known, alerts=told(explained)), Batch)


def test_it_waits_outside_the_window_but_ends_there():
    known = hosts(1)
    reboot = begun(known).reboot
    assert turn(reboot, known, opens=NOW + 60) == Wait(
        NOW + 60, "the window `reboot_window` of the site file is closed"
    )
    known["h1"] = replace(known["h1"], boot="second")
    assert turn(reboot, known, opens=NOW + 60) == Complete("rebooted: h1")


def test_a_host_that_does_not_come_back_stops_it():
    known = hosts(2)
    reboot = begun(known).reboot
    known["h1"] = replace(known["h1"], live=False)
    stop = turn(reboot, known)
    assert isinstance(stop, Stop)
    assert "the agent of h1 does not answer" in stop.sentence


def test_a_host_that_a_person_drains_meanwhile_is_left_out():
    known = hosts(2)
    reboot = begun(known).reboot
    known["h1"] = replace(known["h1"], state=HostState.DRAINED)
    assert turn(reboot, known).hosts == ("h2",)
    known["h2"] = replace(known["h2"], boot="second")
    assert turn(reboot, known) == Complete("rebooted: h2; left out: h1 is drained")
