"""Watching a realtime tier's output while it is handed over: whether the new run has passed the old one, and the gap."""

import itertools
import threading
import time

import structlog
from confluent_kafka import Consumer, TopicPartition

from pipeline.driver.streams import parse

log = structlog.get_logger()

AFTER_SECONDS = 4.0
"""How long it goes on watching after the new run has caught up: the old one stops in this time."""
AT_MOST_SECONDS = 60.0


class Handover:
    """Reads the output in a thread of its own, for a minute at most."""

    def __init__(self, kafka: str, ends: dict[str, int], by: str, wanted: dict[str, int]) -> None:
        """Watch the output from `ends` on, until the run `by` has put out everything before `wanted`."""
        self._left = dict(wanted)
        self._idle = not self._left
        self._by = by
        self._ends = ends
        self._before = 0
        self._stamps: list[tuple[int, int]] = []
        self._stop = threading.Event()
        self._passed_at: float | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "sluice-looks",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(*_split(name), max(0, end - 1)) for name, end in ends.items()])
        self._thread = threading.Thread(target=self._watch, name="handover", daemon=True)
        self._thread.start()

    def passed(self) -> bool:
        """Tell whether everything wanted is out; never so when there was nothing to put out, which shows elsewhere."""
        return self._passed_at is not None

    def gap(self) -> float | None:
        """Return the largest time without output, once the watching is over."""
        if self._thread.is_alive() or not self._stamps or not self._before:
            return None
        ordered = sorted([(self._before, 0), *self._stamps])
        # a record that had not arrived yet was not waited for
        return max(after[0] - max(before[0], min(after)) for before, after in itertools.pairwise(ordered)) / 1000

    def stop(self) -> None:
        """End the watching."""
        self._stop.set()

    def _watch(self) -> None:
        deadline = time.monotonic() + AT_MOST_SECONDS
        try:
            while not self._stop.is_set() and time.monotonic() < deadline:
                if self._passed_at is not None and time.monotonic() > self._passed_at + AFTER_SECONDS:
                    break
                for message in self._consumer.consume(500, timeout=0.05):
                    seen = parse(message) if message.error() is None else None
                    if seen is None:
                        continue
                    if message.offset() < self._ends[f"{message.topic()}/{message.partition()}"]:
                        self._before = max(self._before, seen.out.at)
                        continue
                    self._stamps.append((seen.out.at, seen.arrived or 0))
                    if seen.out.by == self._by and seen.out.offset + 1 >= self._left.get(seen.out.partition, 1 << 62):
                        del self._left[seen.out.partition]
                if not self._left and not self._idle and self._passed_at is None:
                    self._passed_at = time.monotonic()
        finally:
            self._consumer.close()


def _split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)
