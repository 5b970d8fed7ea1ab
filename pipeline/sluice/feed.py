"""A feed of numbered test records at a steady rate, which does not depend on the pipeline.

A pipeline's module `feed` makes the records; `sluice feed` runs it.
"""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sluice_ops.model.kafka_access import User
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.005, 0.02
"""The pause between two bursts of records: 1/rate within these bounds."""
FLUSH_SECONDS = 30.0


@dataclass(frozen=True)
class FeedResult:
    """The result of a feed: the number of the first record, and counts."""

    first: int
    count: int
    failed: int
    seconds: float

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def __str__(self) -> str:
        failed = f", {self.failed} not taken by Kafka" if self.failed else ""
        rate = self.count / max(self.seconds, 0.001)
        numbers = f", {self.first} to {self.last}," if self.count else ""
        return f"{self.count} records{numbers} in {self.seconds:.1f} s, {rate:.0f}/s{failed}"


class FeedRecord(NamedTuple):
    """One test record."""

    key: str | None
    value: dict[str, Any]


@dataclass(frozen=True)
class Pace:
    """How fast to feed, with which numbers, and until when."""

    rate: float
    """Records per second."""
    count: int | None = None
    """None: until `stopped()` is true."""
    first: int | None = None
    """The number of the first record. None: the time in microseconds."""
    stopped: Callable[[], bool] = lambda: False


def feed(kafka: str, stream: str, record: Callable[[int, float], FeedRecord], pace: Pace) -> FeedResult:
    """Send records. The clock gives the pace, never the pipeline.

    `record` makes a record of its number and of the time when it is due.
    """
    first = int(time.time() * 1_000_000) if pace.first is None else pace.first
    failures: list[KafkaError] = []

    def record_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {**brokers(kafka).client, "acks": "all", "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
    )
    began, started, sent = time.time(), time.monotonic(), 0
    while (pace.count is None or sent < pace.count) and not pace.stopped():
        due = int((time.monotonic() - started) * pace.rate) + 1
        while sent < (due if pace.count is None else min(due, pace.count)):
            key, value = record(first + sent, began + sent / pace.rate)
            try:
                producer.produce(stream, key=key, value=json.dumps(value), on_delivery=record_failure)
            except BufferError:
                producer.poll(0.1)
                continue
            sent += 1
        time.sleep(min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, 1 / pace.rate)))
        producer.poll(0)
    seconds = time.monotonic() - started
    undelivered = producer.flush(FLUSH_SECONDS)
    return FeedResult(first, sent, len(failures) + undelivered, seconds)


def command(module: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a feed's command, `python -m MODULE`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--rate", type=float, required=True, help="records per second")
    parser.add_argument("--count", type=int, help="stop after this number of records (default: at Ctrl-C)")
    parser.add_argument(
        "--first", type=int, help="number of the first record (default: the time in microseconds)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(
    parser: argparse.ArgumentParser,
    chosen: argparse.Namespace,
    stream: str,
    record: Callable[[int, float], FeedRecord],
) -> int:
    """Feed until the count is reached or Ctrl-C is pressed; return the exit code."""
    if chosen.rate <= 0:
        parser.error("--rate must be more than 0")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    pace = Pace(chosen.rate, chosen.count, chosen.first, stop.is_set)
    try:
        result = feed(endpoints.load().kafka_as(User.OUTSIDE), stream, record, pace)
    except (FileNotFoundError, endpoints.EndpointsError, KafkaException) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{json.dumps(asdict(result)) if chosen.json else result}\n")
    return 1 if result.failed else 0
