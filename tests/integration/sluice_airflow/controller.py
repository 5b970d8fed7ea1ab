"""A controller for tests: answers every posted operation as it is told to, and does nothing else."""

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

LOOK_SECONDS = 0.05


class AnsweringController:
    """Ends each operation after `seconds` of its step, journalling twice; fails the steps that it is told to fail."""

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
        """Return what was posted, in order, with how it was meant."""
        return [f"{operation.step}{' (dry run)' if operation.dry_run else ''}" for operation in self.posted]

    def journal(self, identity: str, sentence: str) -> None:
        entry = JournalEntry(at=time.time(), sentence=sentence)
        self._channel.create(f"{paths.journal(identity)}/line-", entry, sequence=True)

    def _loop(self) -> None:
        begun: dict[str, tuple[Operation, float]] = {}
        while not self._halt.wait(LOOK_SECONDS):
            with contextlib.suppress(ChannelAwayError):
                self._look(begun)

    def _look(self, begun: dict[str, tuple[Operation, float]]) -> None:
        for name in self._channel.children("/operations"):
            found = self._channel.read(paths.operation(name), Operation)
            if found is None or name in begun or self._channel.exists(paths.result(name)):
                continue
            begun[name] = (found.value, time.monotonic())
            self.posted.append(found.value)
            self.journal(name, f"{found.value.step} has begun")
        for name, (operation, at) in list(begun.items()):
            if (
                time.monotonic() - at >= self.seconds.get(operation.step, 0.0)
                and not self.results_written[name]
            ):
                self._end(name, operation)

    def _end(self, name: str, operation: Operation) -> None:
        why = self.fails.get(operation.step)
        self.journal(name, f"{operation.step} has ended")
        result = Result(
            ok=why is None,
            sentence=why or f"{operation.step} is done",
            finished_at=time.time(),
            details={"moves": ["entry to h2"]} if operation.step is Step.PREFLIGHT else {},
        )
        try:
            self._channel.create(paths.result(name), result)
        except NodeExistsError:
            return
        self.results_written[name] += 1
