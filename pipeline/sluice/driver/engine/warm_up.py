"""The warm-up of a query over recent records: it ends when the query gets no quicker (decision
record 0008).

`level` judges the batches of a tier with a sink; `warm_up_streams` runs the warm-up of a tier that
writes streams.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sluice.driver.engine.settings import EngineConfig
from sluice.driver.spark.queries import is_idle
from sluice.driver.spark.slots import records_read
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


def warm_up_range(config: EngineConfig) -> tuple[dict[str, int], int]:
    """Return positions shortly before the ends of the inputs, and how many offsets lie
    behind them.
    """
    bounds = config.streams.bounds(config.inputs)
    begins = {name: max(bounds.oldest[name], end - ENOUGH_RECORDS) for name, end in bounds.ends.items()}
    return begins, sum(bounds.ends[name] - begin for name, begin in begins.items())


def warm_up_streams(
    config: EngineConfig, start: "Callable[[dict[str, int], str], StreamingQuery]", go_on: Callable[[], bool]
) -> None:
    """Run a query into warm-up streams, which no tier reads, until its output settles or `go_on`
    returns False.

    `start` begins the query at given offsets, with its checkpoint in a given folder.
    """
    streams = [name + lineage.WARM_UP for name in config.outputs]
    begins, wanted = warm_up_range(config)
    out_at_start = out = sum(config.streams.bounds(streams).ends.values())
    folder = tempfile.mkdtemp(prefix=f"sluice-warm-{config.tier.name}-")
    query, flow = start(begins, folder), Outflow(wanted, time.monotonic())
    while go_on() and query.exception() is None:
        at_work = is_idle(query) or records_read(config.session)[1] > 0
        if flow.settled(time.monotonic(), out - out_at_start, at_work=at_work):
            break
        time.sleep(0.2)
        out = sum(config.streams.bounds(streams).ends.values())
    failure = query.exception()
    query.stop()
    shutil.rmtree(folder, ignore_errors=True)
    if failure is not None:
        raise failure
