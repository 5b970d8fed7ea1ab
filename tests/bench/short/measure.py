"""The measurements of one system with one workload."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.bench.figures import PERCENTS, Rung, climbed, highest, keeps_up, percentile, percentiles
from tests.bench.flow import Feed
from tests.bench.offers import BEHIND_SECONDS, offer
from tests.bench.peers.system import System
from tests.bench.short.outputs import Output
from tests.bench.short.shares import Times, bound

WARM_RATE, WARM_SECONDS = 2_000, 10.0
RATES = (1_000, 5_000)
WINDOW_SECONDS = 8.0
RUNG_SECONDS = 5.0
SEARCH_SECONDS, SEARCH_RATES = 25.0, 3
"""After so much time and so many rates, no further rate is tried."""
DRAIN_SECONDS = 90.0
"""The longest wait for the records of a rate that was too high."""


def nothing() -> None:
    """Find nothing wrong."""


@dataclass
class Side:
    """A system that runs a workload."""

    system: System
    stream: str
    """The stream that the load writes."""
    output: Output
    check: Callable[[], str | None] = nothing
    """Returns what is wrong with the results, or None."""
    waiting: Callable[[], int] | None = None
    """Returns how many records wait for a part of the system that `output` does not show."""
    before: Callable[[], str | None] = nothing
    """Sends records before the load; returns what is wrong with their results, or None."""


@dataclass
class Measurement:
    side: Side
    kafka: str
    home: Path
    feed: Feed
    normal_seconds: float = 0.0
    """How long it takes in the warm-up until all of the system has processed a record.

    So long after the load's end, the records of a sustained rate are out.
    """
    _drained: bool = True
    _details: list[dict[str, Any]] = field(default_factory=list)

    def warm(self) -> None:
        """Warm up; the second half of it tells the normal time."""
        window = self.side.output.window(self.feed, WARM_RATE, WARM_SECONDS)
        self._go_on(window.sent)
        settled = self._wait_for_others()
        half = sorted(window.waited[len(window.waited) // 2 :])
        others = settled - window.end if self.side.waiting is not None else 0.0
        self.normal_seconds = max(percentile(half, PERCENTS["p99"]) if half else 0.0, others)

    def latencies(self) -> dict[str, Any]:
        """Measure the latency at each rate, unless records of the search are still on their way."""
        return {str(rate): self._latency(rate) for rate in RATES} if self._drained else {}

    def _latency(self, rate: int) -> dict[str, Any]:
        before = Times.now(self.side.system, self.home)
        window = self.side.output.window(self.feed, rate, WINDOW_SECONDS)
        later = Times.now(self.side.system, self.home)
        self._go_on(window.sent)
        self._wait_for_others()
        spent = later.system_seconds - before.system_seconds
        result = {
            "sent": window.sent,
            "came": len(window.waited),
            "processor_seconds_per_million": round(spent / window.sent * 1e6),
            "processors": before.shares(later),
        }
        if len(window.waited) < window.expected:
            return {**result, "milliseconds": None, "reason": "not all records came out"}
        milliseconds = percentiles(wait * 1000 for wait in window.waited)
        per_second = round(window.expected / WINDOW_SECONDS)
        if not keeps_up(window.waited, per_second, BEHIND_SECONDS):
            reason = f"not sustained: the last second's records took up to {milliseconds['most']:.0f} ms"
            return {**result, "milliseconds": None, "reason": reason}
        return {**result, "milliseconds": milliseconds}

    def rate(self, first: int) -> dict[str, Any]:
        """Search the highest sustained rate, from `first` on."""
        end = time.monotonic() + SEARCH_SECONDS
        self._details = []

        def is_over() -> bool:
            late = time.monotonic() > end and len(self._details) >= SEARCH_RATES
            return late or not self._drained

        rungs = climbed(self._rung, first, is_over)
        best = highest(rungs)
        limit = min((rung for rung in self._details if not rung["sustained"]), key=_rate, default=None)
        return {
            "highest": best or None,
            "rungs": self._details,
            "bound": None if limit is None else bound(limit["processors"], psutil.cpu_count() or 1),
        }

    def _rung(self, rate: int) -> Rung:
        """Offer a rate for a while; then wait until all its records are out."""
        side = self.side
        out = side.output.count()
        before = Times.now(side.system, self.home)
        result = offer(
            self.kafka, self.feed, rate, RUNG_SECONDS, side.output, self.normal_seconds, side.waiting
        )
        later = Times.now(side.system, self.home)
        self._go_on(result.sent)
        spent = later.system_seconds - before.system_seconds
        self._details.append({**result.figures(spent), "processors": before.shares(later)})
        end = time.monotonic() + DRAIN_SECONDS
        while side.output.count() - out < result.expected and time.monotonic() < end:
            time.sleep(0.2)
        self._wait_for_others()
        self._drained = time.monotonic() < end
        return Rung(rate, result.sustained, result.throughput)

    def _wait_for_others(self) -> float:
        """Wait until nothing waits for the parts that the output does not show; return the time."""
        waiting = self.side.waiting
        end = time.monotonic() + DRAIN_SECONDS
        while waiting is not None and waiting() and time.monotonic() < end:
            time.sleep(0.2)
        return time.time()

    def _go_on(self, count: int) -> None:
        self.feed = self.feed._replace(first=self.feed.first + count)


def _rate(rung: dict[str, Any]) -> int:
    return int(rung["rate"])
