"""A decommission empties a host, has its agent end, and removes the host, whose name stays
refused.
"""

import pytest
from simulation.world import HOSTS, RULES, World, host

from sluice_ops.controller.removal import removals
from sluice_ops.model import paths
from sluice_ops.model.assignment import Decommissioned, HostFacts, HostState
from sluice_ops.model.change import Step
from sluice_ops.model.share import Share
from sluice_ops.snapshot.view import read_view


@pytest.fixture
def world():
    return World().bring_up()


def decommission(world, name):
    runbook = world.begin("d1", kind="decommission", host=name)
    world.until(lambda: runbook.ended)
    return runbook


def nodes(world, name):
    return {
        path for path in world.channel.nodes if name in path.split("/") and path != paths.decommissioned(name)
    }


def test_a_host_is_emptied_and_removed_while_records_flow(world):
    name = world.placement("counts").driver
    runbook = decommission(world, name)
    assert runbook.ok, runbook.results
    assert runbook.results[Step.DECOMMISSION].sentence == (
        f"{name} is decommissioned: no unit was left, and its registration, credential and labels are "
        f"removed; take {name} out of the site file, too."
    )
    assert not nodes(world, name)
    assert not world.agents[name].alive
    world.settle()
    world.check_settled()
    assert world.all_well()
    gone = world.channel.read(paths.decommissioned(name), Decommissioned).value
    assert (gone.change, gone.by, gone.unchecked) == ("d1", "test", "")


def test_a_dead_host_is_removed_and_the_unchecked_is_told(world):
    world.agents["h2"].die()
    for _ in range(20):
        world.tick()
    world.settle()
    runbook = decommission(world, "h2")
    assert runbook.ok, runbook.results
    assert "the agent of h2 is silent" in runbook.results[Step.PREFLIGHT].sentence
    sentence = runbook.results[Step.DECOMMISSION].sentence
    assert "Not checked: what runs on the machine, because its agent is silent" in sentence
    assert not nodes(world, "h2")


def test_a_drained_host_whose_agent_was_stopped_is_removed(world):
    drained = world.begin("d0", kind="drain", host="h2")
    world.until(lambda: drained.ended)
    world.agents["h2"].die()
    for _ in range(20):
        world.tick()
    assert decommission(world, "h2").ok
    assert not nodes(world, "h2")


def test_a_host_whose_units_the_brake_holds_is_refused(world):
    for name in ("h1", "h2"):
        world.agents[name].die()
    for _ in range(20):
        world.tick()
    name = next(name for name in ("h1", "h2") if name in world.braked)
    refused = decommission(world, name).results[Step.PREFLIGHT]
    assert not refused.ok
    assert f"run `sluice write-off {name}` first" in refused.sentence


def test_a_host_is_refused_with_numbers_if_the_others_are_too_small():
    rules = RULES.shares | {"counts": Share(minimum=3, target=3, maximum=3)}
    world = World(hosts=(host("h1"), host("h2", cpu=6)), rules=RULES.__class__(shares=rules, partitions=4))
    world.bring_up()
    refused = decommission(world, "h1").results[Step.PREFLIGHT]
    assert not refused.ok
    assert refused.sentence.startswith(
        "without h1, the guaranteed minimums do not fit: with drivers they need 8 cpu and 8192 MiB "
        "(counts 3, enrich 1, entry 1, outbound 1 workers), and h2 has 6 cpu and 16384 MiB: "
    )
    assert world.host_state("h1") is HostState.UP


def test_an_ec2_host_is_left_instead(world):
    world.add_host(host("ec2-00000001", zone="ec2"))
    world.tick()
    refused = decommission(world, "ec2-00000001").results[Step.PREFLIGHT]
    assert "to terminate it, run `sluice leave`" in refused.sentence


def test_an_agent_that_does_not_end_is_named_and_a_later_run_finishes(world):
    agent = world.agents["h2"]
    agent.die, die = lambda: None, agent.die
    runbook = world.begin("d1", kind="decommission", host="h2", deadline=60.0)
    world.until(lambda: runbook.ended)
    assert not runbook.ok
    assert (
        "stop it there: `systemctl disable --now sluice-agent@h2`"
        in runbook.results[Step.DECOMMISSION].sentence
    )
    assert world.host_state("h2") is HostState.DRAINED, "an abort does not bring it back"
    agent.die = die
    world.settle()
    assert not nodes(world, "h2"), "its nodes go when its agent has ended"


def test_a_host_that_joins_anew_meanwhile_is_not_removed(world):
    decommission(world, "h2")
    agent = world.agents["h2"]
    agent.register()
    world.channel.delete(paths.live("h2"))
    removed = removals(world.channel, read_view(world.channel))
    assert removed[0].path == paths.decommissioned("h2"), "guarded by the node that a join deletes"
    world.channel.delete(paths.decommissioned("h2"))
    assert removals(world.channel, read_view(world.channel)) == []
    assert world.channel.read(paths.host("h2"), HostFacts) is not None


def test_all_hosts_but_the_needed_ones_can_go_one_after_the_other(world):
    assert decommission(world, "h3").ok
    second = world.begin("d2", kind="decommission", host="h2")
    world.until(lambda: second.ended)
    assert second.ok, second.results
    last = world.begin("d3", kind="decommission", host="h1")
    world.until(lambda: last.ended)
    assert "host h1 is the only host that is up" in last.results[Step.PREFLIGHT].sentence
    assert len(HOSTS) == 3
