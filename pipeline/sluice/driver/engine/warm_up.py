"""The warm-up of a query over recent records: it ends when the query gets no quicker (decision
record 0008).

`level` judges the batches of a tier with a sink. `warm_up_streams` warms a tier that writes
streams, before it runs; `WarmUp` warms single workers that join it (decision 88).
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from sluice.driver.engine.settings import EngineConfig
from sluice.driver.spark.queries import is_idle
from sluice.driver.spark.slots import records_read
from sluice.kafka.reader import topic_and_number
from sluice.records import lineage

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

MOST_SECONDS = 60.0
"""The longest time of a warm-up."""
ENOUGH_RECORDS = 1_000
"""Records of each partition that a warm-up reads, so that the JVM compiles the code of the
transform.
"""
LEVEL = 0.8
"""Batches that take at least this part of the time of the batches before have stopped getting
quicker.
"""
LOOK_BACK_SECONDS = 3.0
"""One and a half micro-batches."""


def level(seconds: Sequence[float]) -> bool:
    """Tell whether the last two batches took at least four fifths of the time of the two batches
    before. Pure.
    """
    before, last = seconds[-4:-2], seconds[-2:]
    return len(before) == len(last) == 2 and sum(last) >= LEVEL * sum(before)  # noqa: PLR2004 - two and two


class Outflow:
    """Watches the output of a query whose tasks may run for a day, so that batch times tell
    nothing. Pure.
    """

    def __init__(self, wanted: int, begun: float) -> None:
        """Expect at most `wanted` output records, for the transform may filter.

        `begun` is on the monotonic clock.
        """
        self._wanted, self._begun, self._works = wanted, begun, False
        self._seen: list[tuple[float, int]] = []

    def settled(self, now: float, out: int, *, at_work: bool) -> bool:
        """Tell whether the output is complete, or at most half of it came out in the last seconds.

        Not settled: before tasks have been at work, and before the first output where some is
        expected.
        """
        if out >= (self._wanted or ENOUGH_RECORDS) or now - self._begun > MOST_SECONDS:
            return True
        self._works = self._works or at_work
        if not self._works or (out == 0 and self._wanted):
            return False
        self._seen.append((now, out))
        earlier_counts = [count for at, count in self._seen if at <= now - LOOK_BACK_SECONDS]
        return bool(earlier_counts) and 2 * (out - earlier_counts[-1]) <= out


def warm_up_range(
    config: EngineConfig, partitions: Collection[str] | None = None
) -> tuple[dict[str, int], int]:
    """Return positions shortly before the ends of the inputs, and how many offsets lie
    behind them.

    Only of some partitions, if they are given.
    """
    bounds = config.streams.bounds(config.inputs)
    begins = {
        name: max(bounds.oldest[name], end - ENOUGH_RECORDS)
        for name, end in bounds.ends.items()
        if partitions is None or name in partitions
    }
    return begins, sum(bounds.ends[name] - begin for name, begin in begins.items())


def first_partitions(partitions: Collection[str], count: int) -> list[str]:
    """Return so many partitions, the first ones of each stream, and at least one of each. Pure."""
    by_number = sorted(partitions, key=lambda name: topic_and_number(name)[::-1])
    streams = {topic_and_number(name)[0] for name in partitions}
    return by_number[: max(count, len(streams))]


class WarmUp:
    """A query over recent records, into warm-up streams, which no tier reads."""

    def __init__(
        self,
        config: EngineConfig,
        start: "Callable[[dict[str, int], str], StreamingQuery]",
        partitions: Collection[str] | None = None,
    ) -> None:
        """Begin; `start` begins the query at given offsets, with its checkpoint in a folder."""
        self._config = config
        self._streams = [name + lineage.WARM_UP for name in config.outputs]
        begins, wanted = warm_up_range(config, partitions)
        self._out_at_start = self._out()
        self._folder = tempfile.mkdtemp(prefix=f"sluice-warm-{config.tier.name}-")
        self._query, self._flow = start(begins, self._folder), Outflow(wanted, time.monotonic())

    def _out(self) -> int:
        return sum(self._config.streams.bounds(self._streams).ends.values())

    def is_over(self) -> bool:
        """Tell whether the output has settled, or the query has failed."""
        query = self._query
        if query.exception() is not None:
            return True
        at_work = is_idle(query) or records_read(self._config.session, query)[1] > 0
        return self._flow.settled(time.monotonic(), self._out() - self._out_at_start, at_work=at_work)

    def stop(self) -> Exception | None:
        """Stop the query; return why it has failed, if so."""
        failure: Exception | None = self._query.exception()
        self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        return failure


def warm_up_streams(
    config: EngineConfig, start: "Callable[[dict[str, int], str], StreamingQuery]", go_on: Callable[[], bool]
) -> None:
    """Warm up all executors until the output settles, or `go_on` returns False."""
    warm_up = WarmUp(config, start)
    while go_on() and not warm_up.is_over():
        time.sleep(0.2)
    if (failure := warm_up.stop()) is not None:
        raise failure
