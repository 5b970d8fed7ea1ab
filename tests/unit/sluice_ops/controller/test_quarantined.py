"""A failing host is quarantined with a reason, and returns after its time or when an operator
returns it.
"""

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.channel import trail_queue
from sluice_ops.controller.policies.quarantine import QUARANTINE_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState, UnitKind
from sluice_ops.model.change import CONTROLLER, Step
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from sluice_ops.model.trail import Outcome

WIDE = {name: Share(minimum=1, target=3, maximum=4) for name in ("counts", "enrich")}


@pytest.fixture
def world():
    return spread()


def spread(count=3, cpu=8, shares=WIDE):
    """Return a world of two tiers, each with a worker on every host."""
    rules = RULES.__class__(shares=shares, partitions=8)
    hosts = [host(f"h{number}", cpu=cpu) for number in range(1, count + 1)]
    return World(hosts=hosts, tiers=[tier(name, Mode.BATCH, 0) for name in shares], rules=rules).bring_up()


def record(world, name):
    return world.channel.read(paths.host_record(name), HostRecord).value


def fail(world, name, times=3, tenants=("counts", "enrich")):
    """Let a slot of each tenant die the given number of times, and restart it each time."""
    agent = world.agents[name]
    for _ in range(times):
        for unit in world.assigned(name):
            if unit.kind is UnitKind.SLOT and unit.tenant in tenants and unit.id in agent.units:
                agent.restart_slot(unit.id)
        world.tick()
        world.tick()


def test_a_host_where_two_tenants_keep_dying_is_quarantined_with_a_reason(world):
    fail(world, "h2")
    assert world.host_state("h2") is HostState.CORDONED
    quarantine = record(world, "h2")
    assert quarantine.reason == "units of counts, enrich died there 6 times within 30 min"
    assert quarantine.until == pytest.approx(world.now + QUARANTINE_SECONDS, abs=10)
    assert any(
        "h2 is in quarantine until" in sentence and "`sluice return h2` ends it" in sentence
        for sentence in world.sentences
    )
    assert "h2" in world.placement("counts").hosts, "running units are not moved"


def entries(world):
    return [
        queued.entry
        for queued in sorted(trail_queue.queued(world.channel), key=lambda queued: queued.entry.at)
    ]


def test_quarantine_and_its_end_are_in_the_trail_as_the_controllers_own(world):
    fail(world, "h2")
    (began,) = entries(world)
    assert (began.by, began.layer, began.what, began.change) == (CONTROLLER, None, "quarantine h2", None)
    assert (began.outcome, began.sentence) == (Outcome.DONE, record(world, "h2").reason)
    world.tick(QUARANTINE_SECONDS)
    world.settle()
    assert [(entry.by, entry.what, entry.sentence) for entry in entries(world)[1:]] == [
        (CONTROLLER, "return h2", "the quarantine is over")
    ]


def test_a_unit_that_dies_in_quarantine_restarts_elsewhere(world):
    fail(world, "h2")
    unit = next(unit.id for unit in world.assigned("h2") if unit.kind is UnitKind.SLOT)
    world.agents["h2"].kill_slot(unit)
    world.settle()
    assert unit not in {assigned_unit.id for assigned_unit in world.assigned("h2")}


def test_few_deaths_or_deaths_of_one_tenant_cause_no_quarantine(world):
    fail(world, "h2", times=2)
    fail(world, "h3", times=9, tenants=("counts",))
    assert {world.host_state(name) for name in world.agents} == {HostState.UP}


def test_a_quarantine_ends_after_its_time_and_old_deaths_do_not_count(world):
    fail(world, "h2")
    world.tick(QUARANTINE_SECONDS - 60)
    assert world.host_state("h2") is HostState.CORDONED
    world.tick(60)
    assert world.host_state("h2") is HostState.UP
    assert "the quarantine of h2 is over; the host is used again" in " ".join(world.sentences)
    world.tick()
    fail(world, "h2", times=1)
    assert world.host_state("h2") is HostState.UP
    fail(world, "h2", times=2)
    assert world.host_state("h2") is HostState.CORDONED


def test_an_operator_ends_a_quarantine(world):
    fail(world, "h2")
    back = world.begin("r1", kind="return", host="h2")
    world.settle()
    assert back.ok
    assert record(world, "h2").reason == ""
    assert world.host_state("h2") is HostState.UP


def test_a_second_failing_host_stays_in_use_with_a_message(world):
    fail(world, "h2")
    fail(world, "h3")
    assert world.host_state("h3") is HostState.UP
    assert "h3 is failing (units of counts, enrich died there" in world.sentences[-1]
    assert "stays in use: at most 1 of 3 hosts may be in quarantine at once" in world.sentences[-1]


def test_a_host_that_the_minimums_need_stays_in_use():
    world = spread(count=2, cpu=4.5, shares={name: Share(minimum=3, target=3, maximum=3) for name in WIDE})
    fail(world, "h2")
    assert world.host_state("h2") is HostState.UP
    assert "stays in use" in world.sentences[-1]
    assert "find no room" in world.sentences[-1]


def test_many_hosts_that_fail_together_are_not_quarantined():
    world = spread(count=3)
    for name in world.agents:
        fail(world, name, times=2)
    for name in world.agents:
        agent = world.agents[name]
        for unit in world.assigned(name):
            if unit.kind is UnitKind.SLOT:
                agent.restart_slot(unit.id)
    for _ in range(5):
        world.tick()
    assert {world.host_state(name) for name in world.agents} == {HostState.UP}


def test_a_host_that_was_down_once_is_not_quarantined(world):
    for unit in [unit.id for unit in world.assigned("h2")]:
        world.agents["h2"].restart_slot(unit)
    world.tick()
    assert world.host_state("h2") is HostState.UP


def test_an_aborted_drain_leaves_the_quarantine_as_it_was(world):
    fail(world, "h2")
    before = record(world, "h2")
    drain = world.begin("d1", kind="drain", host="h2")
    world.until(lambda: world.host_state("h2") is HostState.DRAINING)
    drain.left = []
    drain.post(Step.ABORT)
    world.until(lambda: world.host_state("h2") is not HostState.DRAINING)
    assert (record(world, "h2").state, record(world, "h2").until) == (HostState.CORDONED, before.until)


def test_an_aborted_drain_keeps_an_operators_cordon(world):
    cordon = world.begin("c1", kind="cordon", host="h2")
    world.settle()
    assert cordon.ok
    assert "h2" in world.placement("counts").hosts
    assert record(world, "h2").until is None
    drain = world.begin("d1", kind="drain", host="h2")
    world.until(lambda: world.host_state("h2") is HostState.DRAINING)
    drain.left = []
    drain.post(Step.ABORT)
    world.until(lambda: world.host_state("h2") is HostState.CORDONED)
    world.settle()
    world.check_settled()


def test_a_cordoned_host_after_quarantine_waits_for_an_operator(world):
    fail(world, "h2")
    cordon = world.begin("c1", kind="cordon", host="h2")
    world.settle()
    assert cordon.ok
    world.tick(2 * QUARANTINE_SECONDS)
    assert world.host_state("h2") is HostState.CORDONED
