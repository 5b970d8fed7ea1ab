"""Nothing that was lost with a host works again without a plan: a host that comes back ends what is
not assigned to it any more.
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
"""Seconds after which who is away is lost."""


@cache
def running():
    world = ReconcilingWorld(hosts=[host(name, cpu=5.5) for name in NAMES])
    world.want()
    world.settle()
    return world


def works(world, name):
    """Name what is at work on a host."""
    return {
        unit for unit, item in world.agents[name].found.items() if item.alive and item.stopping_at is None
    }


def assigned(world, name):
    return {unit.id for unit in world.assigned(name)}


def ticks(world, count):
    for _ in range(count):
        world.tick()
        twice = Counter(unit for name in NAMES for unit in assigned(world, name))
        assert max(twice.values()) == 1, f"assigned to two hosts: {twice}"
        for name, agent in world.agents.items():
            assert not agent.alive or works(world, name) <= assigned(world, name), (
                "none works but what is assigned"
            )


away = st.tuples(st.sampled_from(NAMES), st.booleans(), st.integers(1, 40), st.integers(1, 30))


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(st.lists(away, min_size=1, max_size=4))
def test_units_on_a_returned_host_work_on_only_where_still_assigned(history):
    world = deepcopy(running())
    for name, dies, seconds, later in history:
        ran = works(world, name)
        if dies:
            world.agents[name].die()
        else:
            world.agents[name].cut_off()
            assert works(world, name) == ran, "it runs on"
        ticks(world, seconds)
        kept = assigned(world, name)
        assert not ran or seconds < LOST + 2 or kept == set(), "who is lost is planned anew, elsewhere"
        event(f"{len(ran - kept)} lost")
        world.agents[name].register()
        ticks(world, 1)
        assert works(world, name) & ran <= assigned(world, name)
        assert not works(world, name) & {
            unit for other in NAMES if other != name for unit in works(world, other)
        }
        ticks(world, later)
    world.settle()
    world.check_settled()
    assert {world.state(name) for name in world.specs} == {State.RUNNING}
