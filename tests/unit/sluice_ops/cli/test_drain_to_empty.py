"""`sluice drain-to-empty` pauses tiers in order, writes a receipt, or takes all pauses back."""

import json
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from simulation.commands import run_in
from simulation.mortal import KilledError, MortalChannel
from simulation.world import TIERS, World
from typer.testing import CliRunner

from sluice_ops.cli import drain_to_empty as command
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.change import ChangeRecord
from sluice_ops.model.exit_codes import FAILED, OK, WRONG_USAGE
from sluice_ops.model.incarnation import State
from sluice_ops.model.pipeline_drain import PipelineDrain
from sluice_ops.operations import requests
from sluice_ops.planning.pipeline_drain import Flow, Measured

WIRED = (
    TIERS[0].model_copy(update={"outputs": ("hits",)}),
    TIERS[1].model_copy(update={"inputs": ("hits",), "outputs": ("enriched",)}),
    TIERS[2].model_copy(update={"inputs": ("enriched",)}),
)
ORDER = ["entry", "enrich", "counts"]
pytestmark = pytest.mark.timeout(60)


@cache
def settled_world():
    return World(tiers=WIRED).bring_up()


@pytest.fixture
def world(monkeypatch):
    return watched(monkeypatch)


def watched(monkeypatch, **lags):
    """Return a pipeline in which each tier has these records left, for ever, or none."""
    running = deepcopy(settled_world())
    running.lags = lags

    def measure():
        flows = {name: Flow(running.wall(), running.lags.get(name, 0), 0.0) for name in ORDER}
        ends = {"in/0": 10**6, "hits/0": 0, "enriched/0": 0}
        return Measured(ends=ends, look=running.wall(), flows=flows)

    run_in(running, command, monkeypatch)
    monkeypatch.setattr(command, "measure", measure)
    return running


def run(*words):
    return CliRunner().invoke(app, ["drain-to-empty", *words])


def states(world):
    return {world.state(name) for name in world.specs}


def changes(world):
    names = [name for name in world.channel.children("/changes") if name != "lock"]
    records = [world.channel.read(paths.change(name), ChangeRecord).value for name in names]
    return [(each.spec.kind, *each.spec.tiers) for each in sorted(records, key=lambda each: each.started_at)]


def test_tiers_are_paused_from_the_entry_and_the_receipt_is_kept(world):
    done = run("--json")
    assert done.exit_code == OK, done.output
    receipt = json.loads(done.stdout)
    assert (receipt["in_flight"], [tier["tier"] for tier in receipt["tiers"]]) == (0, ORDER)
    assert states(world) == {State.PAUSED}
    assert changes(world) == [
        ("drain-to-empty",),
        ("drain-to-empty", "enrich"),
        ("drain-to-empty", "counts"),
    ]
    node = world.channel.read(paths.PIPELINE_DRAIN, PipelineDrain).value
    assert node.ended
    assert node.receipt.tiers[0].inputs[0].left > 0, "records wait outside, and are not in flight"
    again = run()
    assert again.exit_code == OK, again.output
    assert "Nothing is in flight. To let records flow again: `sluice resume`" in again.stdout
    assert len(changes(world)) == 3, "a second run finds everything paused"


def test_a_tier_that_does_not_get_empty_is_named_and_all_resume(world):
    world.lags = {"counts": 7}
    done = run("--deadline", "60")
    assert done.exit_code == FAILED, done.output
    assert "waits: counts has 7 records left, and reads 0 a second" in done.stdout
    assert "it was not empty after 60 s: counts has 7 records left" in done.stderr
    assert "No tier is paused by it any more" in done.stderr
    assert states(world) == {State.RUNNING}
    assert changes(world)[-1] == ("resume", "entry", "enrich")


def test_ctrl_c_takes_the_pauses_back(world, monkeypatch):
    world.lags = {"enrich": 3}
    real = command.time.sleep
    waits = []

    def interrupted(seconds):
        waits.append(seconds)
        if len(waits) == 12:
            raise KeyboardInterrupt
        real(seconds)

    monkeypatch.setattr(command.time, "sleep", interrupted)
    done = run()
    assert done.exit_code == FAILED, done.output
    assert "the drain to empty failed: it was interrupted" in done.stderr
    assert states(world) == {State.RUNNING}


def test_ctrl_c_in_a_pause_takes_the_pauses_back(world, monkeypatch):
    real, times = requests.wait, []

    def interrupted(channel, identity, *rest):
        times.append(identity)
        if len(times) == 4:
            raise KeyboardInterrupt
        return real(channel, identity, *rest)

    monkeypatch.setattr(requests, "wait", interrupted)
    done = run()
    assert done.exit_code == FAILED, done.output
    assert "the drain to empty failed: enrich: " in done.stderr
    assert states(world) == {State.RUNNING}


def test_a_dry_run_says_the_order_and_who_has_to_approve(world):
    world.rules = replace(world.rules, approval=ApprovalRule())
    done = run("--dry-run")
    assert done.exit_code == OK, done.output
    assert "each tier once it is empty: entry, enrich, counts\n" in done.stdout
    assert "would wait for the approval of another person: a pause of every tier always" in done.stdout
    assert not world.channel.exists(paths.PIPELINE_DRAIN)
    assert states(world) == {State.RUNNING}


def test_it_is_refused_while_nobody_can_tell_what_is_in_flight(world, monkeypatch):
    monkeypatch.setattr(command, "measure", lambda: Measured(missing="PostgreSQL does not answer"))
    done = run()
    assert done.exit_code == WRONG_USAGE
    assert "nobody can tell what is in flight: PostgreSQL does not answer. Nothing was paused" in done.stderr
    assert states(world) == {State.RUNNING}


@pytest.mark.parametrize("before", [True, False], ids=["before a write", "after a write"])
@pytest.mark.parametrize("lags", [{}, {"counts": 7}], ids=["gets empty", "does not"])
def test_a_command_killed_at_any_write_is_continued(monkeypatch, before, lags):
    for kill_at in range(1, 60, 3):
        world = watched(monkeypatch, **lags)
        mortal = MortalChannel(world.channel, kill_at, before=before)
        monkeypatch.setattr(command, "open_channel", lambda channel=mortal: nullcontext(channel))
        killed = False
        try:
            done = CliRunner().invoke(app, ["drain-to-empty", "--deadline", "60"], catch_exceptions=False)
        except KilledError:
            killed = True
            monkeypatch.setattr(command, "open_channel", lambda channel=world.channel: nullcontext(channel))
            done = run("--deadline", "60")
        world.settle()
        assert done.exit_code == (FAILED if lags else OK), (kill_at, done.output)
        assert states(world) == {State.RUNNING if lags else State.PAUSED}, (kill_at, done.output)
        if not killed:
            assert kill_at > 14, "three pauses write more often"
            return
    message = "the command writes more than expected"
    raise AssertionError(message)
