"""The log of a change's last task says where the seconds went, wherever the task ends."""

import asyncio
import re
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import TaskDeferred

from sluice_airflow.errors import StepFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import base
from sluice_airflow.operators.changes import OPERATORS
from sluice_airflow.operators.steps import AbortOperator, StepOperator
from sluice_airflow.run_seconds import seconds_of_changes
from sluice_airflow.triggers import operations
from sluice_airflow.triggers.operations import StepTrigger
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Operation, Plan, Result, Step
from sluice_ops.operations.requests import change_id, operation_id
from sluice_ops.planning.changes.kinds import KINDS
from tests.unit.sluice_airflow.memory import MemoryChannel, share_with_triggers

DRAIN = KINDS["drain"].steps
SPEC = ChangeSpec(kind="drain", host="h1")
SAYS = re.compile(
    r"The run took 40\.\d s: preflight 4\.0 s, cordon 4\.0 s, prepare 4\.0 s, cut 4\.0 s, verify 4\.0 s, "
    r"release 4\.0 s; between the steps, in Airflow, 16\.\d s"
)
RUN = "drain_host.r1"
"""The change of the runbook's run."""
OWN = "drain_host.r1.drain.1"
"""The change of a task in a DAG of one's own."""


@pytest.fixture
def channel(monkeypatch):
    channel = MemoryChannel()
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
    share_with_triggers(channel, monkeypatch, operations)
    return channel


def carried_out(channel, change, *, but=()):
    """Let each step of a drain take four seconds; return the result of one."""
    done = Result(ok=True, sentence="done", finished_at=0.0)
    for step in DRAIN:
        identity = operation_id(change, step)
        posted = Operation(
            id=identity, change=change_id(change), step=step, spec=SPEC, by="test", posted_at=time.time() - 40
        )
        if step not in but:
            channel.put(paths.operation(identity), posted)
            channel.put(paths.result(identity), done)
    record = ChangeRecord(
        id=change_id(change),
        spec=SPEC,
        plan=Plan(),
        state=ChangeState.DONE,
        by="test",
        started_at=0.0,
        took=dict.fromkeys(DRAIN, 4.0),
    )
    channel.put(paths.change(change), record)
    return done


@pytest.fixture
def context():
    task = SimpleNamespace(dag_id="drain_host", run_id="r1", task_id="drain", map_index=-1)
    began = datetime.fromtimestamp(time.time() - 40, UTC)
    return {
        "ti": task,
        "dag": SimpleNamespace(dag_id=task.dag_id),
        "run_id": task.run_id,
        "dag_run": SimpleNamespace(start_date=began, triggering_user_name="anna"),
        "params": {"deadline": 100.0, "dry_run": False},
    }


def aborted(channel, change):
    """Let the second step of a drain fail, and its abort take two seconds."""
    identity_of_change = change_id(change)
    for step, ok in ((Step.PREFLIGHT, True), (Step.CORDON, False), (Step.ABORT, True)):
        identity = operation_id(change, step)
        posted = Operation(
            id=identity,
            change=identity_of_change,
            step=step,
            spec=SPEC,
            by="test",
            posted_at=time.time() - 40,
        )
        channel.put(paths.operation(identity), posted)
        channel.put(paths.result(identity), Result(ok=ok, sentence="no room", finished_at=0.0))
    took = {Step.PREFLIGHT: 4.0, Step.CORDON: 5.0, Step.ABORT: 2.0}
    record = ChangeRecord(
        id=identity_of_change,
        spec=SPEC,
        plan=Plan(),
        state=ChangeState.ABORTED,
        by="test",
        started_at=0.0,
        took=took,
    )
    channel.put(paths.change(change), record)


def last_task(step=Step.RELEASE):
    return StepOperator(task_id=str(step), step=step, change={"kind": "drain", "host": "h1"})


def test_a_last_step_that_ends_in_the_worker_says_it(channel, context, capsys):
    carried_out(channel, RUN)
    last_task(Step.VERIFY).execute(context)
    assert "The run took" not in capsys.readouterr().out, "more steps follow"
    last_task().execute(context)
    assert len(SAYS.findall(capsys.readouterr().out)) == 1


def test_a_last_step_that_ends_in_the_triggerer_says_it(channel, context, capsys):
    done = carried_out(channel, RUN, but=(Step.RELEASE,))
    task = context["ti"]
    task.get_template_context = lambda: context
    trigger = StepTrigger(Step.RELEASE, Step.PREFLIGHT)
    trigger.task_instance = task
    release = operation_id(RUN, Step.RELEASE)
    channel.on_create(paths.operation(release), paths.result(release), done)

    asyncio.run(anext(trigger.run()))
    assert len(SAYS.findall(capsys.readouterr().out)) == 1


def test_a_last_step_that_began_in_a_worker_says_it_too(channel, context, capsys):
    done = carried_out(channel, RUN, but=(Step.RELEASE,))
    with pytest.raises(TaskDeferred) as deferred:
        last_task().execute(context)
    trigger = deferred.value.trigger
    path, arguments = trigger.serialize()
    assert arguments["began"] == context["dag_run"].start_date.timestamp()
    copy = type(trigger)(**arguments)
    assert path.endswith(type(copy).__name__)
    channel.put(paths.result(copy.operation), done)

    asyncio.run(anext(copy.run()))
    assert len(SAYS.findall(capsys.readouterr().out)) == 1


def test_a_task_that_carries_out_a_whole_change_says_it(channel, context, capsys):
    carried_out(channel, OWN)
    OPERATORS["SluiceDrainHostOperator"](task_id="drain", host="h1").execute(context)
    assert len(SAYS.findall(capsys.readouterr().out)) == 1


ABORTED = re.compile(
    r"The run took 40\.\d s: preflight 4\.0 s, cordon 5\.0 s, abort 2\.0 s; "
    r"between the steps, in Airflow, 29\.\d s"
)


def test_the_abort_of_a_failed_run_says_it(channel, context, capsys):
    aborted(channel, RUN)
    with pytest.raises(StepFailedError):
        last_task(Step.CORDON).execute(context)
    assert "The run took" not in capsys.readouterr().out, "the abort follows"
    AbortOperator(task_id="abort", change={"kind": "drain", "host": "h1"}).execute(context)
    assert len(ABORTED.findall(capsys.readouterr().out)) == 1


def test_a_task_whose_whole_change_fails_says_it(channel, context, capsys):
    aborted(channel, OWN)
    task = OPERATORS["SluiceDrainHostOperator"](task_id="drain", host="h1")
    with pytest.raises(StepFailedError):
        task._go_on(channel, context, change_id(OWN), SPEC)
    assert len(ABORTED.findall(capsys.readouterr().out)) == 1


def test_a_run_of_several_changes_sums_their_steps(channel):
    for name, by in (("a", "airflow:roll/r1"), ("b", "airflow:roll/r1"), ("c", "cli:anna")):
        carried_out(channel, name)
        record = channel.read(paths.change(name), ChangeRecord).value
        channel.put(paths.change(name), record.model_copy(update={"by": by}))
    assert seconds_of_changes(channel, "airflow:roll/r1", 100.0, 160.0) == (
        "The run of 2 changes took 60.0 s: preflight 8.0 s, cordon 8.0 s, prepare 8.0 s, cut 8.0 s, "
        "verify 8.0 s, release 8.0 s; between the steps, in Airflow and in waits, 12.0 s"
    )
    assert seconds_of_changes(channel, "airflow:roll/r2", 100.0, 160.0) is None
