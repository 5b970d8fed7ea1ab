"""`sluice retire` removes a host after nothing is left on it and its agent is gone.

Before that, it refuses with the next step.
"""

import json
from contextlib import contextmanager, nullcontext

import pytest
from simulation.world import World
from typer.testing import CliRunner

from sluice_ops.channel import ConflictError, trail_queue
from sluice_ops.cli.exit_codes import FAILED, WRONG_USAGE
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState


@pytest.fixture
def world(monkeypatch):
    running = World()
    running.want()
    running.settle()
    monkeypatch.setattr("sluice_ops.cli.retire.open_channel", lambda: nullcontext(running.channel))
    return running


def retire(*words):
    return CliRunner().invoke(app, ["retire", *words])


def refusal(name):
    done = retire(name)
    assert (done.exit_code, done.stdout) == (WRONG_USAGE, "")
    return done.stderr


def drain(world, name):
    runbook = world.begin("d1", kind="drain", host=name)
    world.settle()
    assert runbook.ok, runbook.results


def nodes(world, name):
    return {path for path in world.channel.nodes if name in path.split("/")}


def test_a_drained_host_is_retired_once_its_agent_is_stopped(world):
    drain(world, "h2")
    assert refusal("h2") == "an agent serves h2: stop it there (systemctl disable --now sluice-agent@h2)\n"
    world.agents["h2"].die()
    done = retire("h2")
    assert done.exit_code == 0, done.stderr
    assert "h2 is removed from the channel" in done.stdout
    assert not nodes(world, "h2")
    (entry,) = [
        queued.entry for queued in trail_queue.queued(world.channel) if queued.entry.what == "retire h2"
    ]
    assert (entry.layer, entry.outcome) == ("maintenance", "done")
    assert entry.by.startswith("cli:")
    world.agents.pop("h2")
    world.settle()
    world.check_settled()
    assert not nodes(world, "h2")
    assert refusal("h2") == 'there is no host "h2"; known hosts: h1, h3\n'


def test_retire_prints_json(world):
    drain(world, "h2")
    world.agents["h2"].die()
    assert json.loads(retire("h2", "--json").stdout) == {"retired": "h2"}


def test_a_host_in_use_must_be_drained_first(world):
    assert "`sluice drain h1`, then stop it there" in refusal("h1")
    world.agents["h1"].die()
    assert refusal("h1").startswith("h1 was not drained before its agent stopped: start the agent")
    assert nodes(world, "h1")


def test_a_dead_machine_is_written_off_and_retired_once_nothing_is_left(world):
    name = world.placement("counts").driver
    world.agents[name].die()
    record = world.channel.read(paths.host_record(name), HostRecord)
    world.channel.put(
        paths.host_record(name),
        (HostRecord() if record is None else record.value).model_copy(update={"written_off": True}),
    )
    assert "could not be placed elsewhere yet: `sluice status` shows the reason" in refusal(name)
    world.settle()
    for _ in range(20):
        world.tick()
    done = retire(name)
    assert done.exit_code == 0, done.stderr
    world.agents.pop(name)
    world.settle()
    assert not nodes(world, name)


def test_a_change_of_the_host_in_progress_is_named(world):
    world.begin("r1", kind="reboot", host="h2")
    world.until(lambda: world.host_state("h2") in {HostState.DRAINED, HostState.REBOOTING})
    assert refusal("h2") == "change r1 of h2 is in progress: wait for its end, or `sluice abort r1`\n"


def test_a_host_whose_records_change_meanwhile_is_kept_and_named(world, monkeypatch):
    drain(world, "h2")
    world.agents["h2"].die()

    @contextmanager
    def conflicting_channel():
        def multi(_writes):
            raise ConflictError(paths.host("h2"))

        monkeypatch.setattr(world.channel, "multi", multi)
        yield world.channel

    monkeypatch.setattr("sluice_ops.cli.retire.open_channel", conflicting_channel)
    done = retire("h2")
    assert done.exit_code == FAILED
    assert (
        "h2 was not removed, because its records changed at this moment (/hosts/h2): check `sluice hosts`"
        in done.stderr
    )
    assert nodes(world, "h2")
