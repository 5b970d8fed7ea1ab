"""A starved tier is moved after a wait, with a cool-down, to hosts that starve no tier, and only if
the site file says so.
"""

from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.world import RULES, host, tier

from sluice_ops.controller.policies.quarantine import QUARANTINE_SECONDS
from sluice_ops.controller.policies.starvation import MOVE_INTERVAL_SECONDS, STARVED_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState, Observed
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState
from sluice_ops.model.repair import Repair
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from tests.unit.sluice_ops.controller.test_repairing import StatusWorld, pass_time

LOOK_SECONDS = 10.01
"""Not 10: on the simulated clock, a quarantine would end at the same timestamp as another event,
and timestamps tell ages apart.
"""
REPAIR = 1800.0
"""The site file's wait for repairs; longer than the wait for a starved tier."""


def site(**fields):
    """Return a world whose tiers run on some of the hosts."""
    return deepcopy(settled(**fields))


@cache
def settled(count=5, tenants=("counts",), slots=2, repair=REPAIR, cpu=8):
    shares = {name: Share(minimum=1, target=slots, maximum=4) for name in tenants}
    rules = replace(RULES, shares=shares, partitions=8, repair=repair and Repair(after=repair))
    tiers = [tier(name, Mode.BATCH, number) for number, name in enumerate(tenants)]
    world = StatusWorld(
        hosts=[host(f"h{number}", cpu=cpu) for number in range(1, count + 1)], tiers=tiers, rules=rules
    )
    return world.bring_up()


def starve(world, *names, tenant="counts"):
    """Let exactly these hosts starve their units of a tenant."""
    for name, agent in world.agents.items():
        mine = {unit for unit in agent.units if f"-{tenant}-" in unit} if name in names else set()
        others = {unit: at for unit, at in agent.starved.items() if f"-{tenant}-" not in unit}
        agent.starved = others | {unit: agent.starved.get(unit, world.wall()) for unit in mine}


def moves(world):
    names = [name for name in world.channel.children("/changes") if "-starved-" in name]
    records = [world.channel.read(paths.change(name), ChangeRecord).value for name in names]
    return sorted(records, key=lambda change: change.started_at)


def record(world, name):
    stored = world.channel.read(paths.host_record(name), HostRecord)
    return HostRecord() if stored is None else stored.value


def starvation_sentence(world, tenant="counts"):
    starved = world.statuses[tenant].starved
    return None if starved is None else starved.sentence


def test_a_tier_starved_for_long_is_moved_and_its_host_takes_nothing_new():
    world = site()
    (bad, _) = sorted(world.placement("counts").slots)
    starve(world, bad)
    pass_time(world, STARVED_SECONDS - 30)
    assert not moves(world)
    assert starvation_sentence(world).startswith(
        f"is starved of processor time on {bad}: the tier is moved after 300 s of starvation"
    )
    assert (
        sum(f"counts is starved of processor time on {bad}" in sentence for sentence in world.sentences) >= 1
    )
    pass_time(world, 60)
    world.settle()
    (change,) = moves(world)
    assert (change.state, change.by, change.spec.kind, change.spec.tier) == (
        ChangeState.DONE,
        CONTROLLER,
        "repair",
        "counts",
    )
    assert change.plan.moves[0].why == f"is starved of processor time on {bad}"
    assert change.receipts["counts"]
    assert bad not in world.placement("counts").hosts
    assert len(world.placement("counts").slots) == 2
    assert (record(world, bad).state, record(world, bad).reason) == (
        HostState.CORDONED,
        "counts is starved of processor time there",
    )
    starve(world)
    pass_time(world, 20)
    assert starvation_sentence(world) is None
    assert any(
        f"counts is no longer starved of processor time on {bad}" in sentence for sentence in world.sentences
    )
    world.check_settled()
    pass_time(world, QUARANTINE_SECONDS)
    assert record(world, bad).state is HostState.UP, "the host is used again"
    assert len(moves(world)) == 1


def test_without_a_site_setting_a_starved_tier_waits_for_an_operator():
    world = site(repair=None)
    bad = world.placement("counts").slots[0]
    starve(world, bad)
    pass_time(world, 10 * STARVED_SECONDS)
    assert not moves(world)
    assert "to move the tier: `sluice drift --repair`" in starvation_sentence(world)
    repair = world.begin("r1", kind="repair")
    world.settle()
    assert repair.ok
    assert bad not in world.placement("counts").hosts


def test_a_short_starvation_moves_nothing():
    world = site()
    bad = world.placement("counts").slots[0]
    for _ in range(6):
        starve(world, bad)
        pass_time(world, STARVED_SECONDS - 60)
        starve(world)
        pass_time(world, 60)
    assert not moves(world)


def test_if_all_hosts_starve_units_nothing_moves_and_the_status_says_so():
    world = site(tenants=("counts", "enrich"), slots=4)
    for name in ("counts", "enrich"):
        starve(world, *world.agents, tenant=name)
    pass_time(world, 10 * STARVED_SECONDS)
    assert not moves(world)
    assert "no other host has room now (`sluice drift` says why)" in starvation_sentence(world)
    assert all(record(world, name).state is HostState.UP for name in world.agents)


def test_without_room_nothing_moves_and_the_status_says_so():
    world = site(count=2, slots=2, cpu=1.5)
    starve(world, world.placement("counts").slots[0])
    pass_time(world, 10 * STARVED_SECONDS)
    assert not moves(world)
    assert "no other host has room now" in starvation_sentence(world)


def test_moves_quarantine_no_more_hosts_than_allowed():
    world = site(count=6, tenants=("counts", "enrich"))
    for name in ("counts", "enrich"):
        hosts_of_tier = [
            host_name
            for host_name in world.agents
            if any(f"slot-{name}-" in unit for unit in world.agents[host_name].units)
        ]
        starve(world, hosts_of_tier[0], tenant=name)
    pass_time(world, 3 * STARVED_SECONDS)
    world.settle()
    assert sum(bool(record(world, name).reason) for name in world.agents) == 1


def test_a_change_of_an_operator_restarts_the_wait():
    world = site()
    bad = world.placement("counts").slots[0]
    starve(world, bad)
    pass_time(world, STARVED_SECONDS - 60)
    cordon = world.begin(
        "c1",
        kind="cordon",
        host=next(name for name in world.agents if name not in world.placement("counts").hosts),
    )
    world.until(lambda: cordon.ended)
    pass_time(world, STARVED_SECONDS - 60)
    assert not moves(world), "the wait began again"
    pass_time(world, 120)
    assert len(moves(world)) == 1


def starving(world):
    """Return the hosts that the controller knows to starve units; agents report at the end of a
    tick.
    """
    observed = {name: world.channel.read(paths.observed(name), Observed) for name in world.agents}
    return {name for name, node in observed.items() if node is not None and node.value.starved}


@pytest.mark.timeout(240)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(["h1", "h2", "h3", "h4", "h5", "h6"]), max_size=6), st.integers(1, 60)
        ),
        max_size=12,
    )
)
def test_a_starved_tier_moves_once_per_cool_down_and_off_starved_hosts(
    steps,
):
    world = site(count=6, tenants=("counts", "enrich"))
    known = 0
    for names, times in steps:
        for _ in range(times):
            for name in ("counts", "enrich"):
                starve(world, *names, tenant=name)
            seen = starving(world)
            world.tick(LOOK_SECONDS)
            new, known = moves(world)[known:], len(moves(world))
            for move in [move for change in new for move in change.plan.moves]:
                assert not set(move.after.hosts) & seen
            assert sum(change.state is ChangeState.ACTIVE for change in moves(world)) <= 1
    for name in ("counts", "enrich"):
        starve(world, tenant=name)
    world.settle()
    world.check_settled()
    for name in ("counts", "enrich"):
        at = [change.started_at for change in moves(world) if change.spec.tier == name]
        assert all(later - first >= MOVE_INTERVAL_SECONDS for first, later in pairwise(at))
    assert sum(bool(record(world, name).reason) for name in world.agents) <= 1


class Closed:
    """A window that does not open for a day."""

    def opens(self, now):
        return now + 86400


def test_a_starved_tier_does_not_wait_for_the_window():
    world = site()
    world.rules = replace(world.rules, repair=Repair(after=REPAIR, window=Closed()))
    starve(world, world.placement("counts").slots[0])
    pass_time(world, STARVED_SECONDS + 60, LOOK_SECONDS)
    assert moves(world)
