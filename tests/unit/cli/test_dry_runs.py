"""What a command would do is said, and nothing is done."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from simulation.world import World
from typer.main import get_command
from typer.testing import CliRunner

from ops import runbook
from ops.cli.ending import OK, WRONG_USAGE
from ops.cli.main import app
from ops.cloud import ec2
from ops.model.operation import ChangeKind
from ops.site import Ec2Config

OWN_PROCESSES = {"replay", "skip"}
"""They hand over to the pipeline's own: `test_replay` and `test_skipped` have their dry runs."""
CHANGES = {
    "cordon": ("h1",),
    "drain": ("h1",),
    "return": ("h1",),
    "write-off": (),
    "reboot": ("h1",),
    "scale": ("enrich", "3"),
    "drift": ("--repair",),
    "migrate": ("counts", "h2"),
    "upgrade": ("enrich",),
    "repartition": ("counts", "6"),
    "shift": ("night",),
    "pause": (),
    "resume": (),
    "burst": ("enrich", "2"),
    "leave": (),
    "start": ("counts",),
    "stop": ("counts",),
}


@pytest.fixture
def world(monkeypatch):
    """A pipeline in which time passes whenever a command waits."""
    running = World()
    running.want()
    running.settle()
    for module in ("change", "connect", "retiring", "aborting", "bursting"):
        monkeypatch.setattr(f"ops.cli.{module}.open_channel", lambda: nullcontext(running.channel))
    clock = SimpleNamespace(sleep=lambda _seconds: running.tick(), time=running.clock, monotonic=running.clock)
    monkeypatch.setattr(runbook, "time", clock)
    monkeypatch.setattr("ops.cli.change.ended_as_by_ctrl_c", lambda: None)
    monkeypatch.setattr("ops.cli.bursting.the_site", lambda: SimpleNamespace(ec2=Ec2Config()))
    return running


def held(world):
    """Return every node but those of the question itself, which the controller answers."""
    nodes = world.channel.nodes.items()
    return {path: (data, version) for path, (data, version, _) in nodes if not path.startswith("/operations/")}


def asked(world, *words):
    """Ask, and find the channel as it was."""
    before = held(world)
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert held(world) == before
    return done


def test_no_command_that_has_a_dry_run_is_left_out():
    commands = get_command(app).commands.items()
    asked = {name for name, command in commands if any(each.name == "dry_run" for each in command.params)}
    assert asked == CHANGES.keys() | OWN_PROCESSES | {"abort", "retire"}


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_is_changed(world, monkeypatch, command):
    launched = []
    monkeypatch.setattr(ec2, "instances", list)
    for name in ("launch", "terminate"):
        monkeypatch.setattr(ec2, name, lambda *words: launched.append(words))
    for release in ("r1-aaaaaaaa", "r2-bbbbbbbb"):
        world.publish(release)
    world.settle()
    before = held(world)
    done = asked(world, command, *CHANGES[command])
    assert done.exit_code == OK, done.output
    for _ in range(20):
        world.tick()
    assert held(world) == before, "nor later"
    assert launched == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("start", "counts"), "would have counts run: it is placed where there is room\n"),
        (("stop", "counts"), "would stop counts after a commit, and take its slots away\n"),
    ],
)
def test_starts_and_stops(world, words, said):
    assert asked(world, *words).stdout == said


def test_an_abort_says_of_each_tier_whether_it_goes_back(world):
    assert asked(world, "abort").exit_code == WRONG_USAGE, "nothing is under way"
    runbook = world.begin("d1", kind=ChangeKind.DRAIN, host=world.placement("entry").driver)
    world.until(lambda: world.next_driver("entry") is not None)
    assert "entry: incarnation 2 is dropped, 1 goes on" in asked(world, "abort").stdout
    world.until(lambda: runbook.ended)
    assert asked(world, "abort", "d1").stdout == "would undo of d1: nothing, it has handed over or started no tier\n"


def test_a_host_is_retired_only_if_it_could_be(world):
    assert "an agent serves h2" in asked(world, "retire", "h2").stderr
    runbook = world.begin("d1", kind=ChangeKind.DRAIN, host="h2")
    world.until(lambda: runbook.ended)
    world.agents["h2"].die()
    world.settle()
    assert asked(world, "retire", "h2").stdout == "would take h2 off the channel: nothing needs it\n"
