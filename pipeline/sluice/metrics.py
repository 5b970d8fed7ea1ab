"""Counters of a pipeline's own, which Prometheus reads with the tier's other metrics.

    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType

    from sluice import metrics

    BOTS = metrics.counter("bots", "Hits of known bots.")


    @F.udf(BooleanType())
    def is_bot(agent):
        matches = "bot" in agent
        BOTS.add(matches)
        return matches

The example is `sluice_own_bots_total`. A counter counts in Python functions on the workers, and in
the driver: in hooks and sinks. Spark carries the counts of a task to the driver when the task
succeeds. So records of a batch that is repeated count again, and counts are not exact: the ledger
and the audit account for records.
"""

import operator
import re
import sys
import threading
from collections import Counter as Sums
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

__all__ = ["Counter", "MetricError", "counter"]

MOST = 100
"""The most counters of a pipeline."""
LONGEST = 60
"""The most characters of a name."""
ACCUMULATOR = -7501
"""The id of the accumulator, equal in all processes.

Spark numbers a session's accumulators from 0, and its profilers have -1 and -2. A worker imports a
pipeline's module by its name, so a counter there cannot carry an id that the driver has chosen.
"""

_texts: dict[str, str] = {}
_in_driver = Sums[str]()
_lock = threading.Lock()


class MetricError(ValueError):
    """A counter cannot be declared, or cannot count this."""


@dataclass(frozen=True)
class Counter:
    """A number that only grows, since the start of the tier's driver."""

    name: str

    def add(self, count: SupportsIndex = 1) -> None:
        """Add a whole number, or a truth value; raise MetricError if it is negative."""
        try:
            number = operator.index(count)
        except TypeError:
            number = -1
        if number < 0:
            message = f"counter {self.name}: add takes a whole number of 0 or more, not {count!r}"
            raise MetricError(message)
        if _in_task():
            _of_task().add({self.name: number})
        else:
            with _lock:
                _in_driver[self.name] += number


def counter(name: str, text: str) -> Counter:
    """Declare a counter, best at the top of the pipeline's module; `text` says what it counts.

    Prometheus knows it as `sluice_own_<name>_total`. Raise MetricError if a name cannot be used.
    """
    if not re.fullmatch(rf"[a-z][a-z0-9_]{{0,{LONGEST - 1}}}", name) or name.endswith(("_", "_total")):
        message = (
            f"counter {name!r}: a name has 1 to {LONGEST} characters, a to z, 0 to 9 and _, begins with a "
            "letter, and does not end with _ or _total, which Sluice adds; such as bots_found"
        )
        raise MetricError(message)
    if not text.strip():
        message = f'counter {name}: say what it counts, such as counter("{name}", "Hits of known bots.")'
        raise MetricError(message)
    if name not in _texts and len(_texts) >= MOST:
        message = (
            f"counter {name}: a pipeline has at most {MOST} counters, because Prometheus keeps a series for "
            "each; do not make names of data"
        )
        raise MetricError(message)
    _texts[name] = text.strip()
    return Counter(name)


def receive() -> None:
    """Receive from now on what the workers count; the driver calls it for its Spark session."""
    from pyspark.accumulators import Accumulator, _accumulatorRegistry  # noqa: PLC0415 - takes a second

    if ACCUMULATOR not in _accumulatorRegistry:
        Accumulator(ACCUMULATOR, {}, _ADDED)


def totals() -> dict[str, int]:
    """Return what each declared counter has counted in this process and on its workers."""
    with _lock:
        sums = Sums(_in_driver)
    sums.update(_received())
    return {name: sums[name] for name in sorted({*_texts, *sums})}


def text_of(name: str) -> str:
    """Return what a counter counts; of one that only a worker has declared, its name."""
    return _texts.get(name, name)


def _received() -> Mapping[str, int]:
    accumulators: Any = sys.modules.get("pyspark.accumulators")
    received = None if accumulators is None else accumulators._accumulatorRegistry.get(ACCUMULATOR)  # noqa: SLF001
    return {} if received is None else dict(received.value)


def _in_task() -> bool:
    """Tell whether this process is a worker of Spark, in the middle of a task."""
    context: Any = sys.modules.get("pyspark.taskcontext")
    return context is not None and context.TaskContext.get() is not None


def _of_task() -> Any:
    """Return the accumulator of the task. Spark forgets it when the next task begins."""
    from pyspark.accumulators import _accumulatorRegistry, _deserialize_accumulator  # noqa: PLC0415

    return _accumulatorRegistry.get(ACCUMULATOR) or _deserialize_accumulator(ACCUMULATOR, {}, _ADDED)


class _Added:
    """How Spark adds counts: by name."""

    def zero(self, value: dict[str, int]) -> dict[str, int]:  # noqa: ARG002 - Spark's protocol
        """Return no counts."""
        return {}

    def addInPlace(self, value: dict[str, int], more: dict[str, int]) -> dict[str, int]:  # noqa: N802
        """Return new counts, because a scrape may read the present ones."""
        return {name: value.get(name, 0) + more.get(name, 0) for name in (*value, *more)}


_ADDED: Any = _Added()
