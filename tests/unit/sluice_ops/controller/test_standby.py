"""A standby runs if it is declared, on other hosts than the owner, and takes over as soon as the
owner is dead.
"""

import pytest
from simulation.world import TIERS, World, host

from sluice_ops.controller.policies.standby import CATCH_UP_SECONDS, START_INTERVAL_SECONDS
from sluice_ops.model.assignment import HostState, driver_id
from sluice_ops.model.incarnation import State
from sluice_ops.model.tier import Standby

HOT = tuple(
    spec.model_copy(update={"standby": Standby.HOT}) if spec.name == "entry" else spec for spec in TIERS
)


@pytest.fixture
def world():
    running = World(tiers=HOT)
    running.bring_up()
    running.until(lambda: runs_hot(running))
    return running


def runs_hot(world):
    number = world.owner("entry").standby
    driver = None if number is None else world.driver("entry", number)
    return driver is not None and driver.state is State.RUNNING


def hosts(world, number):
    return world.incarnation("entry", number).placement.hosts


def test_a_standby_runs_on_other_hosts_than_the_owner(world):
    record = world.owner("entry")
    assert not hosts(world, record.owner) & hosts(world, record.standby)
    assert world.state("entry") is State.RUNNING
    assert f"hot standby {record.standby} is running on" in world.statuses["entry"].sentence
    assert all(world.owner(name).standby is None for name in world.specs if name != "entry")


def test_a_standby_owns_the_tier_in_the_pass_that_finds_the_owner_dead(world):
    before = world.owner("entry")
    world.kill_driver("entry")
    world.tick()  # the agent notices the death
    world.tick()
    after = world.owner("entry")
    assert after.owner == before.standby
    assert world.state("entry") is State.RUNNING
    world.tick(40.0)
    world.until(lambda: runs_hot(world))
    assert not hosts(world, world.owner("entry").owner) & hosts(world, world.owner("entry").standby)


def test_the_next_standby_waits_ten_seconds_for_the_new_owner_to_catch_up(world):
    world.tick(START_INTERVAL_SECONDS)
    behind = world.driver("entry", world.owner("entry").standby)
    behind.caught_up, behind.stuck = False, True
    behind._report()
    world.kill_driver("entry")
    world.tick()
    world.tick()
    assert world.owner("entry").owner == behind.number
    assert world.owner("entry").standby is None
    assert "when the owner has caught up" in world.statuses["entry"].sentence
    world.tick(CATCH_UP_SECONDS)
    assert world.owner("entry").standby is not None


def test_a_dead_standby_is_replaced_after_some_time(world):
    before = world.owner("entry")
    world.kill_driver("entry", before.standby)
    world.tick()
    world.tick()
    assert world.owner("entry").standby is None
    assert world.owner("entry").owner == before.owner
    world.tick(40.0)
    world.until(lambda: runs_hot(world))
    assert world.owner("entry").standby > before.standby


@pytest.mark.parametrize("whose", ["owner", "standby"])
def test_a_drain_moves_owner_and_standby(world, whose):
    number = getattr(world.owner("entry"), whose)
    name = world.incarnation("entry", number).placement.driver
    runbook = world.begin("d1", kind="drain", host=name)
    world.settle()
    assert runbook.ok, runbook.results
    assert world.host_state(name) is HostState.DRAINED
    assert not world.assigned(name)
    world.tick(40.0)
    world.until(lambda: runs_hot(world))
    assert name not in hosts(world, world.owner("entry").standby)


def test_a_lost_owner_host_leaves_the_standby_in_charge(world):
    before = world.owner("entry")
    world.agents[world.incarnation("entry", before.owner).placement.driver].die()
    world.until(lambda: world.owner("entry").owner == before.standby)
    world.settle()
    assert world.state("entry") is State.RUNNING


def test_owner_and_standby_are_paused_and_stopped(world):
    number = world.owner("entry").standby
    world.want(paused=True)
    world.until(lambda: world.state("entry") is State.PAUSED)
    assert world.driver("entry", number).state is State.PAUSED
    world.want(paused=False)
    world.until(
        lambda: world.state("entry") is State.RUNNING and world.driver("entry", number).state is State.RUNNING
    )
    world.want(running=False)
    world.until(
        lambda: (
            not any(
                driver_id("entry", incarnation) in agent.units
                for agent in world.agents.values()
                for incarnation in range(1, 9)
            )
        )
    )
    assert world.owner("entry").standby is None


def test_a_standby_stops_when_its_tier_is_declared_without(world):
    number = world.owner("entry").standby
    world.declare(world.specs["entry"].model_copy(update={"standby": Standby.NONE}))
    world.tick()
    assert world.owner("entry").standby is None
    world.tick()
    assert world.driver("entry", number) is None


def test_without_another_host_a_tier_runs_without_standby_and_reports_it():
    world = World(hosts=(host("h1"),), tiers=HOT[:1])
    world.bring_up()
    assert world.state("entry") is State.RUNNING
    sentence = world.statuses["entry"].sentence
    assert (
        'the tier runs without a standby: tier "entry": no host takes new units (there is none); '
        "return or add a host" in sentence
    )


def test_a_warm_standby_waits_until_the_owner_is_dead():
    warm = tuple(
        spec.model_copy(update={"standby": Standby.WARM}) if spec.name == "outbound" else spec
        for spec in TIERS
    )
    world = World(tiers=warm)
    world.bring_up()

    def ready():
        number = world.owner("outbound").standby
        return number is not None and world.driver("outbound", number).state is State.READY

    world.until(ready)
    before = world.owner("outbound")
    placements = [
        world.incarnation("outbound", number).placement.hosts for number in (before.owner, before.standby)
    ]
    assert not placements[0] & placements[1]
    assert f"warm standby {before.standby} is ready on" in world.statuses["outbound"].sentence
    world.kill_driver("outbound")
    world.tick()  # the agent notices the death
    world.tick()
    assert world.owner("outbound").owner == before.standby
    world.settle()
    assert world.state("outbound") is State.RUNNING
    world.tick(40.0)
    world.until(ready)


def test_a_warm_standby_is_not_paused_and_owns_a_tier_that_dies_paused():
    warm = tuple(
        spec.model_copy(update={"standby": Standby.WARM}) if spec.name == "outbound" else spec
        for spec in TIERS
    )
    world = World(tiers=warm)
    world.bring_up()
    world.until(
        lambda: (
            (number := world.owner("outbound").standby) is not None
            and world.driver("outbound", number).state is State.READY
        )
    )
    number = world.owner("outbound").standby
    world.want(paused=True)
    world.until(lambda: world.state("outbound") is State.PAUSED)
    assert world.driver("outbound", number).state is State.READY
    world.kill_driver("outbound")
    world.until(lambda: world.owner("outbound").owner == number)
    world.until(lambda: world.state("outbound") is State.PAUSED)


def test_a_standby_of_the_other_kind_is_replaced(world):
    number = world.owner("entry").standby
    world.declare(world.specs["entry"].model_copy(update={"standby": Standby.WARM}))
    world.tick(40.0)
    world.until(
        lambda: (
            (other := world.owner("entry").standby) is not None
            and world.driver("entry", other).state is State.READY
        )
    )
    assert world.owner("entry").standby > number


def test_a_hot_standby_stops_while_the_owner_must_run_alone(world):
    before, owner = world.owner("entry"), world.driver("entry")
    owner.narrow = "hits has 5 partitions and 4 of them get records"
    owner._report()
    world.tick()
    world.tick()
    assert world.owner("entry").standby is None
    assert world.owner("entry").owner == before.owner
    world.tick(40.0)
    world.tick(40.0)
    assert world.owner("entry").standby is None
    assert "when the owner uses the partitions that were added" in world.statuses["entry"].sentence
    owner.narrow = None
    owner._report()
    world.until(lambda: runs_hot(world))
    assert world.owner("entry").standby > before.standby
