"""A trigger that waits for the end of a change, and copies its journal to the task's log."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice_airflow.hooks.sluice import shared_channel
from sluice_airflow.triggers.waiting import first_value, monotonic
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Step
from sluice_ops.operations.requests import operation_id, read_journal, read_result


class ChangeTrigger(BaseTrigger):
    """Wait until a change has ended."""

    def __init__(self, change: str, until: float, sluice_conn_id: str | None = None) -> None:
        """Wait for `change` until the wall-clock time `until`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.change = change
        self.until = until
        self.sluice_conn_id = sluice_conn_id
        self._heard: Counter[Step] = Counter()
        self._told: set[Step] = set()
        self._last = "it has no result"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "change": self.change,
            "until": self.until,
            "sluice_conn_id": self.sluice_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the change's end, also while ZooKeeper is away."""
        state = await first_value(self._look, monotonic(self.until), self.sluice_conn_id)
        sentence = f"change {self.change} is {state}: {self._last}"
        yield TriggerEvent(None if state is None else {"ok": state == ChangeState.DONE, "sentence": sentence})

    def _look(self) -> str | None:
        """Log what is new, and return how the change has ended; None while it is active.

        The state is read first, so that the last step's result is there when the change has ended.
        """
        channel = shared_channel(self.sluice_conn_id).get()
        read = channel.read(paths.change(self.change), ChangeRecord, watch=True)
        channel.children("/operations", watch=True)
        for step in Step:
            identity = operation_id(self.change, step)
            for entry in read_journal(channel, identity, self._heard[step]):
                self._heard[step] += 1
                self.log.info("%s: %s", step, entry.sentence)
            result = read_result(channel, identity)
            if result is not None and step not in self._told:
                self._told.add(step)
                self._last = result.sentence
                self.log.info("%s: %s", step, result.sentence)
        if read is None:
            return "without a record; `sluice trail` has its end"
        open_ = {ChangeState.WAITING, ChangeState.ACTIVE}
        return None if read.value.state in open_ else read.value.state
