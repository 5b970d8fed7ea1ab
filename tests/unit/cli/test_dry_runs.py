"""What a command would do is said, and nothing is done: of those that plan no placement."""

from contextlib import nullcontext

import pytest
from simulation.world import World
from typer.testing import CliRunner

from ops.cli.ending import WRONG_USAGE
from ops.cli.main import app
from ops.model.operation import ChangeKind


@pytest.fixture
def world(monkeypatch):
    running = World()
    running.want()
    running.settle()
    for module in ("ops.cli.connect", "ops.cli.retiring", "ops.cli.aborting"):
        monkeypatch.setattr(f"{module}.open_channel", lambda: nullcontext(running.channel))
    return running


def held(world):
    return {path: (data, version) for path, (data, version, _) in world.channel.nodes.items()}


def asked(world, *words):
    """Ask, and find the channel as it was."""
    before = held(world)
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert held(world) == before
    return done


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
