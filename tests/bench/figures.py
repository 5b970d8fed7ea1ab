"""What a window of records tells: how long they took, when none came, what is missing and what came twice. Pure."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import NamedTuple

PERCENTS = {"p50": Fraction(50), "p95": Fraction(95), "p99": Fraction(99), "p99.9": Fraction("99.9")}


class Arrival(NamedTuple):
    """One record as the consumer of the last stream saw it."""

    number: int
    due: float
    """When it was due in the first stream. Unit: seconds since 1970."""
    at: float
    new: bool
    """Whether the system's own reader lets it through; False for a replay that the system marks as one."""


def first_of_each(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Leave out every record that came before."""
    first: dict[int, Arrival] = {}
    for arrival in arrivals:
        first.setdefault(arrival.number, arrival)
    return list(first.values())


def shares(values: Iterable[float]) -> dict[str, float]:
    """Return the percentiles, and the most."""
    ordered = sorted(values)
    found = {name: within(ordered, percent) for name, percent in PERCENTS.items()}
    return {name: round(value, 2) for name, value in {**found, "most": ordered[-1]}.items()}


def within(ordered: Sequence[float], percent: Fraction) -> float:
    """Return the least value that so many per cent of all do not exceed."""
    return ordered[ceil(len(ordered) * percent / 100) - 1]


def milliseconds(first: Iterable[Arrival]) -> dict[str, float]:
    """Return how long the records took."""
    return shares((arrival.at - arrival.due) * 1000 for arrival in first)


def widest(times: Iterable[float], begun: float, over: float) -> float:
    """Return the longest time in the window at which nothing came."""
    inside = sorted(at for at in times if begun <= at <= over)
    return max(later - earlier for earlier, later in pairwise([begun, *inside, over]))


def disturbance(arrivals: Sequence[Arrival], sent: int, begun: float, over: float) -> dict[str, float | int]:
    """Return what a move or a kill between two moments did to the records."""
    first = first_of_each(arrivals)
    return {
        "gap_seconds": round(widest((arrival.at for arrival in first), begun, over), 3),
        "most_waited_seconds": round(
            max((each.at - each.due for each in first if begun - 1 <= each.due <= over), default=0.0), 3
        ),
        "sent": sent,
        "lost": sent - len(first),
        "twice": len(arrivals) - len(first),
        "twice_after_the_reader": sum(arrival.new for arrival in arrivals) - len(first),
    }


def level(arrivals: Sequence[Arrival], rate: float, at: float) -> bool:
    """Tell whether every record that was due by then, at this rate from number 0 on, has come."""
    if not arrivals:
        return False
    begun = arrivals[0].due - arrivals[0].number / rate
    count = int((at - begun) * rate)
    return len({arrival.number for arrival in arrivals if arrival.number < count}) >= count


def highest_sustained(sustains: Callable[[int], bool], first: int) -> int:
    """Double the rate until it is not sustained, then halve the distance twice; 0 when not even the first one is."""
    low, high = 0, first
    while sustains(high):
        low, high = high, high * 2
    for _ in range(2 if low else 0):
        middle = (low + high) // 2
        low, high = (middle, high) if sustains(middle) else (low, middle)
    return low
