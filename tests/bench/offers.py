"""One rate that is offered for a while: the measurement is the same for every system."""

import time
from collections.abc import Callable
from typing import NamedTuple

from tests.bench.flow import Feed, load, sent
from tests.bench.short.outputs import Output

BEHIND_SECONDS = 1.0
"""A rate is sustained if at most this many seconds of it are not sent, or not out, in time."""


class Offer(NamedTuple):
    """The result of an offered rate."""

    rate: int
    sent: int
    unsent_seconds: float
    """How long after its due end the load ended."""
    expected: int
    """How many records should come out."""
    came: int
    """How many records came out in time."""
    behind: int
    """How many records did not come out of a part of the system in time."""
    throughput: float
    """How many records a second came out while they were offered."""

    @property
    def sustained(self) -> bool:
        return max(self.unsent_seconds, self.behind / self.rate) <= BEHIND_SECONDS

    def figures(self, processor_seconds: float) -> dict[str, float]:
        """Return the figures for a file of results; the system used these processor seconds."""
        return {
            "rate": self.rate,
            "sustained": self.sustained,
            "sent": self.sent,
            "unsent_seconds": round(self.unsent_seconds, 2),
            "behind": self.behind,
            "processor_seconds_per_million": round(processor_seconds / max(self.came, 1) * 1e6),
        }


def offer(
    kafka: str,
    feed: Feed,
    rate: int,
    seconds: float,
    output: Output,
    pause: float = 0.0,
    waiting: Callable[[], int] | None = None,
) -> Offer:
    """Offer a rate; after a pause, look at the output and at the records that wait elsewhere."""
    before = output.count()
    count, start = sent(load(kafka, rate, seconds, feed))
    unsent_seconds = time.time() - start / 1e9 - count / rate
    expected = output.expected(feed, count)
    time.sleep(pause)
    came, took = output.count() - before, time.time() - start / 1e9
    behind = max(expected - came, waiting() if waiting else 0)
    return Offer(rate, count, unsent_seconds, expected, came, behind, (count - behind) / (took - pause))
