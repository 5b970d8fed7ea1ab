"""Steps after the first one begin in the triggerer, with what the first one has in the channel."""

import asyncio
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.serialization.decoders import smart_decode_trigger_kwargs
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import TaskSuccessEvent

from sluice_airflow.dags.parts import step_tasks
from sluice_airflow.links import PageLink
from sluice_airflow.operators.steps import NextStepOperator
from sluice_airflow.triggers import operations
from sluice_airflow.triggers.operations import StepTrigger
from sluice_ops.channel import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.approval import WAITED
from sluice_ops.model.change import ChangeSpec, Operation, Result, Step
from sluice_ops.operations.requests import change_id, operation_id
from tests.unit.sluice_airflow.memory import MemoryChannel, share_with_triggers

RUN = "drain_host.r1"
CUT = operation_id(RUN, Step.CUT)
POSTED_SECONDS_AGO, DEADLINE_SECONDS = 40.0, 100.0


class AwayAtFirst(MemoryChannel):
    """A channel whose first `looks` fail."""

    looks = 0

    def read(self, path, model, *, watch=False):
        if self.looks:
            self.looks -= 1
            message = "ZooKeeper does not answer"
            raise ChannelAwayError(message)
        return super().read(path, model, watch=watch)


@pytest.fixture
def channel(monkeypatch):
    channel = AwayAtFirst()
    share_with_triggers(channel, monkeypatch, operations)
    return channel


@pytest.fixture
def first(channel):
    """The first step, which a worker has posted."""
    posted = Operation(
        id=operation_id(RUN, Step.PREFLIGHT),
        change=change_id(RUN),
        step=Step.PREFLIGHT,
        spec=ChangeSpec(kind="drain", host="h1"),
        by="airflow:drain_host/r1",
        person="anna",
        posted_at=time.time() - POSTED_SECONDS_AGO,
        deadline_seconds=DEADLINE_SECONDS,
    )
    channel.put(paths.operation(posted.id), posted)
    return posted


def done(sentence="done", *, ok=True, **details):
    return Result(ok=ok, sentence=sentence, details=details, finished_at=0.0)


def trigger(then=None):
    began = datetime.fromtimestamp(time.time() - POSTED_SECONDS_AGO, UTC)
    made = StepTrigger(Step.CUT, Step.PREFLIGHT, then)
    made.task_instance = SimpleNamespace(
        dag_id="drain_host",
        run_id="r1",
        task_id="cut_over",
        get_template_context=lambda: {"dag_run": SimpleNamespace(start_date=began)},
    )
    return made


def fired(then=None):
    return asyncio.run(anext(trigger(then).run()))


def test_a_step_is_posted_as_the_first_one_with_the_time_that_is_left(channel, first):
    channel.on_create(paths.operation(CUT), paths.result(CUT), done("all tiers are handed over", tiers=3))
    event = fired()
    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms["return_value"] == {"sentence": "all tiers are handed over", "tiers": 3}
    assert event.xcoms[PageLink().xcom_key].endswith("/plugin/sluice")
    posted = channel.read(paths.operation(CUT), Operation).value
    assert (posted.spec, posted.by, posted.person) == (first.spec, first.by, first.person)
    assert (posted.step, posted.change) == (Step.CUT, first.change)
    assert posted.deadline_seconds == pytest.approx(DEADLINE_SECONDS - POSTED_SECONDS_AGO, abs=5)


def test_the_time_that_an_approval_took_does_not_count(channel, first):
    channel.put(paths.result(first.id), done(**{WAITED: 1000.0}))
    channel.on_create(paths.operation(CUT), paths.result(CUT), done())
    fired()
    posted = channel.read(paths.operation(CUT), Operation).value
    assert posted.deadline_seconds == pytest.approx(DEADLINE_SECONDS - POSTED_SECONDS_AGO + 1000, abs=5)


@pytest.mark.usefixtures("first")
def test_another_triggerer_finds_the_step_that_was_posted(channel):
    channel.on_create(paths.operation(CUT), paths.result(CUT), done())
    fired()
    (earlier,) = [each for each in channel.of(Operation) if each.step is Step.CUT]
    assert isinstance(fired(), TaskSuccessEvent)
    assert [each for each in channel.of(Operation) if each.step is Step.CUT] == [earlier]


@pytest.mark.usefixtures("first")
def test_a_step_waits_for_zookeeper_and_is_posted_then(channel):
    channel.looks = 3
    channel.on_create(paths.operation(CUT), paths.result(CUT), done())
    assert isinstance(fired(), TaskSuccessEvent)


@pytest.mark.usefixtures("first")
def test_a_failed_step_goes_to_a_worker(channel):
    channel.on_create(paths.operation(CUT), paths.result(CUT), done("no room on h2", ok=False))
    assert fired().payload["result"]["sentence"] == "no room on h2"


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("ok", [True, False])
def test_a_success_posts_the_following_step_at_once_and_a_failure_does_not(channel, ok):
    channel.on_create(paths.operation(CUT), paths.result(CUT), done(ok=ok))
    fired(Step.VERIFY)
    assert (Step.VERIFY in {each.step for each in channel.of(Operation)}) is ok


@pytest.mark.usefixtures("first")
def test_a_step_that_could_not_be_posted_at_once_is_posted_by_its_own_task(channel, monkeypatch):
    channel.on_create(paths.operation(CUT), paths.result(CUT), done())
    posts = channel.create

    def away_for_verify(path, value):
        if value.step is Step.VERIFY:
            message = "ZooKeeper does not answer"
            raise ChannelAwayError(message)
        return posts(path, value)

    monkeypatch.setattr(channel, "create", away_for_verify)
    assert isinstance(fired(Step.VERIFY), TaskSuccessEvent)


@pytest.mark.usefixtures("channel")
def test_a_step_without_a_first_one_fails_with_the_reason():
    assert (
        fired().payload["result"]["sentence"]
        == "the channel no longer has the first step of the change: trigger the runbook again"
    )


def test_airflow_makes_each_next_steps_trigger_from_the_serialised_dag():
    with DAG("drain_host", schedule=None) as dag:
        tasks = step_tasks("drain", {"outlets": []}, host="h1")
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    starts = {task.task_id: read.get_task(task.task_id).start_from_trigger for task in tasks}
    assert starts == {task.task_id: isinstance(task, NextStepOperator) for task in tasks}
    assert not starts.pop("preflight")
    assert all(starts.values())
    started = read.get_task("cut_over").start_trigger_args
    assert started.trigger_cls == f"{StepTrigger.__module__}.{StepTrigger.__qualname__}"
    again = StepTrigger(**smart_decode_trigger_kwargs(started.trigger_kwargs))
    assert (again.step, again.first, again.then) == (Step.CUT, Step.PREFLIGHT, Step.VERIFY)
    assert again.finish
    ends = StepTrigger(
        **smart_decode_trigger_kwargs(read.get_task("release").start_trigger_args.trigger_kwargs)
    )
    assert ends.then is None
    assert read.get_task("cut_over").execution_timeout is None
