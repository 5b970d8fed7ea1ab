"""The DAG `follow_change` shows the journal of a change, and ends as the change ends."""

import asyncio
import time
from contextlib import nullcontext

import pytest
from airflow.sdk.exceptions import TaskDeferred

from sluice_airflow.errors import StepFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.follow import FollowChangeOperator
from sluice_airflow.triggers import changes
from sluice_airflow.triggers.changes import ChangeTrigger
from sluice_ops.model import paths
from sluice_ops.model.change import (
    SCALER,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    JournalEntry,
    Plan,
    Result,
    Step,
)
from sluice_ops.operations.requests import operation_id
from tests.unit.sluice_airflow.memory import MemoryChannel, share_with_triggers

CHANGE = "scale-enrich-to-3-1"


def record(state):
    spec = ChangeSpec(kind="scale", tier="enrich", k=3)
    return ChangeRecord(id=CHANGE, spec=spec, plan=Plan(), state=state, by=SCALER, started_at=1.0)


@pytest.fixture
def channel(monkeypatch):
    channel = MemoryChannel()
    share_with_triggers(channel, monkeypatch, changes)
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    return channel


def end_of(trigger):
    async def first():
        return await anext(trigger.run())

    return asyncio.run(first()).payload


@pytest.mark.parametrize(("state", "ok"), [(ChangeState.DONE, True), (ChangeState.ABORTED, False)])
def test_the_run_ends_as_the_change_ends_and_shows_its_journal(channel, capsys, state, ok):
    cut = operation_id(CHANGE, Step.CUT)
    channel.put(paths.change(CHANGE), record(ChangeState.ACTIVE))
    channel.put(f"{paths.journal(cut)}/0", JournalEntry(at=1.0, sentence="enrich gets a slot on h2"))
    trigger = ChangeTrigger(CHANGE, time.time() + 30)
    assert trigger._look() is None
    channel.put(f"{paths.journal(cut)}/1", JournalEntry(at=2.0, sentence="the slot runs"))
    channel.put(paths.result(cut), Result(ok=ok, sentence="enrich has 3 workers", finished_at=3.0))
    channel.put(paths.change(CHANGE), record(state))
    before = capsys.readouterr().out
    event = end_of(trigger)
    assert event == {"ok": ok, "sentence": f"change {CHANGE} is {state}: enrich has 3 workers"}
    assert "cut: enrich gets a slot on h2" in before
    logged = capsys.readouterr().out
    assert "cut: the slot runs" in logged
    assert "gets a slot" not in logged, "each line once"
    operator = FollowChangeOperator(task_id="follow", change=CHANGE)
    if ok:
        assert operator.resume({}, event) == event
    else:
        with pytest.raises(StepFailedError, match="enrich has 3 workers"):
            operator.resume({}, event)


def test_a_change_without_an_end_within_the_time_fails_with_the_next_step(channel):
    channel.put(paths.change(CHANGE), record(ChangeState.ACTIVE))
    assert end_of(ChangeTrigger(CHANGE, time.time() + 0.05)) is None
    with pytest.raises(StepFailedError, match="sluice abort"):
        FollowChangeOperator(task_id="follow", change=CHANGE).resume({}, None)


def test_an_unknown_change_is_refused_with_the_next_step(channel):
    operator = FollowChangeOperator(task_id="follow", change=CHANGE, sluice_conn_id="shop")
    with pytest.raises(StepFailedError, match="`sluice changes`"):
        operator.execute({})
    channel.put(paths.change(CHANGE), record(ChangeState.ACTIVE))
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute({})
    assert (deferred.value.trigger.change, deferred.value.trigger.sluice_conn_id) == (CHANGE, "shop")
