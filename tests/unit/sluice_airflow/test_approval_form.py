"""The form in Airflow on a task whose change waits for another person, and its answer."""

import asyncio
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import TaskDeferred

from sluice_airflow.errors import StepFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import approval, base
from sluice_airflow.operators.changes import OPERATORS
from sluice_airflow.operators.fleet import DrainToEmptyOperator
from sluice_airflow.operators.steps import StepOperator
from sluice_airflow.triggers import operations
from sluice_airflow.triggers.operations import OperationTrigger
from sluice_ops.model import paths
from sluice_ops.model.approval import Answer
from sluice_ops.model.change import ChangeRecord, ChangeState, Operation, Result, Step
from sluice_ops.operations.requests import operation_id
from tests.unit.sluice_airflow.memory import MemoryChannel, share_with_triggers, waiting_pause

CHANGE = "pause_pipeline.r1"
PREFLIGHT = operation_id(CHANGE, Step.PREFLIGHT)


class Site:
    """A run of pause_pipeline by anna, whose change waits, and the forms that it showed."""

    def __init__(self, monkeypatch):
        self.channel, self.forms, self.kwargs = MemoryChannel(), [], {}
        share_with_triggers(self.channel, monkeypatch, operations)
        monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(self.channel))
        monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
        monkeypatch.setattr(approval, "upsert_hitl_detail", lambda **form: self.forms.append(form))
        self.operator = StepOperator(
            task_id="preflight", step=Step.PREFLIGHT, change={"kind": "pause"}, sluice_conn_id="shop"
        )
        self.context = {
            "ti": SimpleNamespace(id="t1"),
            "dag": SimpleNamespace(dag_id="pause_pipeline"),
            "run_id": "r1",
            "dag_run": SimpleNamespace(start_date=datetime.now(UTC), triggering_user_name="anna"),
            "params": {"deadline": 100.0, "dry_run": False},
        }

    def waits(self, approved_by="", change=CHANGE):
        self.channel.put(paths.change(change), waiting_pause(change, approved_by))

    def deferred(self, event=None):
        step = self.operator.execute if event is None else self.operator.resume
        with pytest.raises(TaskDeferred) as deferred:
            step(self.context, *([] if event is None else [event]), **self.kwargs)
        self.kwargs = deferred.value.kwargs or {}
        return deferred.value.trigger

    def whole_change(self):
        """Have one task carry out the whole pause; return the id of its change."""
        self.operator = OPERATORS["SluicePausePipelineOperator"](task_id="pause", sluice_conn_id="shop")
        self.context["ti"] = SimpleNamespace(
            id="t1", dag_id="own", run_id="r1", task_id="pause", map_index=-1
        )
        self.deferred()
        (posted,) = self.channel.of(Operation)
        return posted.change

    def answers(self, by, option, why=None):
        user = None if by is None else {"id": by, "name": by}
        return {"chosen_options": [option], "params_input": {"why": why}, "responded_by_user": user}


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


def first(trigger, seconds=2.0):
    async def event():
        return await asyncio.wait_for(anext(trigger.run()), seconds)

    return asyncio.run(event()).payload


def test_a_task_whose_change_waits_shows_the_plan_and_the_reason(site):
    trigger = site.deferred()
    assert (trigger.asks, site.forms) == (True, [])
    site.waits()
    assert first(trigger) == {"operation": PREFLIGHT, "waits": True}
    waiting = site.deferred({"operation": PREFLIGHT, "waits": True})
    assert waiting.asks is False
    (form,) = site.forms
    assert (form["ti_id"], form["options"]) == ("t1", ["Approve", "Reject"])
    assert form["subject"] == "pause waits for the approval of another person"
    assert "Asked by anna, because a pause of every tier always" in form["body"]
    assert "The plan: every tier writes nothing." in form["body"]
    assert form["params"]["why"]["schema"]["type"] == ["null", "string"], "an approval needs no reason"


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_an_answer_in_airflow_is_the_answer_on_the_channel(site, monkeypatch, option):
    written = []
    monkeypatch.setattr(site.channel, "multi", written.extend, raising=False)
    site.deferred()
    site.waits()
    site.deferred(site.answers("ben", option, "the report runs"))
    (answer,) = [each.value for each in written if isinstance(getattr(each, "value", None), Answer)]
    assert (answer.by, answer.approved, answer.why) == ("airflow:ben", option == "Approve", "the report runs")


def test_the_person_who_triggered_the_run_cannot_approve_it(site, capsys):
    site.deferred()
    site.waits()
    site.deferred(site.answers("anna", "Approve"))
    assert "The answer of anna does not count" in capsys.readouterr().out
    assert len(site.forms) == 1, "the form is open again for another person"


def test_an_approved_change_that_waits_for_the_lock_shows_no_form(site):
    site.deferred()
    site.waits(approved_by="airflow:ben")
    site.channel.put(paths.approval(CHANGE), Answer(approved=True, by="airflow:ben", at=1.0))
    trigger = site.deferred({"operation": PREFLIGHT, "waits": True})
    assert (trigger.asks, site.forms) == (False, [])


def test_a_trigger_waits_past_the_deadline_while_the_change_waits(site):
    site.deferred()
    site.waits()
    trigger = OperationTrigger(PREFLIGHT, time.time() - 1)
    with suppress(TimeoutError):
        assert not first(trigger, 0.5), "the trigger has ended"
    (posted,) = site.channel.of(Operation)
    site.channel.put(paths.result(posted.id), Result(ok=False, sentence="ben refused it", finished_at=1.0))
    event = first(trigger)
    assert event["result"]["sentence"] == "ben refused it"
    with pytest.raises(StepFailedError, match="preflight failed: ben refused it"):
        site.operator.resume(site.context, event)


def test_a_task_of_a_whole_change_shows_the_form_and_hears_the_answer(site, monkeypatch):
    change = site.whole_change()
    site.waits(change=change)
    waiting = site.deferred({"operation": operation_id(change, Step.PREFLIGHT), "waits": True})
    assert (waiting.asks, waiting.alone, site.kwargs, len(site.forms)) == (
        False,
        True,
        {"form_of": change},
        1,
    )
    written = []
    monkeypatch.setattr(site.channel, "multi", written.extend, raising=False)
    site.deferred(site.answers("ben", "Reject", "the report runs"))
    (answer,) = [each for each in written if isinstance(getattr(each, "value", None), Answer)]
    assert (answer.path, answer.value.approved) == (paths.approval(change), False)


@pytest.mark.parametrize("form_of", [None, CHANGE])
def test_an_answer_goes_only_to_the_change_whose_form_is_shown(site, monkeypatch, capsys, form_of):
    written, went_on = [], []
    monkeypatch.setattr(site.channel, "multi", written.extend, raising=False)
    operator = DrainToEmptyOperator(task_id="drain")
    monkeypatch.setattr(operator, "_go_through", lambda *_: went_on.append(1) or {})
    site.waits()
    operator.resume(site.context, site.answers("ben", "Approve"), form_of=form_of)
    assert went_on == [1]
    assert bool(written) is (form_of is not None)
    assert ("its change was answered elsewhere" in capsys.readouterr().out) is (form_of is None)
    assert operator.resume(site.context, datetime.now(UTC)) == {}


@pytest.mark.parametrize(
    ("task", "run", "state", "aborts"),
    [
        ("scheduled", "running", ChangeState.WAITING, False),  # a person answered, or cleared the task
        ("failed", "running", ChangeState.WAITING, True),
        ("scheduled", "failed", ChangeState.ACTIVE, True),
        ("success", "success", ChangeState.DONE, False),  # the trigger ended late
    ],
)
def test_an_answer_ends_the_wait_of_a_task_but_not_its_change(site, monkeypatch, task, run, state, aborts):
    change = site.whole_change()
    site.waits(change=change)
    (record,) = site.channel.of(ChangeRecord)
    site.channel.put(paths.change(change), record.model_copy(update={"state": state}))
    trigger = site.deferred({"operation": operation_id(change, Step.PREFLIGHT), "waits": True})
    trigger.task_instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="pause", map_index=-1)
    states = {"get_task_states": {"r1": {"pause": task}}, "get_dagrun_state": run}
    for name, answer in states.items():
        monkeypatch.setattr(
            operations.RuntimeTaskInstance, name, staticmethod(lambda *_, answer=answer, **__: answer)
        )
    asyncio.run(trigger.on_kill())
    assert (Step.ABORT in {posted.step for posted in site.channel.of(Operation)}) is aborts
