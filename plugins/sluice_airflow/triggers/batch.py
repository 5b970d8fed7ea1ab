"""A trigger that waits for the slots of a batch job."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice_airflow.hooks.sluice import shared_channel
from sluice_airflow.triggers.waiting import first_value, monotonic
from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model.batch import RENEW_SECONDS
from sluice_ops.operations import batch_jobs


class BatchGrantTrigger(BaseTrigger):
    """Wait until a batch job has slots; meanwhile renew its request, and log why it waits."""

    def __init__(self, job: str, until: float, sluice_conn_id: str | None = None) -> None:
        """Wait for the slots of `job` until the wall-clock time `until`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.until = until
        self.sluice_conn_id = sluice_conn_id
        self._renewed: float | None = None
        self._reason = "no controller has seen it"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "job": self.job,
            "until": self.until,
            "sluice_conn_id": self.sluice_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for slots, also while ZooKeeper is away."""
        outcome = await first_value(self._look, monotonic(self.until), self.sluice_conn_id)
        yield TriggerEvent({"job": self.job, "outcome": outcome or "late", "reason": self._reason})

    async def on_kill(self) -> None:
        """Take the job from the queue: a person ended or cleared the task."""
        with suppress(ChannelAwayError):
            await asyncio.to_thread(lambda: batch_jobs.end(self._channel(), self.job))

    def _channel(self) -> Channel:
        return shared_channel(self.sluice_conn_id).get()

    def _look(self) -> str | None:
        """Return `granted`, `gone` if the request was deleted, or None while the job waits."""
        channel = self._channel()
        queue = batch_jobs.read_grants(channel, watch=True)
        if self.job in queue.grants:
            return "granted"
        if self._renewed is None or time.monotonic() - self._renewed >= RENEW_SECONDS:
            if not batch_jobs.renew(channel, self.job):
                return "gone"
            self._renewed = time.monotonic()
        reason = queue.waiting.get(self.job)
        if reason is not None and reason != self._reason:
            self._reason = reason
            self.log.info("The job waits: %s", reason)
        return None
