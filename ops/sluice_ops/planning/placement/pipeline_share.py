"""The share of the whole pipeline: a ceiling for its tiers, and a minimum that batch cannot take.

A tier's slots are compared with the ceiling as the ceiling is set: as slots, or as parts of the
cluster. k of a tier's slots are k/n of the cluster if the empty hosts hold n. All numbers are
exact, and a tier gets whole slots only.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sluice_ops.model.share import Amount


@dataclass(frozen=True)
class Ask:
    """What one tier would get without the ceiling. Unit: slots."""

    fewest: int
    """Its minimum, which the ceiling does not lower."""
    slots: int
    spare: int
    size: Fraction
    """What one slot takes of the ceiling."""


def size_of_slot(amount: Amount, whole: int) -> Fraction:
    """Return what one slot takes of an amount, where `whole` slots are 100%."""
    return Fraction(1) if isinstance(amount, int) else Fraction(1, max(1, whole))


def divide(asks: Mapping[str, Ask], room: Fraction) -> dict[str, tuple[int, int]]:
    """Return the slots and the spares of each tier, so that all together take at most `room`.

    Minimums come first: if they take more than `room`, each tier gets its minimum. Then come the
    other slots, and spares last. Each tier gets the same part of what it asks for, and whole slots.
    A slot is left over only if it is too small for each tier that asks for more.
    """
    sizes = {name: ask.size for name, ask in asks.items()}
    fewest = {name: min(ask.fewest, ask.slots) for name, ask in asks.items()}
    room -= taken(fewest, sizes)
    more = _in_equal_parts({name: ask.slots - fewest[name] for name, ask in asks.items()}, sizes, room)
    room -= taken(more, sizes)
    spare = _in_equal_parts({name: ask.spare for name, ask in asks.items()}, sizes, room)
    return {name: (fewest[name] + more[name], spare[name]) for name in asks}


def taken(slots: Mapping[str, int], sizes: Mapping[str, Fraction]) -> Fraction:
    """Return what these slots take together."""
    return sum((count * sizes[name] for name, count in slots.items()), Fraction(0))


def taken_first(slots: Mapping[str, int], parts: Mapping[str, Fraction], most: int) -> Fraction:
    """Return the part of the cluster that `most` of these slots take, the largest slots first."""
    part = Fraction(0)
    for name in sorted(slots, key=lambda name: (-parts[name], name)):
        count = min(most, slots[name])
        part, most = part + count * parts[name], most - count
    return part


def _in_equal_parts(
    asked: Mapping[str, int], sizes: Mapping[str, Fraction], room: Fraction
) -> dict[str, int]:
    """Return how many of the asked slots each tier gets.

    The next slot goes to the tier with the smallest part of what it asked for (the method of
    D'Hondt). So with slots of one size, no tier loses a slot when the room grows.
    """
    needed = taken(asked, sizes)
    if needed <= room:
        return dict(asked)
    if room <= 0:
        return dict.fromkeys(asked, 0)
    slots = {name: int(count * room / needed) for name, count in asked.items()}
    left = room - taken(slots, sizes)
    queue = [(Fraction(slots[name] + 1, count), name) for name, count in asked.items() if slots[name] < count]
    heapq.heapify(queue)
    while queue:
        _, name = heapq.heappop(queue)
        if sizes[name] <= left:
            slots[name] += 1
            left -= sizes[name]
            if slots[name] < asked[name]:
                heapq.heappush(queue, (Fraction(slots[name] + 1, asked[name]), name))
    return slots
