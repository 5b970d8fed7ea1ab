"""What a command would do is said, and nothing is done."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from simulation.world import World
from typer.main import get_command
from typer.testing import CliRunner

from sluice_ops.cli.exit_codes import OK, WRONG_USAGE
from sluice_ops.cloud import ec2
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts, slot_ids
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.operations import requests
from sluice_ops.planning.placement.pace import Pace
from sluice_ops.site.site_file import Ec2Config

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
    for module in (
        "cli.carry_out",
        "cli.retire",
        "cli.abort",
        "cli.burst",
        "operations.connect",
        "operations.snapshot",
    ):
        monkeypatch.setattr(f"sluice_ops.{module}.open_channel", lambda: nullcontext(running.channel))
    clock = SimpleNamespace(
        sleep=lambda _seconds: running.tick(), time=running.clock, monotonic=running.clock
    )
    monkeypatch.setattr(requests, "time", clock)
    monkeypatch.setattr("sluice_ops.cli.carry_out.ended_as_by_ctrl_c", lambda: None)
    monkeypatch.setattr("sluice_ops.cli.burst.the_site", lambda: SimpleNamespace(ec2=Ec2Config()))
    return running


def held(world):
    """Return every node but those of the question itself, which the controller answers."""
    nodes = world.channel.nodes.items()
    return {
        path: (data, version) for path, (data, version, _) in nodes if not path.startswith("/operations/")
    }


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


def test_dry_runs_of_start_and_stop_show_what_where_and_how_long(world):
    at = world.placement("counts").driver
    said = asked(world, "stop", "counts").stdout
    assert f"  note: counts ends after its last commit: its driver on {at}, its workers on {at}\n" in said
    assert (
        "  note: then counts writes nothing until it is started again; its input waits in the streams\n"
        in said
    )
    assert "  not predicted: how long it takes, because no stop has been timed here yet\n" in said
    world.want("counts", running=False)
    world.settle()
    said = asked(world, "start", "counts").stdout
    assert f"  1. counts: nowhere → driver {at}, workers {at}\n" in said
    took = world.incarnation("counts", 1).start.seconds
    assert f"  predicted: about {took:.0f} s in all, without a gap\n" in said
    (step,) = json.loads(asked(world, "start", "counts", "--json").stdout)["steps"]
    assert step["details"]["plan"]["moves"][0]["after"]["driver"] == at
    assert asked(world, "stop", "nobody").exit_code == WRONG_USAGE


def test_a_start_without_room_says_that_it_would_wait(world):
    world.want("counts", running=False)
    world.settle()
    for agent in world.agents.values():
        world.channel.put(
            paths.host(agent.host.name),
            HostFacts(name=agent.host.name, address="127.0.0.1", zone="onprem", cpu=1, memory=1),
        )
    said = asked(world, "start", "counts").stdout
    assert "note: counts would wait: " in said
    assert said.endswith("  not predicted: how long the tier waits for room\n")


def test_a_dry_run_of_a_burst_shows_places_and_handover_time(world, monkeypatch):
    monkeypatch.setattr(ec2, "instances", list)
    said = asked(world, "burst", "enrich", "2").stdout
    assert said.startswith("would launch 1 x m5.large (0 of at most 3 run now)\n")
    assert (
        "h1, h3, ec2-new-1, ec2-new-1\n  predicted: about 70 s in all, with a gap of about 0.5 s in a tier's output\n"
        in said
    )
    assert (
        "  not predicted: the time until the agents of the new instances have registered\n"
        in said
    )
    told = json.loads(asked(world, "burst", "enrich", "2", "--json").stdout)
    assert (told["ok"], told["instances"]) == (True, 1)
    assert told["steps"][0]["details"]["plan"]["predicted_seconds"] == 70


def test_a_write_off_says_what_of_each_tier_is_there(world):
    name = world.placement("enrich").driver
    world.agents[name].die()
    world.tick()
    assert "note: enrich has its driver and 1 worker on a host that is written off\n" in asked(world, "write-off", name).stdout


def test_an_abort_says_of_each_tier_whether_it_goes_back(world):
    assert asked(world, "abort").exit_code == WRONG_USAGE, "nothing is under way"
    runbook = world.begin("d1", kind="drain", host=world.placement("entry").driver)
    world.until(lambda: world.next_driver("entry") is not None)
    said = asked(world, "abort").stdout
    assert "entry: incarnation 2 is dropped, incarnation 1 goes on" in said
    assert f"; {runbook.spec.host} may be used again\n" in said
    assert said.endswith(
        "\n  it would release the maintenance lock\n  time not predicted: no abort was measured on this platform yet\n"
    )
    world.until(lambda: world.owner("entry").owner == 2)
    assert "entry: was handed over to incarnation 2, which goes on" in asked(world, "abort").stdout
    world.until(lambda: runbook.ended)
    assert (
        asked(world, "abort", "d1").stdout
        == "an abort of d1 would undo: nothing: the change has ended (done)\n"
    )


def test_an_abort_says_that_what_is_not_accepted_yet_goes_back(world):
    world.begin("r1", kind="repartition", tier="counts", partitions=6)
    world.until(lambda: world.owner("counts").owner == 2)
    said = json.loads(asked(world, "abort", "--json").stdout)
    assert said["undoes"] == [
        "counts: was handed over to incarnation 2, and rolls back to 2 state partitions: a gap of about 0.5 s"
    ]
    assert said["predicted_seconds"] == Pace().seconds(1, 1)
    assert "without a gap" not in asked(world, "abort").stdout


def test_an_abort_says_how_long_the_last_ones_took(world):
    for change in ("d1", "d2"):
        runbook = world.begin(change, kind="drain", host=world.placement("entry").driver)
        world.until(lambda: world.next_driver("entry") is not None)
        said = json.loads(asked(world, "abort", "--json").stdout)
        runbook.abort()
        world.settle()
    assert (
        said["predicted_seconds"]
        == world.channel.read(paths.change("d1"), ChangeRecord).value.took[Step.ABORT]
    )
    assert json.loads(asked(world, "abort", "d1", "--json").stdout) == {
        "dry_run": True,
        "change": "d1",
        "undoes": [],
        "predicted_seconds": 0.0,
    }


def test_an_abort_of_a_pause_says_what_goes_on(world):
    runbook = world.begin("p1", kind="pause", tier="enrich")
    world.driver("enrich").stuck = True
    world.until(lambda: world.owner("enrich").paused)
    assert "an abort of p1 would undo: enrich: resumes\n" in asked(world, "abort").stdout
    world.driver("enrich").stuck = False
    runbook.abort()
    world.settle()
    (worker, _) = slot_ids("enrich", 1, 2)
    world.begin("p2", kind="pause", workers=(worker,))
    world.driver("enrich").stuck = True
    world.until(lambda: world.owner("enrich").paused_workers)
    assert f"an abort of p2 would undo: enrich: {worker} resumes\n" in asked(world, "abort").stdout


def test_a_host_is_retired_only_if_it_could_be(world):
    assert "an agent serves h2" in asked(world, "retire", "h2").stderr
    runbook = world.begin("d1", kind="drain", host="h2")
    world.until(lambda: runbook.ended)
    world.agents["h2"].die()
    world.settle()
    assert asked(world, "retire", "h2").stdout == "would remove h2 from the channel: nothing uses it\n"
