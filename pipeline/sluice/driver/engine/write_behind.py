"""Writes a batch on a thread of its own while the query collects the next one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress


class WriteBehind:
    """At most one write goes on at a time, so batches are written in their order."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._thread = ThreadPoolExecutor(1, "write")
        self._pending: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether the last batch is still unwritten: its write goes on, or has failed."""
        return self.failure() is not None or not (self._pending is None or self._pending.done())

    def begin(self, write: Callable[[], None]) -> None:
        """Begin a write; the one before has finished."""
        self._pending = self._thread.submit(write)

    def finish(self) -> None:
        """Wait until the write that goes on has ended; raise its error."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def failure(self) -> BaseException | None:
        """Return the error of a write that has failed."""
        pending = self._pending
        return pending.exception() if pending is not None and pending.done() else None

    def drop(self) -> None:
        """Wait until the write that goes on has ended; forget its error."""
        with suppress(BaseException):
            self.finish()
        self._pending = None

    def close(self) -> None:
        """End the thread."""
        self.drop()
        self._thread.shutdown()
