"""A feed of test hits with numbered ids, at a steady rate that does not depend on the pipeline.

`python -m hits.feed --rate N [--count N] [--first K] [--json]`. `sluice feed` and tests call it.
The numbers of the fed hits are known, so a test can show losses and duplicates.
"""

import argparse
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sluice_ops.model.kafka_access import User
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers

KINDS = ("view",) * 16 + ("click",) * 3 + ("buy",)
ADS = 110
"""How many ads occur in hits. One tenth of them are not booked."""
MIN_PAUSE_SECONDS = 0.005
"""The shortest pause between two bursts of hits at high rates."""
FLUSH_SECONDS = 30.0


@dataclass(frozen=True)
class FeedResult:
    """The result of a feed: the number of the first hit, and counts."""

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
        return (
            f"hit-{self.first} to hit-{self.last}: {self.count} hits in {self.seconds:.1f} s, "
            f"{rate:.0f}/s{failed}"
        )


def hit(number: int, at: float) -> dict[str, object]:
    """Return hit `number`. The same number always gives the same user, ad and kind."""
    generator = random.Random(number)  # noqa: S311 — test data
    return {
        "id": f"hit-{number}",
        "user": f"user-{generator.randrange(1000)}",
        "ad": f"ad-{generator.randrange(ADS)}",
        "kind": generator.choice(KINDS),
        "at": int(at * 1000),
    }


def feed(  # noqa: PLR0913 — the caller chooses each of them
    kafka: str,
    rate: float,
    *,
    count: int | None = None,
    first: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
    stream: str = "raw",
) -> FeedResult:
    """Produce hits at `rate` per second until `count` hits are sent or `stopped()` is true.

    The clock gives the pace, never the pipeline.
    """
    first = int(time.time() * 1_000_000) if first is None else first
    failures: list[KafkaError] = []

    def record_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {**brokers(kafka).client, "acks": "all", "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
    )
    started = time.monotonic()
    sent = 0
    while (count is None or sent < count) and not stopped():
        due = int((time.monotonic() - started) * rate) + 1
        due = due if count is None else min(due, count)
        while sent < due:
            new_hit = hit(first + sent, time.time())
            try:
                producer.produce(
                    stream, key=str(new_hit["user"]), value=json.dumps(new_hit), on_delivery=record_failure
                )
            except BufferError:
                producer.poll(0.1)
                continue
            sent += 1
        time.sleep(min(0.02, max(MIN_PAUSE_SECONDS, 1 / rate)))
        producer.poll(0)
    seconds = time.monotonic() - started
    undelivered = producer.flush(FLUSH_SECONDS)
    return FeedResult(first, sent, len(failures) + undelivered, seconds)


def main(arguments: list[str] | None = None) -> int:
    """Feed until the count is reached or Ctrl-C is pressed."""
    parser = argparse.ArgumentParser(
        prog="python -m hits.feed", description="Feed numbered hits into the pipeline."
    )
    parser.add_argument("--rate", type=float, required=True, help="hits per second")
    parser.add_argument("--count", type=int, help="stop after this number of hits (default: at Ctrl-C)")
    parser.add_argument(
        "--first", type=int, help="number of the first hit (default: the time in microseconds)"
    )
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
            stopped=stop.is_set,
        )
    except (FileNotFoundError, endpoints.EndpointsError, KafkaException) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{json.dumps(asdict(result)) if chosen.json else result}\n")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
