"""A controller for tests that answers each posted operation as the test says, and does nothing
else.
"""

import contextlib
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from kazoo.exceptions import NodeExistsError

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.change import JournalEntry, Operation, Result, Step

POLL_SECONDS = 0.05


class AnsweringController:
    """Ends each operation after its step's `seconds`, with two journal lines; steps in `fails`
    fail.
    """

    def __init__(
        self,
        zookeeper: str,
        *,
        seconds: dict[Step, float] | None = None,
        fails: dict[Step, str] | None = None,
    ) -> None:
        self.seconds = seconds or {}
        self.fails = fails or {}
        self.posted: list[Operation] = []
        self.results_written: Counter[str] = Counter()
        self._channel = Channel(zookeeper)
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Self:
        self._channel.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._halt.set()
        self._thread.join()
        self._channel.stop()

    def steps(self) -> list[str]:
        """Return the posted steps in order, with a note for each dry run."""
        return [f"{operation.step}{' (dry run)' if operation.dry_run else ''}" for operation in self.posted]

    def journal(self, identity: str, sentence: str) -> None:
        entry = JournalEntry(at=time.time(), sentence=sentence)
        self._channel.create(f"{paths.journal(identity)}/line-", entry, sequence=True)

    def _loop(self) -> None:
        started: dict[str, tuple[Operation, float]] = {}
        while not self._halt.wait(POLL_SECONDS):
            with contextlib.suppress(ChannelAwayError):
                self._answer_operations(started)

    def _answer_operations(self, started: dict[str, tuple[Operation, float]]) -> None:
        for name in self._channel.children("/operations"):
            operation_node = self._channel.read(paths.operation(name), Operation)
            if operation_node is None or name in started or self._channel.exists(paths.result(name)):
                continue
            started[name] = (operation_node.value, time.monotonic())
            self.posted.append(operation_node.value)
            self.journal(name, f"{operation_node.value.step} has begun")
        for name, (operation, since) in list(started.items()):
            if (
                time.monotonic() - since >= self.seconds.get(operation.step, 0.0)
                and not self.results_written[name]
            ):
                self._end(name, operation)

    def _end(self, name: str, operation: Operation) -> None:
        failure = self.fails.get(operation.step)
        self.journal(name, f"{operation.step} has ended")
        result = Result(
            ok=failure is None,
            sentence=failure or f"{operation.step} is done",
            finished_at=time.time(),
            details={"moves": ["entry to h2"]} if operation.step is Step.PREFLIGHT else {},
        )
        try:
            self._channel.create(paths.result(name), result)
        except NodeExistsError:
            return
        self.results_written[name] += 1
