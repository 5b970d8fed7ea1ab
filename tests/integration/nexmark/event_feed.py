"""Events of Nexmark in the streams after the entry: some come twice, some too late."""

import json
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import Producer

from nexmark import LATENESS
from nexmark.events import LONGEST_MS, ROUND, event
from nexmark.joins import CATEGORY, LOCAL_STATES, REMEMBERED
from sluice.api.declarations import Tier
from sluice.records.state_inputs import APART
from tests.lab import Lab
from tests.repeating import repeated

Event = dict[str, Any]
PARTITIONS = 4
RATE, TICK_SECONDS = 40, 0.25
EVERY_MS = 100
PORTION, NUMBERS, PORTION_MS = 400, 20 * ROUND, 400_000
"""The events of a portion; the numbers and the event time from one portion to the next one, which
makes the windows and auctions of the former one final.
"""
SELECTED = 123
"""q2 selects the bids on each auction whose number divides by this one."""
TWICE, LATE = 7, 61
"""Of so many events, one comes twice, or too late."""
LAST = 10_000_000
"""The number of the first event after all portions; no seller there is a person of a portion."""


class Sent(NamedTuple):
    """An event in its stream."""

    event: Event
    arrived: int
    """Unit: epoch ms."""
    times: int
    is_late: bool

    @property
    def stream(self) -> str:
        return f"{self.event['kind']}s"


def as_entry_writes(event: Event, origin: str, path: str, arrived: int) -> dict[str, Any]:
    """Return stream, value and headers of an event behind the entry.

    Unit of `arrived`: epoch ms.
    """
    words = {"origin": origin, "path": path, "t0": str(arrived)}
    return {
        "topic": f"{event['kind']}s",
        "value": json.dumps({name: given for name, given in event.items() if name != "kind"}),
        "headers": {name: word.encode() for name, word in words.items()},
    }


@dataclass
class EventFeed:
    """Writes events into the streams of persons, auctions and bids, as the entry does."""

    lab: Lab
    begin: int = field(default_factory=lambda: (int(time.time()) - 2 * REMEMBERED) * 1000)
    """When the first event happens. Unit: epoch ms."""
    portions: list[Sent] = field(default_factory=list)
    last: list[Sent] = field(default_factory=list)
    """Events that make the portions final."""

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.lab.endpoints.kafka, "acks": "all"})
        self._offsets = [count() for _ in range(PARTITIONS)]

    def give(self, events: int) -> None:
        """Write the next events of the portions."""
        for number in range(len(self.portions), len(self.portions) + events):
            portion, place = divmod(number, PORTION)
            arrived = self.begin + portion * PORTION_MS + place * EVERY_MS
            is_late = number % LATE == LATE - 1
            happened = arrived - (LATENESS + 1) * 1000 if is_late else arrived
            one = event(1, portion * NUMBERS + place, happened)
            self.portions.append(Sent(one, arrived, 1 + (number % TWICE == 0), is_late))
            self._put(self.portions[-1], number % PARTITIONS)
        assert self._producer.flush(30) == 0

    def give_last(self) -> None:
        """Write a person, an auction and a bid into each partition, when all portions are final."""
        arrived = self.end + (REMEMBERED + LATENESS + 2 * APART) * 1000 + len(self.last)
        for partition in range(PARTITIONS):
            for place in (0, 1, 4):
                one = event(1, LAST + len(self.last) * ROUND + place, arrived)
                self.last.append(Sent(one, arrived, 1, is_late=False))
                self._put(self.last[-1], partition)
        assert self._producer.flush(30) == 0

    @property
    def end(self) -> int:
        """When the windows and auctions of the portions have ended. Unit: epoch ms."""
        return self.portions[-1].arrived + LONGEST_MS

    def read_by(self, tier: Tier) -> list[Event]:
        """Return the events of all kinds that a tier counts, once each."""
        sent = [*self.portions, *self.last]
        if tier.state is None:
            return [one.event for one in sent]
        if tier.state.time is None:
            return [{**one.event, "at": one.arrived} for one in sent]
        return [one.event for one in sent if not one.is_late]

    def equation(self, tier: Tier) -> tuple[int, ...]:
        """Return the expected ledger of a tier.

        The numbers are rows in, rows out, filtered, replays, late, and gaps between batches. A bid
        that q2 does not select is filtered each time that it comes.
        """
        streams = {stream.name for stream in tier.inputs}
        read = [one for one in (*self.portions, *self.last) if one.stream in streams]
        judged = tier.state is not None and tier.state.time is not None
        late = sum(one.times for one in read if one.is_late and judged)
        taken = [one for one in read if not (one.is_late and judged)]
        unselected = [one for one in taken if tier.name == "q2" and one.event["auction"] % SELECTED]
        filtered = sum(one.times for one in unselected) + self._unmatched(tier.name)
        replays = sum(one.times - 1 for one in taken) - sum(one.times - 1 for one in unselected)
        rows_in = late + sum(one.times for one in taken)
        return rows_in, rows_in - late - filtered - replays, filtered, replays, late, 0

    def _unmatched(self, query: str) -> int:
        """Return how many persons and auctions of the portions found no partner in a join."""
        taken = [one.event for one in self.portions if not one.is_late]
        persons = [one for one in taken if one["kind"] == "person"]
        auctions = [one for one in taken if one["kind"] == "auction"]
        if query == "q3":
            sellers = {one["id"] for one in persons if one["state"] in LOCAL_STATES}
            items = [one["seller"] for one in auctions if one["category"] == CATEGORY]
            return len(sellers - set(items)) + sum(seller not in sellers for seller in items)
        if query == "q8":
            registered = {(one["id"], one["at"] // 10_000) for one in persons}
            opened = [(one["seller"], one["at"] // 10_000) for one in auctions]
            return len(registered - set(opened)) + sum(seller not in registered for seller in opened)
        return 0

    def _put(self, sent: Sent, partition: int) -> None:
        origin = next(self._offsets[partition])
        record = as_entry_writes(sent.event, f"{partition}:{origin}", str(partition), sent.arrived)
        for _ in range(sent.times):
            self._producer.produce(**record, partition=partition)


def feeding(feed: EventFeed) -> AbstractContextManager[None]:
    """Write `RATE` events a second until the end of the block."""
    return repeated(lambda: feed.give(int(RATE * TICK_SECONDS)), every=TICK_SECONDS)
