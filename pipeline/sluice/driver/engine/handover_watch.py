"""Watching a realtime tier's output while it is handed over: whether the new run has passed the old one, and the gap."""

import itertools
import threading
import time

import structlog
from confluent_kafka import Consumer, TopicPartition

from sluice.kafka.reader import Seen, parse, split
from sluice_ops.model.kafka_access import LOOKERS
from sluice_ops.site.brokers import brokers

log = structlog.get_logger()

AFTER_SECONDS = 4.0
"""How long it goes on watching after the new run has caught up: the old one stops in this time."""
AT_MOST_SECONDS = 120.0
"""How long it goes on watching where neither run is behind the other, nor level: little comes out."""
CLOSE_MS = 100
"""The new run is level with the old one when the records that it puts out now arrived not much before the old one's."""


class Handover:
    """Reads the output in a thread of its own, until the old run has stopped."""

    def __init__(
        self, kafka: str, outputs: dict[str, int], by: str, begins: dict[str, int], ends: dict[str, int]
    ) -> None:
        """Watch the output from `outputs` on, while the run `by` goes from `begins` over the input's `ends` to the present."""
        self._tier = by.partition("/")[0]
        self._outputs = outputs
        self._front = Front(by, begins, ends)
        self._gap: float | None = None
        self._level = threading.Event()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                **brokers(kafka).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # the record before the end may have expired, and what comes after it is looked for
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        self._consumer.assign(
            [TopicPartition(*split(name), max(0, end - 1)) for name, end in outputs.items()]
        )
        self._thread = threading.Thread(target=self._watch, name="handover", daemon=True)
        self._thread.start()

    def passed(self) -> bool:
        """Tell whether the new run is level with the old one; never so when there was nothing to put out, which shows elsewhere."""
        return self._level.is_set()

    def behind(self) -> bool:
        """Tell whether the old run has put out what the new one has not."""
        return self._front.behind()

    def gap(self) -> float | None:
        """Return the largest time without anything new in the output, once the watching is over."""
        return self._gap

    def stop(self) -> None:
        """End the watching."""
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


class Front:
    """How far two runs of a tier are in its output, and when something new came out. Pure."""

    def __init__(self, by: str, begins: dict[str, int], ends: dict[str, int]) -> None:
        """Begin when the run `by` begins."""
        self._by = by
        self._left = {name: end for name, end in ends.items() if end > begins[name]}
        self._idle = not self._left
        self._newest = {name: end - 1 for name, end in ends.items()}
        self._mine: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._before = 0
        self._stamps: list[tuple[int, int]] = []

    def before(self, seen: Seen) -> None:
        """Take a record that was there when it began."""
        self._before = max(self._before, seen.out.at)

    def saw(self, seen: Seen) -> None:
        """Take a record that was put out since."""
        out, arrived = seen.out, seen.arrived or seen.out.at
        runs = self._mine if out.by == self._by else self._others
        runs[out.partition] = max(arrived, runs.get(out.partition, arrived))
        if out.by == self._by and out.offset + 1 >= self._left.get(out.partition, 1 << 62):
            del self._left[out.partition]
        if out.offset > self._newest.get(out.partition, -1):
            self._newest[out.partition] = out.offset
            self._stamps.append((out.at, arrived))

    def behind(self) -> bool:
        """Tell whether the old run has put out what the new one has not."""
        return any(
            self._mine.get(partition, 0) < arrived - CLOSE_MS
            for partition, arrived in list(self._others.items())
        )

    def level(self) -> bool:
        """Tell whether everything is out that was there when it began, and the old run is no further."""
        return not self._left and not self._idle and not self.behind()

    def gap(self) -> float | None:
        """Return the largest time without anything new. Unit: seconds."""
        if not self._stamps or not self._before:
            return None
        ordered = sorted([(self._before, 0), *self._stamps])
        # a record that had not arrived yet was not waited for
        return (
            max(after[0] - max(before[0], min(after)) for before, after in itertools.pairwise(ordered)) / 1000
        )
