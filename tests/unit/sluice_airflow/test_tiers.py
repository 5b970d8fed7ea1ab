"""How the task that supervises a tier handles the events of its trigger."""

from contextlib import nullcontext

import pytest
from airflow.sdk.exceptions import TaskDeferred

from sluice_airflow.assets import stream, table
from sluice_airflow.errors import TierFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import tiers
from sluice_airflow.operators.tiers import (
    BEHIND,
    LOSS,
    REPORTED,
    LaunchTierOperator,
    SuperviseTierOperator,
)
from sluice_airflow.triggers.tier_watch import TierEvent
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, State, TierWanted
from sluice_ops.model.status import ControllerStatus, TierState, TierStatus
from tests.unit.sluice_airflow.memory import MemoryChannel


class Store(dict):
    """The task state that Airflow keeps between tries."""

    def set(self, key, value, **_retention):
        self[key] = value


@pytest.fixture
def supervise():
    return SuperviseTierOperator(task_id="supervise", tier="entry")


def event(kind, **fields):
    return TierEvent(**({"kind": kind, "incarnation": 3, "loss": 0} | fields)).model_dump(mode="json")


def test_a_loss_fails_the_task_once_with_the_next_step(supervise):
    store = Store()
    with pytest.raises(
        TierFailedError,
        match=r"the tier runs on: 2 records are nowhere. .*settle this loss: `sluice audit --settle 4`",
    ):
        supervise.resume({"task_state_store": store}, event("lost", loss=4, sentence="2 records are nowhere"))
    assert store == {LOSS: 4}


def test_a_lagging_tier_fails_the_task_once(supervise):
    store = Store()
    with pytest.raises(
        TierFailedError,
        match=r"the tier cannot keep up, and runs on: counts is behind. `sluice status` shows which intake",
    ):
        supervise.resume(
            {"task_state_store": store}, event("behind", behind=1000.5, sentence="counts is behind")
        )
    assert store == {BEHIND: 1001}


def test_a_failed_driver_fails_the_task_with_its_error(supervise):
    store = Store()
    with pytest.raises(TierFailedError, match="incarnation 3 failed: no such column"):
        supervise.resume(
            {"task_state_store": store},
            event("failed", sentence="incarnation 3 failed", error="no such column"),
        )
    assert store == {REPORTED: 3}


def test_a_tier_with_a_stop_request_ends_the_task(supervise):
    supervise.resume({"task_state_store": Store()}, event("unwanted", sentence="cli:anna wants it stopped"))


def test_after_a_week_the_task_continues_after_the_last_reports(supervise):
    with pytest.raises(TaskDeferred) as deferred:
        supervise.resume({"task_state_store": Store()}, event("again", loss=4))
    assert (deferred.value.trigger.reported, deferred.value.trigger.loss) == (3, 4)
    with pytest.raises(TaskDeferred) as deferred:
        supervise.resume({"task_state_store": Store()}, event("again", behind=7.5))
    assert deferred.value.trigger.behind == 7.5


@pytest.mark.parametrize("running", [True, False])
def test_a_given_up_tier_is_restarted_unless_a_stop_is_requested(supervise, monkeypatch, running):
    channel, started = MemoryChannel(), []
    channel.put(paths.wanted("entry"), TierWanted(running=running, by="cli:anna"))
    status = TierStatus(state=TierState.FAILED, sentence="is given up")
    channel.put(
        paths.CONTROLLER_STATUS,
        ControllerStatus(leader="c1", epoch=1, at=0, sentence="", tiers={"entry": status}),
    )
    channel.put(paths.report("entry", 5), IncarnationReport(state=State.FAILED, since=0, pid=1))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(tiers, "asked_by", lambda _context: "airflow:tier_entry/r1")
    monkeypatch.setattr(tiers.requests, "want", lambda _channel, tier, **_fields: started.append(tier))
    with pytest.raises(TaskDeferred):
        supervise.execute({"task_state_store": Store()})
    assert started == (["entry"] if running else [])


def test_a_launch_announces_streams_and_no_tables(monkeypatch):
    channel, assets = MemoryChannel(), [stream("hits"), table("sums")]
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(tiers, "asked_by", lambda _context: "airflow:tier_entry/r1")
    wanted = []
    monkeypatch.setattr(tiers.requests, "want", lambda _channel, tier, **_fields: wanted.append(tier))
    launch = LaunchTierOperator(task_id="launch", tier="entry", outlets=assets)
    assert launch.outlets == assets
    launch.execute({})
    assert wanted == ["entry"]
    assert launch.outlets == [stream("hits")], "an event on a table means complete hours"
