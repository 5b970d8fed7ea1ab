"""A feed of events at a steady rate, which does not depend on the pipeline.

`python -m nexmark.feed --rate N [--count N] [--first K] [--seed S] [--json]`. `sluice feed` and
tests call it.
"""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from nexmark.events import event
from sluice_ops.model.kafka_access import User
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers

PAUSE_SECONDS = 0.02
FLUSH_SECONDS = 30.0


@dataclass(frozen=True)
class FeedResult:
    """The result of a feed: the number of the first event, and counts."""

    first: int
    count: int
    failed: int

    def __str__(self) -> str:
        failed = f", {self.failed} not taken by Kafka" if self.failed else ""
        return f"event {self.first} to {self.first + self.count - 1}: {self.count} events{failed}"


def feed(  # noqa: PLR0913 — the caller chooses each of them
    kafka: str,
    rate: float,
    *,
    count: int | None = None,
    first: int | None = None,
    seed: int = 1,
    stopped: Callable[[], bool] = lambda: False,
    sent: Callable[[dict[str, Any]], None] = lambda _: None,
) -> FeedResult:
    """Send `rate` events per second until `count` are sent or `stopped()` is true.

    An event happens when it is due. `sent` gets each event that Kafka will take.
    """
    first = int(time.time() * 1_000_000) if first is None else first
    failures: list[KafkaError] = []

    def record_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {**brokers(kafka).client, "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
    )
    started, number = time.time(), 0
    while (count is None or number < count) and not stopped():
        due = int((time.time() - started) * rate) + 1
        while number < (due if count is None else min(due, count)):
            new = event(seed, first + number, int((started + number / rate) * 1000))
            try:
                producer.produce("raw", value=json.dumps(new), on_delivery=record_failure)
            except BufferError:
                producer.poll(0.1)
                continue
            sent(new)
            number += 1
        time.sleep(PAUSE_SECONDS)
        producer.poll(0)
    undelivered = producer.flush(FLUSH_SECONDS)
    return FeedResult(first, number, len(failures) + undelivered)


def main(arguments: list[str] | None = None) -> int:
    """Feed until the count is reached or Ctrl-C is pressed."""
    parser = argparse.ArgumentParser(prog="python -m nexmark.feed", description="Feed Nexmark's events.")
    parser.add_argument("--rate", type=float, required=True, help="events per second")
    parser.add_argument("--count", type=int, help="stop after this number of events (default: at Ctrl-C)")
    parser.add_argument(
        "--first", type=int, help="number of the first event (default: the time in microseconds)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other events (default: 1)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.rate <= 0:
        parser.error("--rate must be more than 0")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        result = feed(
            endpoints.load().kafka_as(User.OUTSIDE),
            chosen.rate,
            count=chosen.count,
            first=chosen.first,
            seed=chosen.seed,
            stopped=stop.is_set,
        )
    except (FileNotFoundError, endpoints.EndpointsError, KafkaException) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{json.dumps(asdict(result)) if chosen.json else result}\n")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
