"""A dry run shows the effect of a command and changes nothing."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from simulation.world import World
from typer.main import get_command
from typer.testing import CliRunner

from sluice_ops.cloud import ec2
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts, slot_ids
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.model.exit_codes import FAILED, OK, WRONG_USAGE
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.status import ControllerStatus
from sluice_ops.operations import requests
from sluice_ops.planning.pipeline_drain import Measured
from sluice_ops.planning.placement.pace import Pace
from sluice_ops.site.ec2_config import Ec2Config

OWN_PROCESSES = {"publish", "replay", "skip"}
"""These commands start the pipeline's own process. `test_publish`, `test_replay` and
`test_skipped_records` test their dry runs.
"""
CHANGES = {
    "cordon": ("h1",),
    "drain": ("h1",),
    "decommission": ("h1",),
    "return": ("h1",),
    "write-off": (),
    "reboot": ("h1",),
    "scale": ("enrich", "3"),
    "drift": ("--repair",),
    "migrate": ("counts", "h2"),
    "canary": ("h3",),
    "rebalance": (),
    "upgrade": ("enrich",),
    "repartition": ("counts", "6"),
    "shift": ("night",),
    "pause": (),
    "resume": (),
    "burst": ("enrich", "2"),
    "leave": (),
    "rolling-reboot": ("zone:onprem",),
    "upgrade-pipeline": ("--canary", "enrich"),
    "drain-to-empty": (),
    "game-day": ("kill-driver", "enrich"),
    "start": ("counts",),
    "stop": ("counts",),
}


@pytest.fixture
def world(monkeypatch):
    """A pipeline whose clock runs while a command waits."""
    running = World()
    running.want()
    running.channel.put(paths.SCALER, ScalerRecord(busy={"entry": 0.4, "enrich": 0.5}))
    running.settle()
    for module in (
        "cli.carry_out",
        "cli.abort",
        "cli.burst",
        "cli.rolling",
        "cli.upgrade_pipeline",
        "cli.drain_to_empty",
        "operations.connect",
        "operations.snapshot",
    ):
        monkeypatch.setattr(f"sluice_ops.{module}.open_channel", lambda: nullcontext(running.channel))
    clock = SimpleNamespace(
        sleep=lambda _seconds: running.tick(), time=running.clock, monotonic=running.clock
    )
    monkeypatch.setattr(requests, "time", clock)
    for module in ("carry_out", "rolling", "upgrade_pipeline", "drain_to_empty"):
        monkeypatch.setattr(f"sluice_ops.cli.{module}.ended_as_by_ctrl_c", lambda: None)
    monkeypatch.setattr("sluice_ops.cli.drain_to_empty.measure", Measured)
    monkeypatch.setattr("sluice_ops.cli.burst.the_site", lambda: SimpleNamespace(ec2=Ec2Config()))
    monkeypatch.setattr("sluice_ops.cli.burst.check_launch", lambda *_: [])
    return running


def nodes_of(world):
    """Return every node except the operations, which the controller answers."""
    nodes = world.channel.nodes.items()
    return {
        path: (data, version) for path, (data, version, _) in nodes if not path.startswith("/operations/")
    }


def dry_run(world, *words):
    """Run the command as a dry run, and check that the channel is unchanged."""
    before = nodes_of(world)
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert nodes_of(world) == before
    return done


def test_every_command_with_a_dry_run_is_tested():
    commands = get_command(app).commands.items()
    with_dry_run = {
        name for name, command in commands if any(parameter.name == "dry_run" for parameter in command.params)
    }
    assert with_dry_run == CHANGES.keys() | OWN_PROCESSES | {"abort", "reap"}


@pytest.mark.parametrize("command", CHANGES)
def test_a_dry_run_changes_nothing(world, monkeypatch, command):
    launched = []
    note = lambda *words: launched.append(words)
    cloud = SimpleNamespace(instances=list, launch=note, terminate=note)
    monkeypatch.setattr(ec2, "the_cloud", lambda: cloud)
    for release in ("r1-aaaaaaaa", "r2-bbbbbbbb"):
        world.publish(release)
    world.settle()
    before = nodes_of(world)
    done = dry_run(world, command, *CHANGES[command])
    assert done.exit_code == OK, done.output
    for _ in range(20):
        world.tick()
    assert nodes_of(world) == before, "nothing changes later either"
    assert launched == []


def test_dry_runs_of_start_and_stop_show_places_and_times(world):
    host = world.placement("counts").driver
    output = dry_run(world, "stop", "counts").stdout
    units = f"its driver on {host}, its workers on {host}"
    assert f"  note: counts ends after its last commit: {units}\n" in output
    assert (
        "  note: then counts writes nothing until it is started again; its input waits in the streams\n"
        in output
    )
    assert "  not predicted: how long it takes, because no stop has been timed here yet\n" in output
    world.want("counts", running=False)
    world.settle()
    output = dry_run(world, "start", "counts").stdout
    assert f"  1. counts: nowhere → driver {host}, workers {host}\n" in output
    took = world.incarnation("counts", 1).start.seconds
    assert f"  predicted: about {took:.0f} s in all, without a gap\n" in output
    (step,) = json.loads(dry_run(world, "start", "counts", "--json").stdout)["steps"]
    assert step["details"]["plan"]["moves"][0]["after"]["driver"] == host
    assert dry_run(world, "stop", "nobody").exit_code == WRONG_USAGE


def test_a_start_of_a_tier_that_runs_requests_nothing(world):
    status = ControllerStatus(leader="c1", epoch=1, at=1.0, sentence="", tiers=world.statuses)
    world.channel.put(paths.CONTROLLER_STATUS, status)
    before = nodes_of(world)
    output = CliRunner().invoke(app, ["start", "counts"]).stdout
    assert output == "counts runs already; nothing was requested.\n"
    assert json.loads(CliRunner().invoke(app, ["start", "counts", "--json"]).stdout)["running"]
    assert nodes_of(world) == before
    world.want("counts", running=False)
    world.settle()
    assert "counts: start requested." in CliRunner().invoke(app, ["start", "counts"]).stdout


def test_a_dry_run_says_once_what_a_change_would_do(world):
    output = dry_run(world, "drain", world.placement("counts").driver).output
    assert output.count("would do: ") == 1


def test_a_dry_run_shows_where_a_single_worker_would_move(world):
    before = world.placement("enrich")
    to = next(name for name in sorted(world.agents) if name not in before.slots)
    slot = slot_ids("enrich", world.owner("enrich").owner, 2)[1]
    output = dry_run(world, "migrate", "enrich", to, "--worker", slot).stdout
    driver, (first, second) = before.driver, before.slots
    assert (
        f"  1. enrich: driver {driver}, workers {first}, {second} → driver {driver}, workers {first}, {to}\n"
    ) in output


def test_a_dry_run_of_a_start_without_room_shows_the_wait(world):
    world.want("counts", running=False)
    world.settle()
    for agent in world.agents.values():
        world.channel.put(
            paths.host(agent.host.name),
            HostFacts(name=agent.host.name, address="127.0.0.1", zone="onprem", cpu=1, memory=1),
        )
    output = dry_run(world, "start", "counts").stdout
    assert "note: counts would wait: " in output
    assert output.endswith("  not predicted: how long the tier waits for room\n")


def test_a_dry_run_of_a_burst_shows_places_and_predicted_time(world, monkeypatch):
    monkeypatch.setattr(ec2, "the_cloud", lambda: SimpleNamespace(instances=list))
    output = dry_run(world, "burst", "enrich", "2").stdout
    assert output.startswith("would launch 1 x m5.large (0 of at most 3 run now)\n")
    assert (
        "enrich: gets 2 workers in place, on ec2-new-1, ec2-new-1\n  predicted: about 8 s in all, with a gap "
        "of about 0.6 s in a tier's output\n" in output
    )
    assert "  not predicted: the time until the agents of the new instances have registered\n" in output
    details = json.loads(dry_run(world, "burst", "enrich", "2", "--json").stdout)
    assert (details["ok"], details["instances"]) == (True, 1)
    assert details["steps"][0]["details"]["plan"]["predicted_seconds"] == 8


def test_a_dry_run_of_a_write_off_names_the_tiers_units_on_the_host(world):
    name = world.placement("enrich").driver
    world.agents[name].die()
    world.tick()
    assert (
        "note: enrich has its driver and 1 worker on a host that is written off\n"
        in dry_run(world, "write-off", name).stdout
    )


def test_a_dry_run_of_an_abort_shows_whether_each_tier_rolls_back(world):
    assert dry_run(world, "abort").exit_code == WRONG_USAGE, "no change is in progress"
    runbook = world.begin("d1", kind="drain", host=world.placement("entry").driver)
    world.until(lambda: world.next_driver("entry") is not None)
    output = dry_run(world, "abort").stdout
    assert "entry: incarnation 2 is dropped, incarnation 1 goes on" in output
    assert f"; {runbook.spec.host} may be used again\n" in output
    assert output.endswith(
        "\n  it would release the maintenance lock\n  time not predicted: "
        "no abort was measured on this platform yet\n"
    )
    world.until(lambda: world.owner("entry").owner == 2)
    assert "entry: was handed over to incarnation 2, which goes on" in dry_run(world, "abort").stdout
    world.until(lambda: runbook.ended)
    assert (
        dry_run(world, "abort", "d1").stdout
        == "an abort of d1 would undo: nothing: the change has ended (done)\n"
    )


@pytest.mark.parametrize("number", ["5000", "9" * 400])
def test_too_many_partitions_are_refused_with_the_next_step(world, number):
    refused = dry_run(world, "repartition", "counts", number)
    assert refused.exit_code == FAILED
    assert "ask for 64 partitions or fewer, or first add workers: `sluice scale counts K`" in refused.stderr


def test_a_dry_run_of_an_abort_shows_the_rollback_of_a_repartition(world):
    world.begin("r1", kind="repartition", tier="counts", partitions=6)
    world.until(lambda: world.owner("counts").owner == 2)
    output = json.loads(dry_run(world, "abort", "--json").stdout)
    assert output["undoes"] == [
        "counts: was handed over to incarnation 2, and rolls back to 2 state partitions: a gap of about 0.5 s"
    ]
    assert output["predicted_seconds"] == Pace().seconds(1, 1)
    assert "without a gap" not in dry_run(world, "abort").stdout


def test_a_dry_run_of_an_abort_predicts_from_earlier_aborts(world):
    for change in ("d1", "d2"):
        runbook = world.begin(change, kind="drain", host=world.placement("entry").driver)
        world.until(lambda: world.next_driver("entry") is not None)
        output = json.loads(dry_run(world, "abort", "--json").stdout)
        runbook.abort()
        world.settle()
    assert (
        output["predicted_seconds"]
        == world.channel.read(paths.change("d1"), ChangeRecord).value.took[Step.ABORT]
    )
    assert json.loads(dry_run(world, "abort", "d1", "--json").stdout) == {
        "dry_run": True,
        "change": "d1",
        "undoes": [],
        "predicted_seconds": 0.0,
    }


def test_a_dry_run_of_an_abort_of_a_pause_names_the_resumed_units(world):
    runbook = world.begin("p1", kind="pause", tier="enrich")
    world.driver("enrich").stuck = True
    world.until(lambda: world.owner("enrich").paused)
    assert "an abort of p1 would undo: enrich: resumes\n" in dry_run(world, "abort").stdout
    world.driver("enrich").stuck = False
    runbook.abort()
    world.settle()
    (worker, _) = slot_ids("enrich", 1, 2)
    world.begin("p2", kind="pause", workers=(worker,))
    world.driver("enrich").stuck = True
    world.until(lambda: world.owner("enrich").paused_workers)
    assert f"an abort of p2 would undo: enrich: {worker} resumes\n" in dry_run(world, "abort").stdout


@pytest.mark.usefixtures("world")
def test_a_change_right_after_its_dry_run_is_carried_out():
    for words, dry in ((["--dry-run"], True), ([], False)):
        done = CliRunner().invoke(app, ["drain", "h1", *words, "--json"])
        assert (done.exit_code, json.loads(done.stdout)["dry_run"]) == (OK, dry), done.output
