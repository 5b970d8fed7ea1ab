"""`sluice upgrade-pipeline` upgrades every tier, goes back after a failure, and continues."""

import json
from contextlib import nullcontext

import pytest
from simulation.commands import run_in
from simulation.mortal import KilledError, MortalChannel
from simulation.world import NEW, OLD, TIERS, with_new_release
from typer.testing import CliRunner

from sluice_ops.cli import upgrade_pipeline as command
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.change import Step
from sluice_ops.model.exit_codes import FAILED, OK, WRONG_USAGE
from sluice_ops.operations import requests

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def world(monkeypatch):
    return watched(monkeypatch, TIERS)


def watched(monkeypatch, tiers):
    """Return a pipeline on the old release, in which the command runs."""
    running = with_new_release(tiers)
    run_in(running, command, monkeypatch)
    return running


def run(*words):
    return CliRunner().invoke(app, ["upgrade-pipeline", *words])


def releases(world):
    return {name: world.incarnation(name, world.owner(name).owner).release for name in world.specs}


def test_every_tier_gets_the_release_and_the_canary_is_first(world):
    done = run("--canary", "enrich")
    assert done.exit_code == OK, done.output
    assert f"upgrades to {NEW}, in this order: enrich, counts, outbound, entry\n" in done.stdout
    assert "did well for 20 s" in done.stdout
    assert "Done: enrich, counts, outbound, entry upgraded; " in done.stdout
    assert done.stdout.endswith(f" on {NEW}\n")
    assert set(releases(world).values()) == {NEW}
    assert run("--json").stdout.count('"ok": true') == 1, "a second run has nothing to do"


def test_after_a_failed_trial_all_go_back_in_reverse_order(world):
    world.logs["enrich"].sets_aside[NEW] = 40
    done = run("--json")
    assert done.exit_code == FAILED, done.output
    sentence = json.loads(done.stdout)["sentence"]
    assert f"the upgrade of the pipeline to {NEW} failed: enrich: trial failed: " in sentence
    assert "800 of 2000 records went to quarantine (40%)" in sentence
    assert "These tiers went back, in this order: outbound, counts. Now " in sentence
    assert f"on {OLD}. Correct the code, publish, and upgrade again" in sentence
    world.settle()
    assert set(releases(world).values()) == {OLD}


def test_ctrl_c_aborts_the_tier_under_way_and_the_next_run_continues(world, monkeypatch):
    real = requests.wait

    def interrupted(channel, identity, *rest):
        if identity.endswith(f".{Step.TRIAL}") and releases(world)["outbound"] == NEW:
            raise KeyboardInterrupt
        return real(channel, identity, *rest)

    monkeypatch.setattr(requests, "wait", interrupted)
    done = run()
    assert done.exit_code == FAILED
    assert "stopped: outbound: it was interrupted. Now " in done.stderr
    assert f"`sluice upgrade-pipeline --release {NEW}`" in done.stderr
    monkeypatch.setattr(requests, "wait", real)
    world.settle()
    assert releases(world) == {"entry": OLD, "enrich": OLD, "counts": NEW, "outbound": OLD}
    done = run()
    assert done.exit_code == OK, done.output
    assert "continues the upgrade" in done.stdout
    assert set(releases(world).values()) == {NEW}


@pytest.mark.parametrize("words", [("--release", "r9-99999999"), ("--canary", "nobody")])
def test_a_release_or_canary_that_does_not_exist_is_wrong_usage(world, words):
    done = run(*words)
    assert done.exit_code == WRONG_USAGE
    assert "r9-99999999; known releases: r1-aaaaaaaa, r2-bbbbbbbb" in done.stderr or "'nobody'" in done.stderr
    assert not world.channel.exists(paths.PIPELINE_UPGRADE)


def test_a_dry_run_shows_the_order_and_the_first_tiers_plan(world):
    done = run("--dry-run", "--json")
    assert done.exit_code == OK, done.output
    answer = json.loads(done.stdout)
    assert answer["tiers"] == ["counts", "outbound", "enrich", "entry"]
    assert answer["first"]["tier"] == "counts"
    assert not world.channel.exists(paths.PIPELINE_UPGRADE)


@pytest.mark.parametrize("before", [True, False], ids=["before a write", "after a write"])
def test_a_command_killed_at_any_write_is_continued_and_goes_back(monkeypatch, before):
    for kill_at in range(1 if before else 3, 60, 4):  # all take minutes
        world = watched(monkeypatch, TIERS[2:])
        world.logs["outbound"].sets_aside[NEW] = 40
        mortal = MortalChannel(world.channel, kill_at, before=before)
        monkeypatch.setattr(command, "open_channel", lambda channel=mortal: nullcontext(channel))
        killed = False
        try:
            done = CliRunner().invoke(app, ["upgrade-pipeline"], catch_exceptions=False)
        except KilledError:
            killed = True
            monkeypatch.setattr(command, "open_channel", lambda channel=world.channel: nullcontext(channel))
            done = run()
        world.settle()
        if not killed:
            assert kill_at > 20, "two upgrades and a way back write more often"
            return
        assert done.exit_code == FAILED, done.output
        assert set(releases(world).values()) == {OLD}, (kill_at, done.output)
    message = "the command writes more than expected"
    raise AssertionError(message)
