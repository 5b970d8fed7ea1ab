"""Numbers of a window of records: latency, gaps, lost records and duplicates. Pure functions."""

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
