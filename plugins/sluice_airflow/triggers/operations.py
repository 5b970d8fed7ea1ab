"""What the triggerer waits for: the result of a step, and a tier's failure. Triggers wait and tell, and change nothing.

They run again from the start whenever the triggerer restarts, so they hold nothing that is not in their arguments or in the channel.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import DagRunState
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from sluice_airflow.hooks.channel import shared
from sluice_airflow.triggers.tier_watch import TierEvent, TierWatch
from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.change import Operation, Result, Step
from sluice_ops.operations import requests

RECHECK_SECONDS = 10.0
"""Watches tell when to look; this heals one that was missed."""
SETTLE_SECONDS = 0.1
"""Changes come in bursts: after the first, wait this long and look once."""

_AFTER_KILL: set[asyncio.Task[None]] = set()
"""What goes on when Airflow's patience with a killed trigger is over: its first question about a run may take the triggerer a while."""


async def _rest(bell: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(bell.wait(), seconds)
        await asyncio.sleep(SETTLE_SECONDS)
    bell.clear()


def _steady(until: float) -> float:
    """Return when it is `until` on the monotonic clock: a wall clock that jumps while a trigger waits ends nothing."""
    return time.monotonic() + until - time.time()


def _abort_of(operation: Operation, by: str) -> Operation:
    return operation.model_copy(
        update={
            "id": requests.operation_id(operation.change, Step.ABORT),
            "step": Step.ABORT,
            "by": by,
            "posted_at": time.time(),
            "deadline_seconds": requests.ABORT_SECONDS,
        }
    )


class OperationTrigger(BaseTrigger):
    """Waits for `operations/<id>/result`, and passes the journal on to the task's log line by line."""

    def __init__(self, operation: str, until: float, *, finish: bool = True) -> None:
        """Wait for `operation` until the wall clock says `until`; with `finish`, a success ends the task without another start of it."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.operation = operation
        self.until = until
        self.finish = finish
        self._heard = 0
        self._last = "its journal is empty"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Tell the triggerer how to make this again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"operation": self.operation, "until": self.until, "finish": self.finish},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, whatever happens to ZooKeeper meanwhile."""
        away, end = "", _steady(self.until)
        with shared.bell() as bell:
            while True:
                try:
                    result = await asyncio.to_thread(self._look)
                    if away:
                        self.log.info("ZooKeeper is back; still waiting for %s", self.operation)
                        away = ""
                except ChannelAwayError as error:
                    result = None
                    if not away:
                        self.log.warning(
                            "%s. Waiting for it; the controller decides nothing meanwhile, and records keep flowing",
                            error,
                        )
                    away = f" ({error})"
                if result is not None:
                    yield self._ended(result)
                    return
                left = end - time.monotonic()
                if left <= 0:
                    yield TriggerEvent({"result": None, "heard": f"{self._last}{away}"})
                    return
                await _rest(bell, min(RECHECK_SECONDS if not away else 1.0, left))

    async def on_kill(self) -> None:
        """Abort the change when a person has ended the whole run: no task of it is left to do so.

        When only this task was failed, the run's own abort follows; when it was cleared, it finds its operation again.
        """
        task = self.task_instance
        if task is not None:
            under_way = asyncio.create_task(self._abort_if_ended(task.dag_id, task.run_id))
            _AFTER_KILL.add(under_way)
            under_way.add_done_callback(_AFTER_KILL.discard)
            await asyncio.shield(under_way)

    async def _abort_if_ended(self, dag: str, run: str) -> None:
        state = await asyncio.to_thread(RuntimeTaskInstance.get_dagrun_state, dag, run)
        if state in {DagRunState.FAILED, DagRunState.SUCCESS}:
            await asyncio.to_thread(self._abort, f"airflow:{dag}/{run}")

    def _abort(self, by: str) -> None:
        channel = shared.get()
        posted = channel.read(paths.operation(self.operation), Operation)
        if posted is None:
            return
        requests.post(channel, _abort_of(posted.value, by))
        self.log.warning(
            "The run was ended by a person; the change %s is aborted, to a running pipeline",
            posted.value.change,
        )

    def _look(self) -> Result | None:
        channel = shared.get()
        channel.exists(paths.result(self.operation), watch=True)
        result = requests.read_result(channel, self.operation)
        channel.children(paths.journal(self.operation), watch=True)
        for entry in requests.read_journal(channel, self.operation, self._heard):
            self._heard += 1
            self._last = f"it said last: {entry.sentence}"
            self.log.info("%s", entry.sentence)
        return result

    def _ended(self, result: Result) -> TriggerEvent:
        if result.ok and self.finish:
            self.log.info("Done: %s", result.sentence)
            return TaskSuccessEvent(xcoms={"return_value": {"sentence": result.sentence, **result.details}})
        return TriggerEvent({"result": result.model_dump(mode="json"), "heard": self._last})


class TierTrigger(BaseTrigger):
    """Watches one tier: fires when an incarnation failed or it was given up, when records are lost, or it is behind too far or not wanted.

    A driver that was killed and replaced is only a note in the log. Neither the triggerer's restart nor a person who ends the
    supervising task stops the tier: what is wanted of it is in the channel.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self, tier: str, reported: int, restarted: int, until: float, loss: int = 0, behind: float = 0.0
    ) -> None:
        """Watch `tier`; failures up to incarnation `reported`, losses up to number `loss` and that it was `behind` then were told before.

        Giving it up was answered until incarnation `restarted`. A trigger that was deferred before an upgrade has no `loss` or `behind`.
        Fires `again` when the clock says `until`: no trigger waits for ever.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.tier = tier
        self.reported = reported
        self.restarted = restarted
        self.loss = loss
        self.behind = behind
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Tell the triggerer how to make this again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "tier": self.tier,
                "reported": self.reported,
                "restarted": self.restarted,
                "until": self.until,
                "loss": self.loss,
                "behind": self.behind,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch until there is something to tell."""
        watch = TierWatch(self.tier, self.reported, self.restarted, self.loss, self.behind)
        away, end = False, _steady(self.until)
        with shared.bell() as bell:
            while True:
                event: TierEvent | None = None
                try:
                    event = await asyncio.to_thread(self._look, watch)
                    away = False
                except ChannelAwayError as error:
                    if not away:
                        self.log.warning("%s. The tier goes on; watching again when it is back", error)
                    away = True
                if event is None and time.monotonic() >= end:
                    event = TierEvent(
                        kind="again", incarnation=self.reported, loss=self.loss, behind=self.behind
                    )
                if event is not None:
                    yield TriggerEvent(event.model_dump(mode="json"))
                    return
                await _rest(bell, 1.0 if away else RECHECK_SECONDS)

    def _look(self, watch: TierWatch) -> TierEvent | None:
        channel: Channel = shared.get()
        event = watch.look(channel)
        for note in watch.notes():
            self.log.info("%s", note)
        return event


class HostsTrigger(BaseTrigger):
    """Waits until the agents of all `hosts` have registered; tells which have not when the time is over."""

    def __init__(self, hosts: list[str], until: float) -> None:
        """Wait for `hosts` until the wall clock says `until`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.hosts = hosts
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Tell the triggerer how to make this again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "hosts": self.hosts,
            "until": self.until,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, whatever happens to ZooKeeper meanwhile."""
        missing, end = self.hosts, _steady(self.until)
        with shared.bell() as bell:
            while True:
                with contextlib.suppress(ChannelAwayError):
                    missing = await asyncio.to_thread(self._missing)
                if not missing:
                    self.log.info("%s answer", ", ".join(self.hosts))
                    yield TaskSuccessEvent()
                    return
                left = end - time.monotonic()
                if left <= 0:
                    yield TriggerEvent({"missing": missing})
                    return
                await _rest(bell, min(RECHECK_SECONDS, left))

    def _missing(self) -> list[str]:
        channel = shared.get()
        return [host for host in self.hosts if not channel.exists(paths.live(host), watch=True)]
