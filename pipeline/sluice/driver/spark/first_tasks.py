"""Tells which executors have processed records, and which need an empty task (decision 78). Pure.

A worker is ready when a task that read records has ended well there. Where no record comes, an
empty task shows at least that the worker runs tasks.
"""

import math
from collections.abc import Collection, Mapping

LOOK_SECONDS = 1.0
"""Time between two looks at the tasks of new executors."""
EMPTY_SECONDS = 10.0
"""An executor without a record gets an empty task after this time in which no record waited."""
WATCHED_SECONDS = 300.0
"""A new executor is watched for so long. No change waits longer for its first record."""


class FirstTasks:
    """The first tasks of the executors that work. Times are of a monotonic clock."""

    def __init__(self) -> None:
        """Know no executor."""
        self.records: dict[str, int] = {}
        """By executor: the records that its first tasks had read; 0 after an empty task."""
        self._since: dict[str, float] = {}
        self._waited_at = -math.inf

    def watched(self, working: Collection[str], now: float, *, records_wait: bool) -> frozenset[str]:
        """Return the executors whose tasks are to be looked at; forget those that do not work."""
        if records_wait:
            self._waited_at = now
        self._since = {executor: self._since.get(executor, now) for executor in working}
        self.records = {name: count for name, count in self.records.items() if name in self._since}
        return frozenset(
            executor
            for executor, since in self._since.items()
            if executor not in self.records and now < since + WATCHED_SECONDS
        )

    def take(self, records: Mapping[str, int]) -> None:
        """Note how many records executors have read in tasks that ended well."""
        self.records |= {executor: count for executor, count in records.items() if count}

    def unfed(self, watched: Collection[str], now: float) -> frozenset[str]:
        """Return those that have read no record for a while in which no record had to wait."""
        return frozenset(
            executor
            for executor in watched
            if executor not in self.records
            and now >= max(self._since[executor], self._waited_at) + EMPTY_SECONDS
        )

    def note_empty(self, executors: Collection[str]) -> None:
        """Note executors of which an empty task has shown that they run tasks."""
        self.records |= dict.fromkeys(executors, 0)
