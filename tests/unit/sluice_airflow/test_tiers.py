"""What the supervising task does with what its trigger tells."""

from contextlib import nullcontext

import pytest
from airflow.sdk.exceptions import TaskDeferred

from sluice_airflow.errors import TierFailedError
from sluice_airflow.hooks.channel import ChannelHook
from sluice_airflow.operators import tiers
from sluice_airflow.operators.tiers import BEHIND, LOSS, REPORTED, SuperviseTierOperator
from sluice_airflow.triggers.tier_watch import TierEvent
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, State, TierWanted
from sluice_ops.model.status import ControllerStatus, TierState, TierStatus
from tests.unit.sluice_airflow.memory import MemoryChannel


class Store(dict):
    """What a task keeps between its tries."""

    def set(self, key, value, **_retention):
        self[key] = value


@pytest.fixture
def supervise():
    return SuperviseTierOperator(task_id="supervise", tier="entry")


def told(kind, **fields):
    return TierEvent(**({"kind": kind, "incarnation": 3, "loss": 0} | fields)).model_dump(mode="json")


def test_a_loss_fails_the_task_with_what_to_do_and_is_told_once(supervise):
    store = Store()
    with pytest.raises(
        TierFailedError,
        match=r"the tier runs on: 2 records are nowhere. .*settle this loss: `sluice audit --settle 4`",
    ):
        supervise.resume({"task_state_store": store}, told("lost", loss=4, sentence="2 records are nowhere"))
    assert store == {LOSS: 4}


def test_a_tier_that_cannot_keep_up_fails_the_task_and_is_told_once(supervise):
    store = Store()
    with pytest.raises(
        TierFailedError,
        match=r"the tier cannot keep up, and runs on: counts is behind. `sluice status` shows which intake",
    ):
        supervise.resume(
            {"task_state_store": store}, told("behind", behind=1000.5, sentence="counts is behind")
        )
    assert store == {BEHIND: 1001}


def test_a_failed_driver_fails_the_task_with_its_error(supervise):
    store = Store()
    with pytest.raises(TierFailedError, match="incarnation 3 failed: no such column"):
        supervise.resume(
            {"task_state_store": store},
            told("failed", sentence="incarnation 3 failed", error="no such column"),
        )
    assert store == {REPORTED: 3}


def test_a_tier_that_nobody_wants_ends_the_task(supervise):
    supervise.resume({"task_state_store": Store()}, told("unwanted", sentence="cli:anna wants it stopped"))


def test_after_a_week_it_watches_on_from_what_was_told(supervise):
    with pytest.raises(TaskDeferred) as deferred:
        supervise.resume({"task_state_store": Store()}, told("again", loss=4))
    assert (deferred.value.trigger.reported, deferred.value.trigger.loss) == (3, 4)
    with pytest.raises(TaskDeferred) as deferred:
        supervise.resume({"task_state_store": Store()}, told("again", behind=7.5))
    assert deferred.value.trigger.behind == 7.5


@pytest.mark.parametrize("running", [True, False])
def test_a_given_up_tier_is_started_again_unless_it_was_stopped_since(supervise, monkeypatch, running):
    channel, asked = MemoryChannel(), []
    channel.put(paths.wanted("entry"), TierWanted(running=running, by="cli:anna"))
    line = TierStatus(state=TierState.FAILED, sentence="is given up")
    channel.put(
        paths.CONTROLLER_STATUS,
        ControllerStatus(leader="c1", epoch=1, at=0, sentence="", tiers={"entry": line}),
    )
    channel.put(paths.report("entry", 5), IncarnationReport(state=State.FAILED, since=0, pid=1))
    monkeypatch.setattr(ChannelHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(tiers, "asked_by", lambda _context: "airflow:tier_entry/r1")
    monkeypatch.setattr(tiers.requests, "want", lambda _channel, tier, **_said: asked.append(tier))
    with pytest.raises(TaskDeferred):
        supervise.execute({"task_state_store": Store()})
    assert asked == (["entry"] if running else [])
