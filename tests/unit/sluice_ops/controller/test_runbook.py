"""Requests of the CLI and the DAGs to the controller, with the channel in memory and a simulated
pipeline.
"""

from types import SimpleNamespace

import pytest
from simulation.memory import MemoryChannel
from simulation.world import World

from sluice_ops.channel import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeSpec, Step
from sluice_ops.operations import requests


class Away(MemoryChannel):
    """A channel that is away for the first reads."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def read(self, path, model, **_watch):
        if self.times:
            self.times -= 1
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)
        return super().read(path, model)


@pytest.fixture
def world(monkeypatch):
    """A pipeline whose clock runs while a caller of the runbook sleeps."""
    simulated = World()
    simulated.bring_up()
    clock = SimpleNamespace(
        sleep=lambda _seconds: simulated.tick(), time=simulated.clock, monotonic=simulated.clock
    )
    monkeypatch.setattr(
        requests, "time", clock
    )  # replaces the module's name only, because other threads use the functions
    return simulated


def test_a_change_records_its_full_deadline(world):
    requests.run(world.channel, "d1", ChangeSpec(kind="cordon", host="h1"), by="cli:anna", deadline=90.0)
    deadline = world.channel.read(paths.change("d1"), ChangeRecord).value.deadline_seconds
    assert 85.0 < deadline <= 90.0


def test_a_change_is_carried_out_and_reported_step_by_step(world):
    reported = []
    host = world.placement("counts").driver
    done = requests.run(
        world.channel,
        "d1",
        ChangeSpec(kind="drain", host=host),
        by="cli:anna",
        on_sentence=lambda step, sentence: reported.append((step, sentence)),
    )
    assert [step for step, result in done if result.ok] == [
        "preflight",
        "cordon",
        "prepare",
        "cut",
        "verify",
        "release",
    ]
    assert (Step.CORDON, f"{host} is cordoned: nothing new is placed on it") in reported
    assert (Step.CUT, "counts: incarnation 2 owns the tier, incarnation 1 stops") in reported
    again = requests.run(world.channel, "d1", ChangeSpec(kind="drain", host=host), by="cli:anna")
    assert [result for _, result in again] == [result for _, result in done], (
        "posting a change twice has the effect of once"
    )


def test_a_step_that_fails_is_followed_by_an_abort(world):
    done = requests.run(
        world.channel, "m1", ChangeSpec(kind="migrate", tier="counts", to="h1"), by="t", deadline=2.0
    )
    if done[-1].result.ok and done[-1].step is Step.RELEASE:
        done = requests.run(
            world.channel,
            "m2",
            ChangeSpec(kind="migrate", tier="counts", to="h2"),
            by="t",
            deadline=2.0,
        )
    assert done[-1].step is Step.ABORT
    assert done[-1].result.ok
    assert "did not end within" in done[-2].result.sentence


def test_a_refused_preflight_needs_no_abort(world):
    done = requests.run(world.channel, "m1", ChangeSpec(kind="drain", host="h9"), by="t")
    assert [(step, result.ok) for step, result in done] == [(Step.PREFLIGHT, False)]


def test_a_change_that_has_not_begun_can_be_cancelled(world, monkeypatch):
    clock = [0.0]
    alone = SimpleNamespace(
        sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds),
        time=world.clock,
        monotonic=lambda: clock[0],
    )
    monkeypatch.setattr(requests, "time", alone)  # no controller makes a pass meanwhile
    done = requests.run(world.channel, "d1", ChangeSpec(kind="drain", host="h1"), by="cli:anna", deadline=5.0)
    assert [(step, result.ok) for step, result in done] == [(Step.PREFLIGHT, False)]
    assert "d1.preflight has no result after" in done[0].result.sentence
    for _ in range(3):
        world.tick()
    assert not world.channel.exists(paths.LOCK)
    assert (
        requests.read_result(world.channel, "d1.abort").sentence
        == "nothing to undo: change d1 never began, and cannot begin now"
    )


def test_waiting_outlasts_an_absent_channel_and_ends_with_the_result(monkeypatch):
    clock = [0.0]
    passing = SimpleNamespace(
        sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds), monotonic=lambda: clock[0]
    )
    monkeypatch.setattr(requests, "time", passing)
    with pytest.raises(
        requests.NoAnswerError,
        match=r"x.cut has no result after 2 s; its journal is empty; is a controller running\?",
    ):
        requests.wait(Away(3), "x.cut", 2.0)
    with pytest.raises(requests.NoAnswerError, match="ZooKeeper is away"):
        requests.wait(Away(10_000), "x.cut", 2.0)


def test_a_tiers_request_is_changed_field_by_field():
    channel = MemoryChannel()
    requests.want(channel, "counts", by="anna", running=True)
    after = requests.want(channel, "counts", by="ben", paused=True)
    assert (after.running, after.paused, after.by) == (True, True, "ben")
    assert requests.want(channel, "counts", by="cid", running=True).by == "ben", (
        "the same request again changes nothing"
    )
    assert requests.want(channel, "counts", by="cid", again=True).attempt == 1


def test_ids_of_changes_accept_names_with_any_characters():
    assert (
        requests.change_id("drain_host", "manual__2026-11-21T10:00:00+00:00/x")
        == "drain_host-manual__2026-11-21T10:00:00+00:00_x"
    )
    assert requests.operation_id("a/b", Step.CUT) == "a_b.cut"
