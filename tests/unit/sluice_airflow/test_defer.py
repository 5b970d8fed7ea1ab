"""Tasks that post an operation wait for its result in the triggerer, all in the same way."""

import time
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import DownstreamTasksSkipped, TaskDeferred

from sluice_airflow.dags.parts import step_tasks
from sluice_airflow.errors import NoResultError, StepFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import base
from sluice_airflow.operators.changes import OPERATORS
from sluice_airflow.operators.steps import AbortOperator, StepOperator
from sluice_ops.model import paths
from sluice_ops.model.approval import MOST_SECONDS
from sluice_ops.model.change import Operation, Result, Step
from sluice_ops.operations.requests import GRACE_SECONDS, operation_id
from tests.unit.sluice_airflow.memory import MemoryChannel

DEADLINE_SECONDS = 100.0


@pytest.fixture
def channel(monkeypatch):
    """A channel in which no controller answers."""
    channel = MemoryChannel()
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
    return channel


@pytest.fixture
def context():
    task = SimpleNamespace(dag_id="drain_host", run_id="r1", task_id="drain", map_index=-1)
    return {
        "ti": task,
        "dag": SimpleNamespace(dag_id=task.dag_id),
        "run_id": task.run_id,
        "dag_run": SimpleNamespace(start_date=datetime.now(UTC), triggering_user_name="anna"),
        "params": {"deadline": DEADLINE_SECONDS, "dry_run": False},
    }


def step():
    change = {"kind": "drain", "host": "h1"}
    return StepOperator(task_id="preflight", step=Step.PREFLIGHT, change=change, sluice_conn_id="shop")


def whole_change():
    drain = OPERATORS["SluiceDrainHostOperator"]
    return drain(task_id="drain", host="h1", deadline=DEADLINE_SECONDS, sluice_conn_id="shop")


@pytest.mark.parametrize("make", [step, whole_change])
def test_a_posted_step_is_waited_for_until_after_its_deadline(channel, context, make):
    with pytest.raises(TaskDeferred) as deferred:
        make().execute(context)
    waits, ((posted,),) = deferred.value, [channel.of(Operation)]
    assert (waits.method_name, waits.trigger.operation, waits.trigger.sluice_conn_id) == (
        "resume",
        posted.id,
        "shop",
    )
    end = time.time() + DEADLINE_SECONDS + GRACE_SECONDS
    assert waits.trigger.until == pytest.approx(end, abs=5)
    left = waits.trigger.until - time.time()
    assert waits.timeout == pytest.approx(left + base.TRIGGERER_SECONDS + MOST_SECONDS, abs=5)
    assert (posted.by, posted.person) == ("airflow:drain_host/r1", "anna")


def test_a_step_ends_in_the_triggerer_and_a_whole_change_goes_on(channel, context):
    del channel
    with pytest.raises(TaskDeferred) as deferred:
        step().execute(context)
    assert (deferred.value.trigger.finish, deferred.value.trigger.alone) == (True, False)
    with pytest.raises(TaskDeferred) as deferred:
        whole_change().execute(context)
    assert (deferred.value.trigger.finish, deferred.value.trigger.alone) == (False, True)


@pytest.mark.parametrize(
    ("ok", "posted"),
    [
        (True, [Step.PREFLIGHT, Step.CORDON, Step.PREPARE]),
        (False, [Step.PREFLIGHT, Step.CORDON]),
    ],
)
def test_the_first_step_posts_those_after_it_while_each_succeeds_at_once(channel, context, ok, posted):
    for name, success in ((Step.PREFLIGHT, True), (Step.CORDON, ok)):
        of_step = operation_id("drain_host.r1", name)
        result = Result(ok=success, sentence="said", finished_at=time.time())
        channel.on_create(paths.operation(of_step), paths.result(of_step), result)
    first, *_ = step_tasks("drain", host="h1")
    assert first.execute(context)["sentence"] == "said"
    assert [operation.step for operation in channel.of(Operation)] == posted


def test_a_dry_run_posts_no_further_step(channel, context):
    context["params"]["dry_run"] = True
    of_step = operation_id("drain_host.r1", Step.PREFLIGHT)
    plan = Result(ok=True, sentence="h1 would be drained", finished_at=time.time())
    channel.on_create(paths.operation(of_step), paths.result(of_step), plan)
    first, *_ = step_tasks("drain", host="h1")
    context["ti"].xcom_push = lambda *_: None
    with pytest.raises(DownstreamTasksSkipped):
        first.execute(context)
    assert [operation.step for operation in channel.of(Operation)] == [Step.PREFLIGHT]


def test_a_retry_waits_no_longer_than_the_try_that_posted(channel, context):
    with pytest.raises(TaskDeferred) as first:
        whole_change().execute(context)
    (posted,) = channel.of(Operation)
    earlier = posted.model_copy(update={"posted_at": posted.posted_at - 50})
    channel.put(paths.operation(posted.id), earlier)
    with pytest.raises(TaskDeferred) as second:
        whole_change().execute(context)
    assert second.value.trigger.until == pytest.approx(first.value.trigger.until - 50, abs=5)


def test_a_change_is_aborted_if_its_step_has_no_result_in_time(channel, context):
    with pytest.raises(TaskDeferred):
        whole_change().execute(context)
    (posted,) = channel.of(Operation)
    channel.put(paths.operation(posted.id), posted.model_copy(update={"posted_at": 0.0}))
    abort = f"{posted.change}.{Step.ABORT}"
    done = Result(ok=True, sentence="nothing to undo", finished_at=0.0)
    channel.on_create(paths.operation(abort), paths.result(abort), done)
    with pytest.raises(StepFailedError, match=r"step preflight has no result 30 s after its deadline. Check"):
        whole_change().execute(context)
    assert {operation.step for operation in channel.of(Operation)} == {Step.PREFLIGHT, Step.ABORT}


def test_a_step_without_a_result_fails_with_what_was_heard_last():
    event = {"operation": "drain.preflight", "result": None, "heard": "the journal is empty"}
    heard = r"after its deadline; the journal is empty. Check with"
    with pytest.raises(StepFailedError, match=heard):
        step().resume({}, event)
    abort = AbortOperator(task_id="abort", change={"kind": "drain", "host": "h1"})
    with pytest.raises(NoResultError, match=heard):
        abort.resume({}, event)
