"""Triggers that post a step and wait for its result, or wait for an event of a tier, for new hosts,
or for a wish of the scaler.

A trigger starts from the beginning when the triggerer restarts. So its state is in its arguments
and in the control channel alone. `tier_watch` decides which event of a tier matters.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from math import inf
from typing import Any

from airflow.sdk import DagRunState, TaskInstanceState
from airflow.sdk.api.datamodels._generated import TaskInstance
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from sluice_airflow.forms import FOLLOW_CHANGE, dag_id
from sluice_airflow.hooks.sluice import shared_channel
from sluice_airflow.links import LINKS
from sluice_airflow.run_seconds import seconds_of_run
from sluice_airflow.triggers.tier_watch import TierEvent, TierWatch
from sluice_airflow.triggers.waiting import RECHECK_SECONDS, first_value, monotonic, rest
from sluice_ops.channel import Channel, ChannelAwayError, Read
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Operation, Result, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.operations import requests
from sluice_ops.operations.scaling import scaler_changes

_ENDED = {TaskInstanceState.FAILED, TaskInstanceState.SUCCESS, TaskInstanceState.SKIPPED}
"""The states that a person may give to a task that waits."""
_AFTER_KILL: set[asyncio.Task[None]] = set()
"""Tasks that outlive their killed trigger: asking Airflow for a run's state may take longer than
Airflow waits.
"""


class OperationTrigger(BaseTrigger):
    """Wait for an operation's result, and copy the operation's journal to the task's log line by
    line.
    """

    def __init__(  # noqa: PLR0913
        self,
        operation: str,
        until: float,
        *,
        finish: bool = True,
        alone: bool = False,
        asks: bool = False,
        began: float | None = None,
        sluice_conn_id: str | None = None,
    ) -> None:
        """Wait for `operation` until the wall-clock time `until`.

        With `finish`, a success ends the task in the triggerer; otherwise the task resumes in a
        worker. `alone` says that no other task of the run would abort the change. With `asks`, the
        trigger fires as soon as the change waits for approval, so that the task shows its form.
        `began` is the run's start by the wall clock: after the last step of a change, the log says
        where its seconds went. None: the task in the worker says it.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.operation = operation
        self.until = until
        self.finish = finish
        self.alone = alone
        self.asks = asks
        self.began = began
        self.sluice_conn_id = sluice_conn_id
        self._heard = 0
        self._last = "the journal is empty"
        self._links: dict[str, str] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "operation": self.operation,
                "until": self.until,
                "finish": self.finish,
                "alone": self.alone,
                "asks": self.asks,
                "began": self.began,
                "sluice_conn_id": self.sluice_conn_id,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the result, also while ZooKeeper is away.

        The controller ends the time in which a change waits for approval.
        """
        away, end, waits = "", monotonic(self.until), False
        with shared_channel(self.sluice_conn_id).bell() as bell:
            while True:
                try:
                    waits, result = await asyncio.to_thread(self._look)
                    if away:
                        self.log.info("ZooKeeper is back; still waiting for %s", self.operation)
                        away = ""
                except ChannelAwayError as error:
                    result = None
                    if not away:
                        self.log.warning(
                            "%s. Waiting for ZooKeeper; until then the controller changes nothing, and "
                            "records flow",
                            error,
                        )
                    away = f" ({error})"
                if result is not None:
                    yield self._ended(result)
                    return
                if waits and self.asks:
                    yield TriggerEvent({"operation": self.operation, "waits": True})
                    return
                left = inf if waits else end - time.monotonic()
                if left <= 0:
                    yield self._event(None, f"{self._last}{away}")
                    return
                await rest(bell, min(RECHECK_SECONDS if not away else 1.0, left))

    async def on_kill(self) -> None:
        """Abort the change if a person ended the whole run: Airflow starts no further task of that
        run.

        If a person failed only this task, the run's `abort` task follows; a task that is `alone`
        aborts its change. If a person cleared this task, or answered its form, the task continues:
        it finds the posted operation.
        """
        task = self.task_instance
        if task is not None:
            under_way = asyncio.create_task(self._abort_if_ended(task))
            _AFTER_KILL.add(under_way)
            under_way.add_done_callback(_AFTER_KILL.discard)
            await asyncio.shield(under_way)

    async def _abort_if_ended(self, task: TaskInstance) -> None:
        if await asyncio.to_thread(self._is_ended, task):
            await asyncio.to_thread(self._abort, f"airflow:{task.dag_id}/{task.run_id}")

    def _is_ended(self, task: TaskInstance) -> bool:
        """Tell whether no task of the run will continue or abort the change."""
        if self.alone:
            states = RuntimeTaskInstance.get_task_states(
                task.dag_id, task.map_index, task_ids=[task.task_id], run_ids=[task.run_id]
            )
            if _ENDED & {state for states_of_run in states.values() for state in states_of_run.values()}:
                return True
        run = RuntimeTaskInstance.get_dagrun_state(task.dag_id, task.run_id)
        return run in {DagRunState.FAILED, DagRunState.SUCCESS}

    def _abort(self, by: str) -> None:
        channel = shared_channel(self.sluice_conn_id).get()
        posted = self._posted(channel)
        if posted is None:
            return
        change = channel.read(paths.change(posted.value.change), ChangeRecord)
        if change is not None and change.value.state is ChangeState.DONE:
            return  # the run ended because its change did
        requests.post(channel, requests.abort_of(posted.value, by))
        self.log.warning(
            "A person ended the %s: change %s is aborted, and the tiers continue as before the change",
            "task" if self.alone else "run",
            posted.value.change,
        )

    def _posted(self, channel: Channel) -> Read[Operation] | None:
        """Return a step of the change; None if none is posted."""
        return channel.read(paths.operation(self.operation), Operation)

    def _look(self) -> tuple[bool, Result | None]:
        """Return whether the change waits for approval, and the result of the step."""
        channel = shared_channel(self.sluice_conn_id).get()
        waits = requests.waits_for_approval(channel, self.operation)
        channel.exists(paths.result(self.operation), watch=True)
        result = requests.read_result(channel, self.operation)
        channel.children(paths.journal(self.operation), watch=True)
        for entry in requests.read_journal(channel, self.operation, self._heard):
            self._heard += 1
            self._last = f"the journal's last line: {entry.sentence}"
            self.log.info("%s", entry.sentence)
        if result is not None and self.began is not None:
            sentence = seconds_of_run(channel, self.operation, self.began, time.time())
            if sentence is not None:
                self.log.info("%s", sentence)
        return waits, result

    def _ended(self, result: Result) -> TriggerEvent:
        if result.ok and self.finish:
            self.log.info("Done: %s", result.sentence)
            answer = {"sentence": result.sentence, **result.details}
            return TaskSuccessEvent(xcoms={"return_value": answer, **self._links})
        return self._event(result, self._last)

    def _event(self, result: Result | None, heard: str) -> TriggerEvent:
        answer = None if result is None else result.model_dump(mode="json")
        return TriggerEvent({"operation": self.operation, "result": answer, "heard": heard})


class StepTrigger(OperationTrigger):
    """Post a step of the run's change, and wait for its result.

    The task starts here, without a worker: a worker takes seconds of processor time to start. The
    first step of the change was posted by a worker, so the channel has what the step needs.
    """

    def __init__(
        self,
        step: str,
        first: str,
        then: str | None = None,
        *,
        finish: bool = True,
        sluice_conn_id: str | None = None,
    ) -> None:
        """Post `step` of a change that began with `first`, and after its success the step `then`.

        `finish` is as for `OperationTrigger`.
        """
        super().__init__("", 0.0, finish=finish, sluice_conn_id=sluice_conn_id)
        self.step = Step(step)
        self.first = Step(first)
        self.then = None if then is None else Step(then)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "step": str(self.step),
                "first": str(self.first),
                "then": None if self.then is None else str(self.then),
                "finish": self.finish,
                "sluice_conn_id": self.sluice_conn_id,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Post the step, also after ZooKeeper was away, and wait for its result."""
        task: Any = self.task_instance
        self.operation = requests.operation_id(self._change, self.step)
        self.began = task.get_template_context()["dag_run"].start_date.timestamp()
        posted = await first_value(partial(self._post, self.step), inf, self.sluice_conn_id)
        if not isinstance(posted, Operation):
            yield self._event(Result(ok=False, sentence=str(posted), finished_at=time.time()), "")
            return
        self.until = requests.end_of(posted)
        async for event in super().run():
            if isinstance(event, TaskSuccessEvent) and self.then is not None:
                try:
                    await asyncio.to_thread(self._post, self.then)
                except Exception as error:  # noqa: BLE001 - this step has succeeded whatever comes
                    self.log.info("The task of step %s will post it: %s", self.then, error)
            yield event

    @property
    def _change(self) -> ChangeId:
        task: Any = self.task_instance
        return requests.change_id(f"{task.dag_id}.{task.run_id}")

    def _posted(self, channel: Channel) -> Read[Operation] | None:
        """Return the first step: this one may not be posted yet."""
        return channel.read(paths.operation(requests.operation_id(self._change, self.first)), Operation)

    def _post(self, step: Step) -> Operation | str:
        """Return a posted step, or why it cannot be posted."""
        # a worker would make the task's links
        self._links = {link.xcom_key: link.of(self.sluice_conn_id) for link in LINKS}
        channel = shared_channel(self.sluice_conn_id).get()
        first = self._posted(channel)
        if first is None:
            return "the channel no longer has the first step of the change: trigger the runbook again"
        operation = requests.next_step(channel, first.value, step)
        if requests.post(channel, operation):
            self.log.info("Posted step %s of change %s", step, self._change)
            return operation
        posted = channel.read(paths.operation(operation.id), Operation)
        return operation if posted is None else posted.value


class TierTrigger(BaseTrigger):
    """Watch one tier.

    It fires when an incarnation failed, the controller gave the tier up, records are lost, the tier
    lags too far, or a person stopped the tier. A driver that was killed and replaced is only a line
    in the log. The tier runs on when the triggerer restarts or a person ends the supervising task:
    the control channel holds the request that the tier runs.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        tier: str,
        reported: int,
        restarted: int,
        until: float,
        loss: int = 0,
        behind: float = 0.0,
        sluice_conn_id: str | None = None,
    ) -> None:
        """Watch `tier` for events that were not reported before.

        Reported are failures up to incarnation `reported`, losses up to number `loss`, and the lag
        that began at `behind`. `restarted` is the newest incarnation after which the tier was
        started again. The trigger fires `again` at the wall-clock time `until`, so that no trigger
        waits for ever. A trigger that an older version deferred has no `loss`, no `behind` and no
        `sluice_conn_id`.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.tier = tier
        self.reported = reported
        self.restarted = restarted
        self.loss = loss
        self.behind = behind
        self.until = until
        self.sluice_conn_id = sluice_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "tier": self.tier,
                "reported": self.reported,
                "restarted": self.restarted,
                "until": self.until,
                "loss": self.loss,
                "behind": self.behind,
                "sluice_conn_id": self.sluice_conn_id,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch until an event has to be reported."""
        watch = TierWatch(self.tier, self.reported, self.restarted, self.loss, self.behind)
        away, end = False, monotonic(self.until)
        with shared_channel(self.sluice_conn_id).bell() as bell:
            while True:
                event: TierEvent | None = None
                try:
                    event = await asyncio.to_thread(self._look, watch)
                    away = False
                except ChannelAwayError as error:
                    if not away:
                        self.log.warning(
                            "%s. The tier runs on; watching resumes when ZooKeeper answers", error
                        )
                    away = True
                if event is None and time.monotonic() >= end:
                    event = TierEvent(
                        kind="again", incarnation=self.reported, loss=self.loss, behind=self.behind
                    )
                if event is not None:
                    yield TriggerEvent(event.model_dump(mode="json"))
                    return
                await rest(bell, 1.0 if away else RECHECK_SECONDS)

    def _look(self, watch: TierWatch) -> TierEvent | None:
        channel: Channel = shared_channel(self.sluice_conn_id).get()
        event = watch.look(channel)
        for note in watch.notes():
            self.log.info("%s", note)
        return event


class HostsTrigger(BaseTrigger):
    """Wait until the agents of all `hosts` have registered; at the end of the time, name the
    missing hosts.
    """

    def __init__(self, hosts: list[str], until: float, sluice_conn_id: str | None = None) -> None:
        """Wait for `hosts` until the wall-clock time `until`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.hosts = hosts
        self.until = until
        self.sluice_conn_id = sluice_conn_id
        self._missing = hosts

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "hosts": self.hosts,
            "until": self.until,
            "sluice_conn_id": self.sluice_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the agents, also while ZooKeeper is away."""
        joined = await first_value(self._joined, monotonic(self.until), self.sluice_conn_id)
        if joined is None:
            yield TriggerEvent({"missing": self._missing})
            return
        self.log.info("The agents of %s have registered", ", ".join(joined))
        yield TaskSuccessEvent()

    def _joined(self) -> list[str] | None:
        """Return the hosts once the agents of all of them have registered."""
        channel = shared_channel(self.sluice_conn_id).get()
        self._missing = [host for host in self.hosts if not channel.exists(paths.live(host), watch=True)]
        return None if self._missing else self.hosts


class WishTrigger(BaseTrigger):
    """Wait until the scaler wants a runbook, or a change of the scaler has no run yet.

    Only a wish that the controller writes after the trigger's start counts: an older one does not
    know the effect of the runbook that has just ended.
    """

    def __init__(self, pause_until: float, until: float, sluice_conn_id: str | None = None) -> None:
        """Wait for a wish from the wall-clock time `pause_until` on, and for a change at once.

        Fire without either at `until`.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.pause_until = pause_until
        self.until = until
        self.sluice_conn_id = sluice_conn_id
        self._pause_ends = 0.0
        self._at_start: float | None = None
        self._seen: set[str] = set()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "pause_until": self.pause_until,
            "until": self.until,
            "sluice_conn_id": self.sluice_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for a wish or a change, also while ZooKeeper is away."""
        self._pause_ends = monotonic(self.pause_until)
        event = await first_value(self._look, monotonic(self.until), self.sluice_conn_id)
        yield TriggerEvent(event)

    def _look(self) -> dict[str, Any] | None:
        channel = shared_channel(self.sluice_conn_id).get()
        read = channel.read(paths.SCALER, ScalerRecord, watch=True)
        at = 0.0 if read is None else read.value.at
        if self._at_start is None:
            self._at_start = at
            self._count_runs("")
        if (run := self._run_of_change(channel)) is not None:
            return run
        if read is None or at == self._at_start or time.monotonic() < self._pause_ends:
            return None
        return _runbook(read.value)

    def _run_of_change(self, channel: Channel) -> dict[str, Any] | None:
        """Return the run for the oldest change of the scaler that has none; None: each has one.

        A run's id follows from its change, so Airflow's database tells which changes have one.
        """
        names = {*channel.children("/changes", watch=True)} - self._seen
        for change in scaler_changes(channel, names):
            if not self._count_runs(change.run):
                return {
                    "runbook": FOLLOW_CHANGE,
                    "form": {"change": change.id},
                    "reason": change.reason,
                    "run": change.run,
                }
        self._seen |= names
        return None

    def _count_runs(self, run: str) -> int:
        """Return how many runs of `follow_change` have this id.

        Airflow's first answer in a triggerer takes seven seconds of processor time, and all
        triggers wait for it: minutes on a busy machine. So the first look asks in any case, before
        a spike comes.
        """
        return RuntimeTaskInstance.get_dr_count(
            dag_id=dag_id(FOLLOW_CHANGE, self.sluice_conn_id), run_ids=[run]
        )


def _runbook(record: ScalerRecord) -> dict[str, Any] | None:
    """Return the runbook that the scaler wants, its form and its reason; None: none."""
    wish = record.wish or record.leave
    if wish is None:
        return None
    leaves = record.wish is None or wish.tier is None
    return {
        "runbook": "leave_ec2" if leaves else "burst_to_ec2",
        "form": {} if wish.tier is None else {"tier": wish.tier, "k": wish.k},
        "reason": wish.reason,
    }
