"""`sluice rolling-reboot` tells what it does, and stops with the next step."""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from simulation.commands import run_in
from simulation.world import World, host
from typer.testing import CliRunner

from sluice_ops.cli import rolling as command
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, Severity
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.exit_codes import FAILED, OK, WRONG_USAGE
from sluice_ops.operations import requests


@pytest.fixture
def world(monkeypatch):
    """A site of four hosts whose clock runs while the command waits."""
    running = World(hosts=[host(name, rack="r1") for name in ("h1", "h2", "h3")] + [host("h4")])
    running.bring_up()
    run_in(running, command, monkeypatch)
    monkeypatch.setattr(command, "the_site", lambda: SimpleNamespace(reboot_window=None))
    return running


def run(*words):
    return CliRunner().invoke(app, ["rolling-reboot", *words])


def reboots(world):
    return {name: len(agent.reboots) for name, agent in world.agents.items()}


def raised(world, key="tier-lags:counts"):
    kind, subject = key.split(":")
    fields = {"severity": Severity.WARNING, "wait": 60, "happened": "counts lags", "did": "", "do": ""}
    lags = Alert(kind=kind, subject=subject, since=1.0, fired_at=2.0, **fields)
    world.channel.put(paths.ALERTS, AlertRecord(alerts={key: lags}))


def test_hosts_reboot_in_batches_and_the_command_names_them(world):
    done = run("rack:r1", "--at-once", "2")
    assert done.exit_code == OK, done.output
    assert "reboots, in this order: h1, h2, h3\n" in done.stdout
    assert "batch 1: h1, h2\n" in done.stdout
    assert "batch 2: h3\n" in done.stdout
    assert done.stdout.endswith("Done: rebooted: h1, h2, h3\n")
    assert reboots(world) == {"h1": 1, "h2": 1, "h3": 1, "h4": 0}


def test_an_alert_stops_it_and_the_next_command_continues(world, monkeypatch):
    real = requests.run

    def alarming(*args, **more):
        steps = real(*args, **more)
        if not more.get("dry_run"):
            raised(world)
        return steps

    monkeypatch.setattr(requests, "run", alarming)
    stopped = run("rack:r1", "--json")
    assert stopped.exit_code == FAILED
    sentence = json.loads(stopped.stdout)["sentence"]
    assert "the alert tier-lags:counts is open: counts lags" in sentence
    assert "`sluice rolling-reboot rack:r1`" in sentence
    assert sum(reboots(world).values()) == 1
    monkeypatch.setattr(requests, "run", real)
    world.channel.put(paths.ALERTS, AlertRecord())
    done = run("rack:r1")
    assert done.exit_code == OK, done.output
    assert "continues the rolling reboot" in done.stdout
    assert reboots(world) == {"h1": 1, "h2": 1, "h3": 1, "h4": 0}


def test_the_command_waits_when_the_controller_holds_a_batch_back(world):
    opens = world.wall() + 600

    class Window:
        def opens(self, now):
            return None if now >= opens else opens

    world.rules = replace(world.rules, reboot_window=Window())
    done = run("rack:r1", "--at-once", "3", "--deadline", "60")
    assert done.exit_code == OK, done.output
    assert "preflight not begun: the window `reboot_window` of the site file is closed" in done.stdout
    assert "the controller begins no batch before" in done.stdout
    assert "batch 2: h1, h2, h3\n" in done.stdout
    assert world.wall() >= opens
    assert reboots(world) == {"h1": 1, "h2": 1, "h3": 1, "h4": 0}


def test_ctrl_c_undoes_the_batch_under_way(world, monkeypatch):
    real = requests.wait

    def interrupted(channel, identity, *rest):
        if identity.endswith(f".{Step.CUT}"):
            raise KeyboardInterrupt
        return real(channel, identity, *rest)

    monkeypatch.setattr(requests, "wait", interrupted)
    done = run("rack:r1")
    assert done.exit_code == FAILED
    assert "batch 1 (h1) failed and was undone: it was interrupted" in done.stderr
    world.settle()
    assert world.host_state("h1") is HostState.UP
    assert sum(reboots(world).values()) == 0


def test_a_place_without_hosts_is_wrong_usage(world):
    done = run("rack:r9")
    assert done.exit_code == WRONG_USAGE
    assert "no host is at 'rack:r9'" in done.stderr
    assert not world.channel.children(paths.REBOOTS)


def test_a_dry_run_lists_batches_and_hosts_that_are_left_out(world):
    world.agents["h2"].die()
    done = run("rack:r1", "--dry-run", "--json")
    assert done.exit_code == OK, done.output
    answer = json.loads(done.stdout)
    assert [batch["hosts"] for batch in answer["batches"]] == [["h1"], ["h3"]]
    assert answer["left_out"] == {"h2": "its agent does not answer"}


def test_hosts_that_need_a_reboot_are_named_and_can_be_chosen(world, monkeypatch):
    monkeypatch.setattr("sluice_ops.operations.snapshot.open_channel", lambda: nullcontext(world.channel))
    world.agents["h2"].notice = {"reboot_needed": True}
    world.tick()
    listing = CliRunner().invoke(app, ["hosts"]).stdout
    assert "An update of h2 needs a reboot. Next: sluice rolling-reboot h2\n" in listing
    done = run("rack:r1", "--only-needed")
    assert done.exit_code == OK, done.output
    assert "h1 is left out: no update needs a reboot" in done.stdout
    assert reboots(world) == {"h1": 0, "h2": 1, "h3": 0, "h4": 0}
