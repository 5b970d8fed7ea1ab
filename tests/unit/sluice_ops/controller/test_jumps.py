"""Jumps of wall clocks by an hour change neither decisions nor their times.

The clocks of the controller, the agents and the drivers jump.
"""

from copy import deepcopy
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.world import RULES, World, host, tier

from sluice_ops.controller.policies.health import START_SECONDS
from sluice_ops.controller.policies.quarantine import QUARANTINE_SECONDS
from sluice_ops.model.assignment import HostState, UnitKind
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode, Standby

pytestmark = pytest.mark.timeout(240)

HOUR = 3600.0
JUMP = 3600.123
"""No whole number, because time passes in whole seconds here: so all timestamps differ."""
WIDE = {name: Share(minimum=1, target=3, maximum=4) for name in ("counts", "enrich")}


@cache
def settled():
    """Return a world of four hosts: a tier with a warm standby, and two tiers with workers on
    nearly every host.
    """
    shares = {**WIDE, "entry": Share(minimum=1, target=1, maximum=2)}
    tiers = [tier(name, Mode.BATCH, 0) for name in WIDE] + [
        tier("entry", Mode.BATCH, 1, standby=Standby.WARM)
    ]
    return World(
        [host(f"h{number}") for number in range(1, 5)], tiers, RULES.__class__(shares=shares, partitions=8)
    ).bring_up()


def fresh():
    return deepcopy(settled())


def state_without_times(world):
    """Return the state without times."""
    return (
        {name: (status.state, status.failures) for name, status in world.statuses.items()},
        {name: (world.owner(name).model_dump(), world.state(name)) for name in world.specs},
        {
            name: (world.host_state(name), sorted(unit.id for unit in world.assigned(name)))
            for name in world.agents
        },
        [
            (runbook.change, {step: result.ok for step, result in runbook.results.items()})
            for runbook in world.runbooks
        ],
    )


def drain(world, number):
    world.begin(f"d{number}", kind="drain", host=f"h{1 + number % 4}")


def kill(world, number):
    world.kill_driver(sorted(world.specs)[number % 3])


def fail(world, number):
    """Let the driver fail by itself, in any state."""
    driver = world.driver(sorted(world.specs)[number % 3])
    if driver is not None:
        driver.broken = set(State)


def hang(world, number):
    driver = world.driver(sorted(world.specs)[number % 3])
    if driver is not None:
        driver.stuck = True


def kill_slots(world, number):
    """Let slots of a host die and restart."""
    agent = world.agents[f"h{1 + number % 4}"]
    for unit in [*agent.units]:
        if unit.startswith(UnitKind.SLOT):
            agent.restart_slot(unit)


def abandon(world, number):
    """Begin a change and abandon it."""
    world.begin(f"f{number}", kind="drain", host=f"h{1 + number % 4}").left = [Step.PREFLIGHT]


def stop(world, number):
    world.want(sorted(world.specs)[number % 3], running=False)


EVENTS = (drain, kill, fail, hang, kill_slots, abandon, stop)
moments = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.integers(0, 11),
        st.sampled_from([1, 2, 5, 40]),
        st.sampled_from([1.0, 1.0, 30.0, 400.0]),
        st.sampled_from([0.0, JUMP, -JUMP]),
    ),
    min_size=1,
    max_size=7,
)


def run(script, *, jumps):
    world, seen = fresh(), []
    for number, (event, which, ticks, seconds, jump) in enumerate(script):
        event(world, 4 * number + which)
        for tick in range(ticks):
            if jumps and tick == min(1, ticks - 1):
                world.ahead += jump
            world.tick(seconds if tick == ticks // 2 else 1.0)
            seen.append(state_without_times(world))
    return seen


@settings(max_examples=25, deadline=None)
@given(moments)
def test_a_jump_of_all_clocks_changes_nothing(script):
    assert run(script, jumps=True) == run(script, jumps=False)


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_a_step_has_exactly_its_deadline(jump):
    world = fresh()
    runbook = world.begin("d1", deadline=60.0, kind="drain", host=world.placement("counts").driver)
    world.until(lambda: world.next_driver("counts") is not None)
    world.next_driver("counts").stuck = True
    world.ahead += jump
    for _ in range(50):
        world.tick()
    assert Step.PREPARE not in runbook.results
    for _ in range(12):
        world.tick()
    assert "did not end within 60 s" in runbook.results[Step.PREPARE].sentence


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_a_start_has_its_full_time_and_then_is_given_up(jump):
    world = fresh()
    number = world.owner("counts").owner
    world.logs["counts"].hangs = True
    world.kill_driver("counts")
    for more in (True, True, False):
        world.until(
            lambda number=number: world.owner("counts").owner > number and world.driver("counts") is not None
        )
        number = world.owner("counts").owner
        world.ahead += jump
        world.tick(START_SECONDS - 30)
        world.tick()
        assert (world.owner("counts").owner, world.state("counts")) == (number, State.STARTING)
        world.logs["counts"].hangs = more
        world.until(lambda number=number: world.owner("counts").owner > number, 60)
    world.settle()


def test_a_driver_that_waits_for_services_has_not_failed():
    world = fresh()
    world.logs["counts"].away = "Kafka does not answer"
    world.kill_driver("counts")
    number = world.owner("counts").owner
    world.until(lambda: world.owner("counts").owner > number and world.driver("counts") is not None)
    number = world.owner("counts").owner
    for _ in range(10):
        world.tick(START_SECONDS)
    assert (world.owner("counts").owner, world.state("counts")) == (number, State.STARTING)
    assert world.statuses["counts"].sentence.startswith(
        f"incarnation {number} is starting, waits: Kafka does not answer"
    )
    world.logs["counts"].away = None
    world.until(lambda: world.state("counts") is State.RUNNING)
    assert world.owner("counts").owner == number


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_a_quarantine_lasts_an_hour(jump):
    world = fresh()
    name = next(
        name
        for name in world.agents
        if {"counts", "enrich"} <= {unit.tenant for unit in world.assigned(name)}
    )
    for number in range(3):
        kill_slots(world, int(name[1:]) - 1)
        world.ahead += jump * (number == 1)
        world.tick()
        world.tick()
    assert world.host_state(name) is HostState.CORDONED
    world.ahead += jump
    world.tick(QUARANTINE_SECONDS - 60)
    assert world.host_state(name) is HostState.CORDONED
    world.tick(60)
    assert world.host_state(name) is HostState.UP


def test_the_end_of_an_operators_number_follows_the_wall_clock():
    world = fresh()
    runbook = world.begin("s1", kind="scale", tier="entry", k=2, until=world.wall() + HOUR)
    world.settle()
    assert runbook.ok, runbook.results
    world.ahead += HOUR
    for _ in range(90):
        world.tick()
    assert len(world.placement("entry").slots) == 1


def test_a_tier_with_failures_restarts_after_its_host_is_lost():
    world = fresh()
    for _ in range(3):
        world.until(lambda: world.state("counts") is State.RUNNING)
        fail(world, 0)
        world.until(lambda: world.state("counts") is not State.RUNNING)
    world.until(lambda: world.state("counts") is State.RUNNING, 60)
    world.agents[world.placement("counts").driver].die()
    world.until(lambda: world.state("counts") is State.RUNNING, 60)


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_an_abort_undoes_a_pause_despite_a_jump_of_the_clock(jump):
    for moment in range(30):
        world = fresh()
        runbook = world.begin("p1", kind="pause")
        world.until(lambda world=world: Step.PREFLIGHT in world.runbooks[0].results)
        world.ahead += jump
        if not runbook.abort_after(moment):
            break
        assert {world.state(name) for name in world.specs} == {State.RUNNING}, moment
    assert moment > 2
