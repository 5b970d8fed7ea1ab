"""A batch of a rolling reboot begins only in the window, and while no alert is open."""

from dataclasses import dataclass, replace

import pytest
from simulation.world import HOSTS, World, host

from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, AlertRequests, Severity, Silence
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, ChangeState, PartOf, Step
from sluice_ops.model.rolling import NOT_BEFORE
from sluice_ops.operations.approvals import answer
from sluice_ops.planning.rolling import LOOK_SECONDS

NIGHT = 100_000.0


@dataclass(frozen=True)
class Until:
    """A window that is open until a moment, and opens again the next night."""

    closes: float

    def opens(self, now):
        return None if now < self.closes else NIGHT


@pytest.fixture
def world():
    return World(hosts=(*HOSTS, host("h4"))).bring_up()


def batch(world, *, closes_in=None, asks=False, deadline=300.0, **more):
    """Post a batch of one host."""
    window = None if closes_in is None else Until(world.wall() + closes_in)
    rule = ApprovalRule(always=("reboot-hosts",)) if asks else None
    world.rules = replace(world.rules, reboot_window=window, approval=rule)
    return world.begin("c1", deadline=deadline, by="cli:anna", kind="reboot-hosts", hosts=("h1",), **more)


def lags(world, *, fired=True, **more):
    fields = {"severity": Severity.WARNING, "wait": 60, "happened": "counts lags", "did": "", "do": ""}
    now = world.wall()
    alert = Alert(
        kind="tier-lags", subject="counts", since=now, fired_at=now if fired else None, **fields, **more
    )
    world.channel.put(paths.ALERTS, AlertRecord(alerts={alert.key: alert}))
    return alert


def pass_time(world, seconds):
    for _ in range(seconds):
        world.tick()


def check_refused(world, runbook, why):
    world.until(lambda: runbook.ended)
    refused = runbook.results[Step.PREFLIGHT]
    assert not refused.ok
    assert why in refused.sentence
    assert world.host_state("h1") is HostState.UP
    assert world.agents["h1"].reboots == []
    return refused


def test_a_batch_that_is_approved_after_the_window_begins_nothing(world):
    runbook = batch(world, closes_in=60, asks=True)
    pass_time(world, 70)
    assert not runbook.ended
    answer(world.channel, "c1", "cli:ben", approved=True)
    refused = check_refused(world, runbook, "the window `reboot_window` of the site file is closed")
    assert refused.details == {NOT_BEFORE: NIGHT}
    assert world.channel.read(paths.change("c1"), ChangeRecord).value.state is ChangeState.ABORTED


def test_a_batch_that_waited_for_another_change_obeys_the_window(world):
    other = world.begin("c0", kind="drain", host="h3")
    world.tick()
    runbook = batch(world, closes_in=2)
    world.until(lambda: other.ended)
    check_refused(world, runbook, "`reboot_window` of the site file is closed")


def test_an_alert_that_fires_before_the_approval_stops_the_batch(world):
    runbook = batch(world, asks=True)
    pass_time(world, 3)
    lags(world)
    answer(world.channel, "c1", "cli:ben", approved=True)
    check_refused(world, runbook, "the alert tier-lags:counts is open: counts lags")


def test_silenced_alerts_and_events_before_the_run_stop_no_batch(world):
    alert = lags(world)
    silence = Silence(until=world.wall() + 900, by="test", at=world.wall())
    world.channel.put(paths.ALERT_REQUESTS, AlertRequests(silences={alert.key: silence}))
    runbook = batch(world)
    world.settle()
    assert runbook.ok
    world.channel.put(paths.ALERT_REQUESTS, AlertRequests())
    event = lags(world, ends_at=world.wall() + 900)
    part_of = PartOf(run="r", earlier_events=(event.key,))
    later = world.begin("c2", kind="reboot-hosts", hosts=("h2",), part_of=part_of)
    world.settle()
    assert later.ok


def test_a_batch_waits_for_a_window_that_opens_before_its_deadline(world):
    runbook = batch(world, closes_in=-1, deadline=NIGHT)
    pass_time(world, 3)
    assert runbook.current is Step.PREFLIGHT
    world.rules = replace(world.rules, reboot_window=None)
    world.settle()
    assert runbook.ok


def test_a_batch_waits_for_a_condition_that_may_become_an_alert(world):
    lags(world, fired=False)
    runbook = batch(world)
    pass_time(world, int(LOOK_SECONDS) + 5)
    assert runbook.current is Step.PREFLIGHT
    world.channel.put(paths.ALERTS, AlertRecord())
    world.settle()
    assert runbook.ok


def test_the_window_is_not_for_the_reboot_of_one_host(world):
    world.rules = replace(world.rules, reboot_window=Until(0.0))
    runbook = world.begin("c1", kind="reboot", host="h1")
    world.settle()
    assert runbook.ok
