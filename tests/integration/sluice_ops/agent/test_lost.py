"""Hosts that are really lost: their agents are killed, with or without their units.

Workers and the controller are real too.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from tests.integration.sluice_ops.agent.conftest import DEADLINE_SECONDS, Lab
from tests.integration.sluice_ops.agent.stand_in_drivers import LAGS, WARMS
from tests.integration.sluice_ops.agent.three_hosts import PLACES, Hosts, three_hosts

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

WATCHED_TICKS = 80
"""Ticks (8 s) in which nothing may move."""


@pytest.fixture
def hosts(lab: Lab, tmp_path: Path) -> Iterator[Hosts]:
    with three_hosts(lab, tmp_path) as hosts:
        yield hosts


@pytest.mark.parametrize(
    ("fault", "state", "step"), [(WARMS, State.WARMING, Step.PREPARE), (LAGS, State.RUNNING, Step.CUT)]
)
def test_a_handover_that_loses_its_target_goes_to_another_host(
    hosts: Hosts, fault: str, state: State, step: Step
) -> None:
    world, first = hosts.world, hosts.units("h1")["driver-entry-1"]
    (hosts.lab.home / f"{fault}-entry-2").touch()
    runbook = world.begin("d1", kind="drain", host="h1")
    world.until_true(
        lambda: (report := world.report("entry", 2)) is not None and report.state is state, DEADLINE_SECONDS
    )
    target = world.incarnation("entry", 2).placement.driver
    assert runbook.current is step
    assert "driver-entry-2" in hosts.units(target)
    hosts.die(target)
    world.until_true(lambda: not hosts.units(target), DEADLINE_SECONDS)
    world.until_true(lambda: world.owner("entry").next not in {2, None}, DEADLINE_SECONDS)
    assert hosts.units("h1")["driver-entry-1"] == first, "the old driver runs until another is ready"
    world.until_true(lambda: runbook.ended, DEADLINE_SECONDS)
    assert runbook.ok, runbook.results
    assert "3 goes on where 1 stopped" in runbook.results[Step.VERIFY].sentence
    (remaining,) = {"h1", "h2", "h3"} - {"h1", target}
    world.until_true(world.all_well, DEADLINE_SECONDS)
    assert {host for _, place in hosts.owners().values() for host in place.hosts} == {remaining}
    assert world.host_state("h1") is HostState.DRAINED

    # the returned host is used again, and runs no unit that was given up
    hosts.start_agent(target)
    world.until_true(hosts.as_wanted, DEADLINE_SECONDS)
    assert world.host_state(target) is HostState.UP


def test_units_are_left_alone_when_two_of_three_agents_are_lost(hosts: Hosts) -> None:
    world, before = hosts.world, hosts.owners()
    running = {name: hosts.units(name) for name in ("h1", "h2", "h3")}
    for name in ("h1", "h2"):
        hosts.lose_agent(name)
    world.until_true(lambda: set(hosts.status().braked) == {"h1", "h2"}, DEADLINE_SECONDS)
    status = hosts.sluice("status")
    assert "BRAKE: many hosts were lost at once; nothing is moved away from h1, h2 until" in status
    assert "sluice write-off" in status
    for _ in range(WATCHED_TICKS):
        world.tick()
        assert hosts.owners() == before
    assert {name: hosts.units(name) for name in running} == running, "all units run on"
    for name in ("h1", "h2"):
        hosts.start_agent(name)
    world.until_true(lambda: not hosts.status().braked, DEADLINE_SECONDS)
    assert "BRAKE" not in hosts.sluice("status")
    for _ in range(WATCHED_TICKS):
        world.tick()
    assert hosts.owners() == before
    assert {name: hosts.units(name) for name in running} == running, (
        "the returned agents adopt all units in place"
    )


def test_nothing_moves_off_two_dead_hosts_until_a_person_writes_one_off(hosts: Hosts) -> None:
    world, before = hosts.world, hosts.owners()
    for name in ("h1", "h2"):
        hosts.die(name)
    world.until_true(lambda: set(hosts.status().braked) == {"h1", "h2"}, DEADLINE_SECONDS)
    for _ in range(WATCHED_TICKS):
        world.tick()
        assert hosts.owners() == before
    hosts.sluice("write-off", "h1")
    world.until_true(hosts.as_wanted, DEADLINE_SECONDS)
    assert {host for _, place in hosts.owners().values() for host in place.hosts} == {"h3"}, (
        "a single lost host needs no person"
    )
    assert not hosts.status().braked
    assert before["enrich"] == hosts.owners()["enrich"], "the tier on the third host did not move"

    # the returned hosts run no unit that has moved
    for name in ("h1", "h2"):
        hosts.start_agent(name)
    world.until_true(hosts.as_wanted, DEADLINE_SECONDS)
    assert {host for _, place in hosts.owners().values() for host in place.hosts} == {"h3"}
    assert {world.host_state(name) for name in PLACES.values()} == {HostState.UP}
