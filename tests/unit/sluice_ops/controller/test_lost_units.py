"""Units lost with a host never work again without a plan: a returned host ends units that are no
longer assigned to it.
"""

from collections import Counter
from copy import deepcopy
from functools import cache

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from simulation.reconciling_agents import ReconcilingWorld
from simulation.world import host

from sluice_ops.model.incarnation import State

NAMES = ["h1", "h2", "h3"]
LOST = 8
"""Seconds until a host that is away counts as lost."""


@cache
def running():
    world = ReconcilingWorld(hosts=[host(name, cpu=5.5) for name in NAMES])
    return world.bring_up()


def working_units(world, name):
    """Return the units at work on a host."""
    return {
        unit for unit, item in world.agents[name].found.items() if item.alive and item.stopping_at is None
    }


def assigned_units(world, name):
    return {unit.id for unit in world.assigned(name)}


def ticks(world, count):
    for _ in range(count):
        world.tick()
        twice = Counter(unit for name in NAMES for unit in assigned_units(world, name))
        assert max(twice.values()) == 1, f"assigned to two hosts: {twice}"
        for name, agent in world.agents.items():
            assert not agent.alive or working_units(world, name) <= assigned_units(world, name), (
                "only assigned units work"
            )


away = st.tuples(st.sampled_from(NAMES), st.booleans(), st.integers(1, 40), st.integers(1, 30))


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(st.lists(away, min_size=1, max_size=4))
def test_units_of_a_returned_host_work_only_where_still_assigned(history):
    world = deepcopy(running())
    for name, dies, seconds, later in history:
        ran = working_units(world, name)
        if dies:
            world.agents[name].die()
        else:
            world.agents[name].cut_off()
            assert working_units(world, name) == ran, "the units continue to run"
        ticks(world, seconds)
        still_assigned = assigned_units(world, name)
        assert not ran or seconds < LOST + 2 or still_assigned == set(), (
            "units of a lost host are planned elsewhere"
        )
        event(f"{len(ran - still_assigned)} lost")
        world.agents[name].register()
        ticks(world, 1)
        assert working_units(world, name) & ran <= assigned_units(world, name)
        assert not working_units(world, name) & {
            unit for other in NAMES if other != name for unit in working_units(world, other)
        }
        ticks(world, later)
    world.settle()
    world.check_settled()
    assert {world.state(name) for name in world.specs} == {State.RUNNING}
