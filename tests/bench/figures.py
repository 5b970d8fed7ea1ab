"""Numbers of a window of records: latency, gaps, lost records and duplicates. Pure functions."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import NamedTuple

PERCENTS = {"p50": Fraction(50), "p95": Fraction(95), "p99": Fraction(99), "p99.9": Fraction("99.9")}


class Arrival(NamedTuple):
    """A record as the consumer of the last stream saw it."""

    number: int
    due: float
    """When the record was due in the first stream. Unit: seconds since 1970."""
    at: float
    new: bool
    """Whether the system's own reader accepts the record; False for a replay that the system marks
    as one.
    """


def first_of_each(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Return the first copy of each record."""
    first: dict[int, Arrival] = {}
    for arrival in arrivals:
        first.setdefault(arrival.number, arrival)
    return list(first.values())


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Return the percentiles and the maximum."""
    ordered = sorted(values)
    values_by_name = {name: percentile(ordered, percent) for name, percent in PERCENTS.items()}
    return {name: round(value, 2) for name, value in {**values_by_name, "most": ordered[-1]}.items()}


def percentile(ordered: Sequence[float], percent: Fraction) -> float:
    """Return the smallest value that this percentage of all values does not exceed."""
    return ordered[ceil(len(ordered) * percent / 100) - 1]


def milliseconds(first: Iterable[Arrival]) -> dict[str, float]:
    """Return the percentiles of the records' latency."""
    return percentiles((arrival.at - arrival.due) * 1000 for arrival in first)


def longest_gap(times: Iterable[float], start: float, end: float) -> float:
    """Return the longest time without a record in the window."""
    inside = sorted(at for at in times if start <= at <= end)
    return max(later - earlier for earlier, later in pairwise([start, *inside, end]))


def disturbance(arrivals: Sequence[Arrival], sent: int, start: float, end: float) -> dict[str, float | int]:
    """Return the effect of a move or kill between two moments on the records."""
    first = first_of_each(arrivals)
    return {
        "gap_seconds": round(longest_gap((arrival.at for arrival in first), start, end), 3),
        "most_waited_seconds": round(
            max((record.at - record.due for record in first if start - 1 <= record.due <= end), default=0.0),
            3,
        ),
        "sent": sent,
        "lost": sent - len(first),
        "twice": len(arrivals) - len(first),
        "twice_after_the_reader": sum(arrival.new for arrival in arrivals) - len(first),
    }


def has_no_lag(arrivals: Sequence[Arrival], rate: float, at: float) -> bool:
    """Tell whether every record that was due until `at` has arrived, at this rate from
    number 0 on.
    """
    if not arrivals:
        return False
    start = arrivals[0].due - arrivals[0].number / rate
    count = int((at - start) * rate)
    return len({arrival.number for arrival in arrivals if arrival.number < count}) >= count


def highest_sustained(sustains: Callable[[int], bool], first: int) -> int:
    """Double the rate until it is not sustained, then halve the distance twice.

    Return 0 if `first` is not sustained.
    """
    low, high = 0, first
    while sustains(high):
        low, high = high, high * 2
    for _ in range(2 if low else 0):
        middle = (low + high) // 2
        low, high = (middle, high) if sustains(middle) else (low, middle)
    return low


def waits(dues: Sequence[float], counts: Sequence[tuple[float, int]]) -> list[float]:
    """Return how long each record waited, if an output tells only how many records it has.

    `dues` are in order; `counts` are the output's counts and their times. Record N counts as out
    when the output has N records, so records that pass each other count as if they did not.
    """
    result: list[float] = []
    for at, count in counts:
        result.extend(at - due for due in dues[len(result) : count])
    return result


def keeps_up(waited: Sequence[float], rate: int, most: float) -> bool:
    """Tell whether the wait of the window's last second is at most `most` seconds longer than the
    wait of the window's first half, both in the median.

    `waited` has the waits of all records, in the order in which they were due.
    """
    last, half = waited[-rate:], waited[: len(waited) // 2]
    return statistics.median(last) - statistics.median(half) <= most


class Rung(NamedTuple):
    """The result of one offered rate."""

    rate: int
    sustained: bool
    throughput: float
    """How many records a second came out while they were offered at this rate."""


CLOSE = 1.15
"""Two rates are close enough if the higher one is at most this many times the lower one."""


def climbed(rung_of: Callable[[int], Rung], first: int, is_over: Callable[[], bool]) -> list[Rung]:
    """Double the rate until it is not sustained, then close in on the highest sustained rate.

    The throughput at a rate that is not sustained is the best guess of the next rate. End when the
    highest sustained and the lowest other rate are close, or `is_over()`.
    """
    rungs = [rung_of(first)]
    while not is_over():
        low = max((rung.rate for rung in rungs if rung.sustained), default=0)
        not_sustained = [rung for rung in rungs if not rung.sustained]
        if not not_sustained:
            rungs.append(rung_of(low * 2))
            continue
        high = min(not_sustained)
        quarter = (high.rate - low) / 4
        rate = round(min(max(high.throughput, low + quarter), high.rate - quarter))
        if high.rate <= low * CLOSE or not low < rate < high.rate:
            break
        rungs.append(rung_of(rate))
    return rungs


def highest(rungs: Iterable[Rung]) -> int:
    """Return the highest sustained rate, or 0."""
    return max((rung.rate for rung in rungs if rung.sustained), default=0)
