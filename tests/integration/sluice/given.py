"""What tiers with state are given in tests, some of it twice and some of it late, and what comes of it by hand."""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

from sluice.kafka.reader import Streams
from tests.integration.sluice.holding import LATENESS
from tests.lab import Lab, until

PARTITIONS = range(4)


@dataclass
class Feed:
    """Plays the tier before: numbered records, some of them again, some of them late."""

    lab: Lab
    begun: int = field(default_factory=lambda: int(time.time() * 1000) - 300_000)
    given: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0
    people: int = 5
    """So many have hits."""
    late: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    _offsets: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.lab.endpoints.kafka, "acks": "all"})

    def put(self, stream: str, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            partition = row["id"] % len(PARTITIONS)
            late = row["id"] % 50 == 49
            at = row["at"] - (LATENESS + 1) * 1000 if late else row["at"]
            origin = self._offsets[stream, partition]
            self._offsets[stream, partition] += 1
            times = 1 + (row["id"] % 7 == 0)
            headers = {"origin": f"{partition}:{origin}", "path": str(partition), "t0": str(row["at"])}
            for _ in range(times):
                self._producer.produce(
                    stream,
                    value=json.dumps(row | {"at": at}),
                    partition=partition,
                    headers={key: value.encode() for key, value in headers.items()},
                )
            if late:
                self.late[stream] += times
            else:
                self.given[stream].append(row)
                self.again[stream] += times - 1
        assert self._producer.flush(30) == 0

    def sold(self, count: int) -> None:
        """Give hits, for each third of them a buy a second later, and for each tenth a buy of a hit that there is not."""
        before = len(self.given["hits"])
        self.hits(count)
        hits = self.given["hits"][before:]
        self.put(
            "buys",
            [
                {"id": hit["id"], "hit": hit["id"], "at": hit["at"] + 1000}
                for hit in hits
                if hit["id"] % 3 == 0
            ],
        )
        self.put(
            "buys",
            [{"id": -hit["id"], "hit": -hit["id"], "at": hit["at"]} for hit in hits if hit["id"] % 10 == 3],
        )

    def equation(self, *streams: str, filtered: int = 0) -> tuple[int, ...]:
        """Return what the ledger of a tier that reads these streams has to say: in, out, filtered, replays, late, holes."""
        given = sum(len(self.given[stream]) for stream in streams)
        again, late = (sum(counts[stream] for stream in streams) for counts in (self.again, self.late))
        return given + again + late, given - filtered, filtered, again, late, 0

    def hits(self, count: int) -> None:
        """Give the next numbers as hits, a hundred for each second of their time."""
        numbers = range(self.number, self.number + count)
        self.number += count
        self.put(
            "hits",
            [
                {"id": number, "who": f"user-{number % self.people}", "at": self.begun + number * 10}
                for number in numbers
            ],
        )


def windows(hits: list[dict[str, Any]]) -> dict[tuple[str, datetime], tuple[int, int]]:
    found: dict[tuple[str, datetime], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for hit in hits:
        key = (hit["who"], datetime.fromtimestamp(hit["at"] // 10_000 * 10, UTC))
        found[key] = (found[key][0] + 1, found[key][1] + hit["id"])
    return dict(found)


def sums(hits: list[dict[str, Any]]) -> dict[tuple[str], tuple[int, int]]:
    found: dict[tuple[str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for hit in hits:
        count, ids = found[hit["who"],]
        found[hit["who"],] = (count + 1, ids + hit["id"])
    return dict(found)


@contextmanager
def giving(feed: Feed, rate: int) -> Iterator[None]:
    """Give hits all the while, so many in a second."""
    over = threading.Event()

    def give() -> None:
        while not over.wait(0.1):
            feed.hits(rate // 10)

    giver = threading.Thread(target=give)
    giver.start()
    try:
        yield
    finally:
        over.set()
        giver.join()


def windows_are_right(lab: Lab, feed: Feed, mark: int = 1 << 62) -> None:
    """All that was given is counted in windows, once; some code adds `mark` to the sums that it writes."""
    looker = Streams(lab.endpoints.kafka)
    there = looker.bounds(["hits"]).ends
    looker.close()
    until("all is counted", lambda: ends(lab, "by-window") == there)
    assert {key: (hits, ids % mark) for key, (hits, ids) in table(lab, "windows", 2).items()} == windows(
        feed.given["hits"]
    )
    assert equation(lab, "by-window") == feed.equation("hits")


def table(lab: Lab, name: str, keys: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {row[:keys]: row[keys:-1] for row in lab.query(f"select * from {name}")}  # noqa: S608 — a name of this test's own


def equation(lab: Lab, tier: str) -> tuple[int, ...]:
    """Return what the ledger says of a tier: in, out, filtered, replays, late, holes."""
    found = lab.query(
        "select tier, sum(rows_in), sum(rows_out), sum(filtered), sum(replays), sum(late), count(*) filter (where begins <> before) from"
        " (select *, lag(ends, 1, begins) over (partition by tier order by batch) as before from ledger) as each group by tier"
    )
    return next(tuple(int(number) for number in row[1:]) for row in found if row[0] == tier)


def ends(lab: Lab, tier: str) -> dict[str, int] | None:
    """Return how far a tier is, by the ledger."""
    return dict(lab.query("select distinct on (tier) tier, ends from ledger order by tier, batch desc")).get(
        tier
    )
