"""`sluice changes`: the time of each change, start, stop and abort, beside its predicted time."""

import json
from contextlib import nullcontext

import pytest
from simulation.world import World
from typer.testing import CliRunner

from sluice_ops.main import app


@pytest.fixture
def world(monkeypatch):
    running = World()
    running.bring_up()
    monkeypatch.setattr("sluice_ops.operations.snapshot.open_channel", lambda: nullcontext(running.channel))
    return running


def lines():
    return {line["id"]: line for line in json.loads(CliRunner().invoke(app, ["changes", "--json"]).stdout)}


def test_starts_and_stops_are_listed_with_their_predictions(world):
    assert {line["what"] for line in lines().values()} == {
        "start entry",
        "start enrich",
        "start counts",
        "start outbound",
    }
    world.want("counts", running=False, by="cli:anna")
    world.settle()
    world.want("counts", by="cli:otto")
    world.until(lambda: world.owner("counts").owner == 2)
    assert (lines()["start-counts-2"]["state"], lines()["start-counts-2"]["seconds"]) == ("active", None)
    world.settle()
    stop, start = lines()["stop-counts-1"], lines()["start-counts-2"]
    assert (stop["by"], stop["state"], stop["predicted_seconds"], stop["seconds"] > 0) == (
        "cli:anna",
        "done",
        None,
        True,
    )
    assert (start["by"], start["state"], start["predicted_seconds"]) == (
        "cli:otto",
        "done",
        lines()["start-counts-1"]["seconds"],
    )
    assert (start["predicted_gap_seconds"], start["gap_seconds"]) == (None, None)
    assert [*lines()][-2:] == ["stop-counts-1", "start-counts-2"], "the newest comes last"


def test_a_start_that_never_ended_is_listed_as_aborted(world):
    world.want("counts", running=False)
    world.settle()
    world.logs["counts"].hangs = True
    world.want("counts")
    world.until(lambda: world.owner("counts").owner == 2)
    world.want("counts", running=False)
    world.until(lambda: world.owner("counts").stopped)
    world.tick(100.0)
    world.tick()
    assert (lines()["start-counts-2"]["state"], lines()["start-counts-2"]["seconds"]) == ("aborted", None)


def test_an_abort_is_listed_with_its_time_and_its_prediction(world):
    for change in ("d1", "d2"):
        runbook = world.begin(change, kind="drain", host=world.placement("entry").driver)
        world.until(lambda: world.next_driver("entry") is not None)
        runbook.abort()
        world.settle()
    took = lines()["d1"]["steps"]["abort"]
    assert (lines()["d1"]["abort_predicted_seconds"], lines()["d2"]["abort_predicted_seconds"]) == (
        None,
        took,
    )
    output = CliRunner().invoke(app, ["changes", "--last", "1"]).stdout
    assert f"aborted in {took:.0f} s, predicted {took:.0f} s" in output


def test_a_kind_without_earlier_times_has_no_prediction(world):
    for change, host in (("c1", "h1"), ("c2", "h2")):
        world.begin(change, kind="cordon", host=host)
        world.settle()
    assert lines()["c1"]["predicted_seconds"] is None
    assert lines()["c2"]["predicted_seconds"] is not None
