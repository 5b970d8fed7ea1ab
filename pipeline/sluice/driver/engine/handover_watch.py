"""Tells when a new run is level with the old one, and how large the gap in the output was.

`HandoverWatch` watches the output while a tier is handed over. `InitialRead` counts what the new
run has read, which decides where little comes out.
"""

import itertools
import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog
from confluent_kafka import Consumer, TopicPartition

from sluice.driver.spark.slots import records_read
from sluice.kafka.reader import Seen, StreamError, Streams, parse, topic_and_number
from sluice_ops.model.kafka_access import LOOKERS
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger()

AFTER_SECONDS = 4.0
"""The watch goes on this long after the new run has caught up; the old run stops in this time."""
AT_MOST_SECONDS = 120.0
"""The longest watch while little comes out, so that neither run is behind and none is level."""
CLOSE_MS = 100
"""The new run is level if the records that it writes arrived at most this much before the old
run's.
"""
ASK_SECONDS = 0.5
"""Time between two questions to the JVM about records read; each costs it some hundred calls."""
STANDS_SECONDS = 5.0
"""After this long without reading, the records in the inputs are counted one by one. Executors
report every two seconds."""


class HandoverWatch:
    """Reads the output in a thread of its own until the old run has stopped."""

    def __init__(
        self, kafka: str, outputs: dict[str, int], run: str, begins: dict[str, int], ends: dict[str, int]
    ) -> None:
        """Watch the output from the offsets `outputs` on.

        Meanwhile `run` reads from `begins` over the inputs' present `ends` and on.
        """
        self._tier = run.partition("/")[0]
        self._outputs = outputs
        self._front = OutputProgress(run, begins, ends)
        self._gap: float | None = None
        self._level = threading.Event()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                **brokers(kafka).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                # the record before the end may have expired; the records after it are needed
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        self._consumer.assign(
            [TopicPartition(*topic_and_number(name), max(0, end - 1)) for name, end in outputs.items()]
        )
        self._thread = threading.Thread(target=self._watch, name="handover", daemon=True)
        self._thread.start()

    def is_level(self) -> bool:
        """Tell whether the new run is level with the old one; False if nothing was to come out."""
        return self._level.is_set()

    def behind(self) -> bool:
        """Tell whether the old run has written records that the new run has not."""
        return self._front.behind()

    def gap(self) -> float | None:
        """Return the longest time without new output; None until the watch is over.

        Unit: seconds.
        """
        return self._gap

    def silence(self) -> float | None:
        """Return how long nothing came out before the new run's first output; None: not known
        yet. Unit: seconds.
        """
        return self._front.silence()

    def stop(self) -> None:
        """End the watch."""
        self._stop.set()

    def _watch(self) -> None:
        deadline, over = time.monotonic() + AT_MOST_SECONDS, None
        try:
            while not self._stop.is_set() and (
                time.monotonic() < (over or deadline) or (over is None and self._front.behind())
            ):
                for message in self._consumer.consume(500, timeout=0.05):
                    seen = parse(message) if message.error() is None else None
                    if seen is None or seen.out.tier != self._tier:
                        continue
                    if message.offset() < self._outputs[f"{message.topic()}/{message.partition()}"]:
                        self._front.before(seen)
                    else:
                        self._front.saw(seen)
                if over is None and self._front.level():
                    self._level.set()
                    over = time.monotonic() + AFTER_SECONDS
            if not self._stop.is_set():
                self._gap = self._front.gap()
        finally:
            self._consumer.close()


class OutputProgress:
    """How far two runs of a tier are in its output, and when new records came out. Pure."""

    def __init__(self, run: str, begins: dict[str, int], ends: dict[str, int]) -> None:
        """Begin when `run` begins."""
        self._run = run
        self._left = {name: end for name, end in ends.items() if end > begins[name]}
        self._idle = not self._left
        """Whether nothing waited when the run began, so that nothing may come out."""
        self._newest = {name: end - 1 for name, end in ends.items()}
        self._mine: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._before = 0
        self._stamps: dict[int, int] = {}
        """The times when new output came out, each with the first arrival of its records.

        One entry for a millisecond, so that the watch of a fast tier stays small.
        """
        self._first: tuple[int, int] | None = None
        """When the first record of the new run came out, and when it had arrived."""

    def before(self, seen: Seen) -> None:
        """Take a record that was written before the run began."""
        self._before = max(self._before, seen.out.at)

    def saw(self, seen: Seen) -> None:
        """Take a record that was written since the run began."""
        out, arrived = seen.out, seen.arrived or seen.out.at
        if self._first is None and out.by == self._run:
            self._first = out.at, arrived
        runs = self._mine if out.by == self._run else self._others
        runs[out.partition] = max(arrived, runs.get(out.partition, arrived))
        if out.by == self._run and out.offset + 1 >= self._left.get(out.partition, 1 << 62):
            del self._left[out.partition]
        if out.offset > self._newest.get(out.partition, -1):
            self._newest[out.partition] = out.offset
            self._stamps[out.at] = min(arrived, self._stamps.get(out.at, arrived))

    def silence(self) -> float | None:
        """Return how long nothing came out before the new run's first record; None: not known.

        Time before that record arrived does not count. Unit: seconds.
        """
        if self._first is None or not self._before:
            return None
        return max(0, self._first[0] - max(self._before, min(self._first))) / 1000

    def behind(self) -> bool:
        """Tell whether the old run has written records that the new run has not."""
        return any(
            self._mine.get(partition, 0) < arrived - CLOSE_MS
            for partition, arrived in list(self._others.items())
        )

    def level(self) -> bool:
        """Tell whether the new run has written everything that waited at its start, or something
        if nothing waited, and the old run is no further.
        """
        return not self._left and not (self._idle and self._first is None) and not self.behind()

    def gap(self) -> float | None:
        """Return the longest time without new output. Unit: seconds."""
        # If no old run writes any more, the records that waited at the start are new output, too.
        silence = None if self._others else self.silence()
        gaps = [] if silence is None else [silence]
        if self._before:
            ordered = sorted([(self._before, 0), *self._stamps.items()])
            # time before the next record arrived is not part of a gap
            gaps += [
                (after[0] - max(before[0], min(after))) / 1000
                for before, after in itertools.pairwise(ordered)
            ]
        return max(gaps, default=None)


class InitialRead:
    """Compares the records that the tasks of a run have read with the records that waited when the
    run began.
    """

    def __init__(self, begins: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Expect the records of each partition between `begins` and `ends`."""
        self._begins, self._ends = begins, ends
        self.needed = sum(ends[place] - begin for place, begin in begins.items())
        """Offsets to read. Where senders use transactions, offsets are more than records."""
        self._count, self._stands_since = -1, 0.0
        """The records read at the last look, and since when the number is the same."""
        self._asked = 0.0

    def is_over(self, session: "SparkSession", streams: Streams) -> bool:
        """Tell whether all of these records are read, as far as Spark had heard at the
        last look.
        """
        now = time.monotonic()
        if now < self._asked + ASK_SECONDS:
            return False
        self._asked = now
        count, tasks = records_read(session)
        if count != self._count:
            self._count, self._stands_since = count, now
        elif count < self.needed and now > self._stands_since + STANDS_SECONDS:
            waiting = {
                place: (first, end)
                for place, first in self._begins.items()
                if (end := self._ends[place]) > first
            }
            try:
                self.needed = sum(
                    len(streams.offsets_with_records(place, *within)) for place, within in waiting.items()
                )
            except StreamError:
                return False  # Kafka does not answer: the count stays unknown, and the query goes on
            self._stands_since = math.inf
        return tasks >= len(self._begins) and count >= self.needed
