"""`python -m hits.feed --rate N [--count N] [--first K] [--json]`: hits with numbered ids, at a steady rate whatever the pipeline does.

Called by `sluice feed` and by tests: what was fed is known by its numbers, so that loss and doubles can be shown.
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
"""A tenth of them are ads that nobody booked."""
PACE_SECONDS = 0.005
"""Between two looks at the clock at high rates."""
FLUSH_SECONDS = 30.0


@dataclass(frozen=True)
class Fed:
    """What a feed did."""

    first: int
    count: int
    failed: int
    seconds: float

    @property
    def last(self) -> int:
        """The last number."""
        return self.first + self.count - 1

    def __str__(self) -> str:
        """Say it in one line."""
        lost = f", {self.failed} not taken by Kafka" if self.failed else ""
        rate = self.count / max(self.seconds, 0.001)
        return f"hit-{self.first} to hit-{self.last}: {self.count} hits in {self.seconds:.1f} s, {rate:.0f}/s{lost}"


def hit(number: int, at: float) -> dict[str, object]:
    """Return hit `number`, the same user, ad and kind each time."""
    dice = random.Random(number)  # noqa: S311 — test data
    return {
        "id": f"hit-{number}",
        "user": f"user-{dice.randrange(1000)}",
        "ad": f"ad-{dice.randrange(ADS)}",
        "kind": dice.choice(KINDS),
        "at": int(at * 1000),
    }


def feed(  # noqa: PLR0913 — each is a choice of the caller
    kafka: str,
    rate: float,
    *,
    count: int | None = None,
    first: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
    stream: str = "raw",
) -> Fed:
    """Produce until `count` or `stopped`; the clock gives the pace, never the pipeline."""
    first = int(time.time() * 1_000_000) if first is None else first
    failures: list[KafkaError] = []

    def taken(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {**brokers(kafka).client, "acks": "all", "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
    )
    begun = time.monotonic()
    sent = 0
    while (count is None or sent < count) and not stopped():
        due = int((time.monotonic() - begun) * rate) + 1
        due = due if count is None else min(due, count)
        while sent < due:
            one = hit(first + sent, time.time())
            try:
                producer.produce(stream, key=str(one["user"]), value=json.dumps(one), on_delivery=taken)
            except BufferError:
                producer.poll(0.1)
                continue
            sent += 1
        time.sleep(min(0.02, max(PACE_SECONDS, 1 / rate)))
        producer.poll(0)
    seconds = time.monotonic() - begun
    left = producer.flush(FLUSH_SECONDS)
    return Fed(first, sent, len(failures) + left, seconds)


def main(arguments: list[str] | None = None) -> int:
    """Feed until the count is reached or Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m hits.feed", description="Feed numbered hits into the pipeline."
    )
    parser.add_argument("--rate", type=float, required=True, help="hits per second")
    parser.add_argument("--count", type=int, help="stop after so many; without it, at Ctrl-C")
    parser.add_argument("--first", type=int, help="number of the first hit; without it, taken from the clock")
    parser.add_argument("--json", action="store_true", help="print what was fed as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.rate <= 0:
        parser.error("--rate must be more than 0")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        fed = feed(
            endpoints.load().kafka_as(User.OUTSIDE),
            chosen.rate,
            count=chosen.count,
            first=chosen.first,
            stopped=stop.is_set,
        )
    except (FileNotFoundError, endpoints.EndpointsError, KafkaException) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{json.dumps(asdict(fed)) if chosen.json else fed}\n")
    return 1 if fed.failed else 0


if __name__ == "__main__":
    sys.exit(main())
