"""Hosts that are lost for real: their agents are killed, and what they run with them or not. Workers and the controller are real too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from tests.integration.sluice_ops.agent.conftest import SECONDS, Lab
from tests.integration.sluice_ops.agent.driving import LAGS, WARMS
from tests.integration.sluice_ops.agent.hosting import PLACES, Hosts, hosted

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

WATCHED_TICKS = 80
"""Eight seconds in which nothing may move."""


@pytest.fixture
def hosts(lab: Lab, tmp_path: Path) -> Iterator[Hosts]:
    with hosted(lab, tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("does", "state", "step"), [(WARMS, State.WARMING, Step.PREPARE), (LAGS, State.RUNNING, Step.CUT)]
)
def test_when_the_target_of_a_hand_over_is_lost_the_tier_goes_elsewhere(
    hosts: Hosts, does: str, state: State, step: Step
) -> None:
    world, first = hosts.world, hosts.units("h1")["driver-entry-1"]
    (hosts.lab.home / f"{does}-entry-2").touch()
    runbook = world.begin("d1", kind="drain", host="h1")
    world.until_true(lambda: (said := world.report("entry", 2)) is not None and said.state is state, SECONDS)
    target = world.incarnation("entry", 2).placement.driver
    assert runbook.current is step
    assert "driver-entry-2" in hosts.units(target)
    hosts.die(target)
    world.until_true(lambda: not hosts.units(target), SECONDS)
    world.until_true(lambda: world.owner("entry").next not in {2, None}, SECONDS)
    assert hosts.units("h1")["driver-entry-1"] == first, "the old one goes on until another one is ready"
    world.until_true(lambda: runbook.ended, SECONDS)
    assert runbook.ok, runbook.results
    assert "3 goes on where 1 stopped" in runbook.results[Step.VERIFY].sentence
    (left,) = {"h1", "h2", "h3"} - {"h1", target}
    world.until_true(world.all_well, SECONDS)
    assert {host for _, place in hosts.placed().values() for host in place.hosts} == {left}
    assert world.host_state("h1") is HostState.DRAINED

    # back again, it is used, and runs nothing of what was given up
    hosts.serve(target)
    world.until_true(hosts.whole, SECONDS)
    assert world.host_state(target) is HostState.UP


def test_units_are_left_alone_when_two_of_three_agents_are_lost(hosts: Hosts) -> None:
    world, before = hosts.world, hosts.placed()
    running = {name: hosts.units(name) for name in ("h1", "h2", "h3")}
    for name in ("h1", "h2"):
        hosts.lose_agent(name)
    world.until_true(lambda: set(hosts.status().braked) == {"h1", "h2"}, SECONDS)
    said = hosts.sluice("status")
    assert "BRAKE: many hosts were lost at once; what is on h1, h2 is moved nowhere" in said
    assert "sluice write-off" in said
    for _ in range(WATCHED_TICKS):
        world.tick()
        assert hosts.placed() == before
    assert {name: hosts.units(name) for name in running} == running, "all of it runs on"
    for name in ("h1", "h2"):
        hosts.serve(name)
    world.until_true(lambda: not hosts.status().braked, SECONDS)
    assert "BRAKE" not in hosts.sluice("status")
    for _ in range(WATCHED_TICKS):
        world.tick()
    assert hosts.placed() == before
    assert {name: hosts.units(name) for name in running} == running, "and was taken up again where it runs"


def test_nothing_moves_off_two_dead_hosts_until_a_person_writes_one_off(hosts: Hosts) -> None:
    world, before = hosts.world, hosts.placed()
    for name in ("h1", "h2"):
        hosts.die(name)
    world.until_true(lambda: set(hosts.status().braked) == {"h1", "h2"}, SECONDS)
    for _ in range(WATCHED_TICKS):
        world.tick()
        assert hosts.placed() == before
    hosts.sluice("write-off", "h1")
    world.until_true(hosts.whole, SECONDS)
    assert {host for _, place in hosts.placed().values() for host in place.hosts} == {"h3"}, (
        "one that is lost alone is no matter for a person"
    )
    assert not hosts.status().braked
    assert before["enrich"] == hosts.placed()["enrich"], "what was on the third one was left alone"

    # back again, they run nothing of what has moved
    for name in ("h1", "h2"):
        hosts.serve(name)
    world.until_true(hosts.whole, SECONDS)
    assert {host for _, place in hosts.placed().values() for host in place.hosts} == {"h3"}
    assert {world.host_state(name) for name in PLACES.values()} == {HostState.UP}
