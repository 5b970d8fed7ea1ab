"""A host is used again after a reboot only when its agent has found it sound."""

from simulation.world import HOSTS, World, host

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState, Observed
from sluice_ops.model.change import ChangeState, Step
from tests.unit.sluice_ops.controller.test_every_step import changes

BAD = ("disk: 10 MiB free",)


def rebooting(findings, **spec):
    """Return a world in which a host reboots and then has these findings, and the runbook."""
    world = World(hosts=(*HOSTS, host("h4")))
    world.want()
    world.settle()
    world.agents["h1"].findings = findings
    return world, world.begin("c1", deadline=60.0, **spec)


def test_a_reboot_waits_until_the_host_is_sound():
    world, runbook = rebooting(BAD, kind="reboot", host="h1")
    world.until(lambda: runbook.current is Step.HEALTH)
    for _ in range(5):
        world.tick()
    assert world.host_state("h1") is HostState.DRAINED
    world.agents["h1"].findings = None
    world.tick()
    assert runbook.current is Step.HEALTH, "not checked yet"
    world.agents["h1"].findings = ()
    world.settle()
    assert runbook.ok
    assert world.host_state("h1") is HostState.UP


def test_a_host_that_is_not_sound_stays_cordoned_and_others_are_returned():
    world, runbook = rebooting(BAD, kind="reboot-hosts", hosts=("h1", "h2"))
    world.settle()
    failed = runbook.results[Step.HEALTH].sentence
    assert "h1 is not sound: disk: 10 MiB free" in failed
    assert "`sluice doctor --host h1`" in failed
    assert (world.host_state("h1"), world.host_state("h2")) == (HostState.CORDONED, HostState.UP)
    assert [change.state for change in changes(world)] == [ChangeState.ABORTED]


def test_an_abort_before_the_reboot_ignores_what_an_earlier_check_found():
    world, runbook = rebooting(BAD, kind="reboot", host="h1")
    world.until(lambda: runbook.current is Step.CUT)
    runbook.abort()
    world.settle()
    assert world.host_state("h1") is HostState.UP


def test_an_older_agent_makes_no_check(monkeypatch):
    world, runbook = rebooting((), kind="reboot", host="h1")
    put = world.channel.put

    def put_as_older(path, value, **more):
        if path == paths.observed("h1") and isinstance(value, Observed):
            value = value.model_copy(update={"boot": None, "findings": None})
        put(path, value, **more)

    monkeypatch.setattr(world.channel, "put", put_as_older)
    world.settle()
    assert runbook.ok
