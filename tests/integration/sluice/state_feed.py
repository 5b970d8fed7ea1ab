"""Input of tiers with state, with duplicates and late records, and the expected output."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Message, Producer

from sluice.kafka.reader import Streams
from sluice.records.joins import How
from tests.integration.sluice.stateful_pipeline import LATENESS, PAUSE_SECONDS
from tests.lab import Lab, until
from tests.repeating import repeated

Records = Mapping[str, Sequence[dict[str, Any]]]
"""The records of each stream."""
PARTITIONS = range(4)
LATER = 60_000
"""So many hits later, ten minutes of event time, all windows of earlier hits are final."""


@dataclass
class Feed:
    """Plays the tier before: it writes numbered records, some of them twice, some late."""

    lab: Lab
    first_time: int = field(default_factory=lambda: int(time.time() * 1000) - 300_000)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0
    people: int = 5
    """The number of users with hits."""
    late_records: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """The records that are late, unless a tier goes by their arrival."""
    late: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
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
                self.late_records[stream].append(row)
            else:
                self.records[stream].append(row)
                self.duplicates[stream] += times - 1
        assert self._producer.flush(30) == 0

    def sold(self, count: int) -> None:
        """Write hits; for each third hit a buy a second later, and for each tenth a buy without a
        hit.
        """
        before = len(self.records["hits"])
        self.hits(count)
        hits = self.records["hits"][before:]
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

    def paid(self, count: int) -> None:
        """Write hits and buys; for each second buy a payment a second later, and as many payments
        without a buy as there are buys without a hit.
        """
        before = len(self.records["buys"])
        self.sold(count)
        buys = self.records["buys"][before:]
        self.put(
            "pays",
            [
                {"id": buy["id"], "buy": buy["id"], "at": buy["at"] + 1000}
                for buy in buys
                if buy["hit"] >= 0 and buy["id"] % 2 == 0
            ],
        )
        self.put("pays", [buy | {"buy": buy["id"] - 10**9} for buy in buys if buy["hit"] < 0])

    def paid_later(self, count: int) -> None:
        """Write hits, buys and payments, a minute of event time after those before."""
        self.number += 6_000
        self.paid(count)

    def spread(self, count: int) -> None:
        """Write hits over ten times as much event time as `hits` does."""
        for _ in range(count):
            self.hits(1)
            self.number += 10

    def arrived(self) -> Records:
        """Return all records, also those that are late."""
        streams = self.records.keys() | self.late_records.keys()
        return {stream: [*self.records[stream], *self.late_records[stream]] for stream in streams}

    def equation(self, *streams: str, filtered: int = 0, by_arrival: bool = False) -> tuple[int, ...]:
        """Return the expected ledger of a tier that reads these streams.

        The numbers are rows in, rows out, filtered, replays, late, and gaps between batches.
        """
        record_count = sum(len(self.records[stream]) for stream in streams)
        duplicates, late = (
            sum(counts[stream] for stream in streams) for counts in (self.duplicates, self.late)
        )
        if by_arrival:
            on_time = sum(len(self.late_records[stream]) for stream in streams)
            record_count, duplicates, late = record_count + on_time, duplicates + late - on_time, 0
        return record_count + duplicates + late, record_count - filtered, filtered, duplicates, late, 0

    def hits(self, count: int) -> None:
        """Write the next numbers as hits, a hundred for each second of event time."""
        numbers = range(self.number, self.number + count)
        self.number += count
        self.put(
            "hits",
            [
                {"id": number, "who": f"user-{number % self.people}", "at": self.first_time + number * 10}
                for number in numbers
            ],
        )


def windows(hits: list[dict[str, Any]], every: int = 10) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return the hits, and the sum of their ids, by user and ten seconds.

    `every` is the time from one window's start to the next one's. Unit: seconds.
    """
    expected: dict[tuple[str, datetime], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for hit in hits:
        second = hit["at"] // 1000
        newest = second // every * every
        for start in range(newest, second - 10, -every):
            key = (hit["who"], datetime.fromtimestamp(start, UTC))
            expected[key] = (expected[key][0] + 1, expected[key][1] + hit["id"])
    return dict(expected)


def sessions(hits: list[dict[str, Any]]) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return the hits, and the sum of their ids, by user and the start of a session."""
    found: dict[tuple[str, datetime], tuple[int, int]] = {}
    last: dict[str, tuple[int, datetime]] = {}
    for hit in sorted(hits, key=lambda hit: hit["at"]):
        who, at = hit["who"], hit["at"]
        before, start = last.get(who, (0, datetime.fromtimestamp(0, UTC)))
        if at - before >= PAUSE_SECONDS * 1000:
            start = datetime.fromtimestamp(at / 1000, UTC)
        count, ids = found.get((who, start), (0, 0))
        found[who, start] = (count + 1, ids + hit["id"])
        last[who] = (at, start)
    return found


def buyers(records: Records) -> set[tuple[str, datetime]]:
    """Return the users with a bought hit, and the ten seconds of the buy, all by their arrival."""
    users = {hit["id"]: hit["who"] for hit in records["hits"]}
    return {
        (users[buy["hit"]], datetime.fromtimestamp(buy["at"] // 10_000 * 10, UTC))
        for buy in records["buys"]
        if buy["hit"] >= 0
    }


def paid(records: dict[str, list[dict[str, Any]]]) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return the paid hits, and the sum of their ids, by user and ten seconds of the payment."""
    hits = {hit["id"]: hit for hit in records["hits"]}
    paid_hits = [(hits[pay["buy"]], pay) for pay in records["pays"] if pay["buy"] >= 0]
    return windows([hit | {"at": pay["at"]} for hit, pay in paid_hits])


def joined_rows(records: Records, settled: Records, how: How) -> tuple[set[tuple[Any, ...]], int]:
    """Return the rows of a join of hits and their buys, and how many records it has left out.

    Of records without a partner, those that are `settled` came out or were left out.
    """
    pairs = {(buy["hit"], buy["id"]) for buy in records["buys"] if buy["hit"] >= 0}
    unsold = {hit["id"] for hit in settled["hits"]} - {hit for hit, _ in pairs}
    orphans = {buy["id"] for buy in settled["buys"] if buy["hit"] < 0}
    alone: dict[How, set[tuple[Any, ...]]] = {
        "inner": set(),
        "left": {(hit, None) for hit in unsold},
        "right": {(None, buy) for buy in orphans},
    }
    left_out = {"inner": len(unsold) + len(orphans), "left": len(orphans), "right": len(unsold)}
    return pairs | alone[how], left_out[how]


def busiest(hits: list[dict[str, Any]]) -> dict[tuple[datetime], tuple[int, int]]:
    """Return, by twenty seconds, the most hits of a user in ten of them, and the sum of all ids."""
    expected: dict[tuple[datetime], tuple[int, int]] = {}
    for (_, start), (count, ids) in windows(hits).items():
        key = (datetime.fromtimestamp(start.timestamp() // 20 * 20, UTC),)
        most, total = expected.get(key, (0, 0))
        expected[key] = (max(most, count), total + ids)
    return expected


def by_minutes(rows: dict[tuple[Any, ...], tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the number of rows of `busiest`, and the sum of their ids, by minute."""
    found: dict[tuple[Any, ...], tuple[int, int]] = {}
    for (since,), (_, ids) in rows.items():
        count, total = found.get((since.replace(second=0),), (0, 0))
        found[since.replace(second=0),] = (count + 1, total + ids)
    return dict(found)


def sums(hits: list[dict[str, Any]]) -> dict[tuple[str], tuple[int, int]]:
    expected: dict[tuple[str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for hit in hits:
        count, ids = expected[hit["who"],]
        expected[hit["who"],] = (count + 1, ids + hit["id"])
    return dict(expected)


def feeding(
    feed: Feed, rate: int, write: Callable[[int], None] | None = None
) -> AbstractContextManager[None]:
    """Write `rate` hits a second until the end of the block, by `write` instead of `feed.hits`."""
    return repeated(lambda: (write or feed.hits)(rate // 10), every=0.1)


def assert_windows(lab: Lab, feed: Feed, mark: int = 1 << 62) -> None:
    """Wait until every hit is counted, and assert that it is counted once.

    Some code adds `mark` to the sums that it writes.
    """
    streams = Streams(lab.endpoints.kafka)
    input_ends = streams.bounds(["hits"]).ends
    streams.close()
    until("every hit is counted", lambda: ends(lab, "by-window") == input_ends)
    assert {key: (hits, ids % mark) for key, (hits, ids) in table(lab, "windows", 2).items()} == windows(
        feed.records["hits"]
    )
    assert equation(lab, "by-window") == feed.equation("hits")


def assert_final(
    lab: Lab,
    feed: Feed,
    tier: str,
    expected: Callable[[list[dict[str, Any]]], Mapping[tuple[Any, ...], tuple[int, int]]],
    keys: int,
) -> None:
    """Write much later hits until the results of all hits before are final, and assert that each
    hit is counted once.
    """
    settled = list(feed.records["hits"])
    feed.number += LATER

    def all_are_final() -> bool:
        feed.hits(40)
        with closing(Streams(lab.endpoints.kafka)) as streams:
            input_ends = streams.bounds(["hits"]).ends
        until("every hit is counted", lambda: ends(lab, tier) == input_ends)
        return table(lab, tier, keys) == expected(settled)

    until("the results of all hits are final", all_are_final, 300)
    assert equation(lab, tier) == feed.equation("hits")


def assert_paid(lab: Lab, feed: Feed, mark: int = 1 << 62) -> None:
    """Write much later records until all windows before are final, and assert that every record is
    counted once.

    Some code adds `mark` to the sums that it writes.
    """
    inputs = ("hits", "buys", "pays")
    settled = {stream: list(records) for stream, records in feed.records.items()}
    feed.number += LATER

    def all_are_final() -> bool:
        feed.paid(40)
        with closing(Streams(lab.endpoints.kafka)) as streams:
            input_ends = streams.bounds(inputs).ends
        until("every record is counted", lambda: ends(lab, "paid") == input_ends)
        written = {key: (hits, ids % mark) for key, (hits, ids) in table(lab, "paid", 2).items()}
        return written == paid(settled)

    until("the windows of all hits are final", all_are_final, 300)
    left_out = sum(record["id"] < 0 for stream in inputs[1:] for record in settled[stream])
    assert left_out
    assert equation(lab, "paid") == feed.equation(*inputs, filtered=left_out)


def assert_joined(lab: Lab, feed: Feed, how: How, tier: str) -> None:
    """Write much later records until all records before are settled, and assert that a join of hits
    and buys has each row once.
    """
    settled = {stream: list(records) for stream, records in feed.records.items()}
    feed.number += LATER

    def all_are_settled() -> bool:
        feed.sold(40)
        with closing(Streams(lab.endpoints.kafka)) as streams:
            input_ends = streams.bounds(["hits", "buys"]).ends
        until("every record is joined", lambda: ends(lab, tier) == input_ends)
        rows, _ = joined_rows(feed.records, settled, how)
        return set(lab.query(f"select id, buy from {tier}")) == rows  # noqa: S608

    until("the records without a partner are settled", all_are_settled, 300)
    _, left_out = joined_rows(feed.records, settled, how)
    assert left_out
    assert equation(lab, tier) == feed.equation("hits", "buys", filtered=left_out)


def records(lab: Lab, stream: str) -> list[Message]:
    """Return the committed records of a stream."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        bounds = streams.bounds([stream])
        return [
            message
            for place, end in bounds.ends.items()
            for message in streams.messages(place, bounds.oldest[place], end)
        ]


def table(lab: Lab, name: str, keys: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {row[:keys]: row[keys:-1] for row in lab.query(f"select * from {name}")}  # noqa: S608


def equation(lab: Lab, tier: str) -> tuple[int, ...]:
    """Return the ledger's numbers of a tier: in, out, filtered, replays, late, and gaps between
    batches.
    """
    rows = lab.query(
        "select tier, sum(rows_in), sum(rows_out), sum(filtered), sum(replays), sum(late), count(*) filter "
        "(where begins <> before) from (select *, lag(ends, 1, begins) over (partition by tier order by "
        "batch) as before from ledger) as batches group by tier"
    )
    return next(tuple(int(number) for number in row[1:]) for row in rows if row[0] == tier)


def ends(lab: Lab, tier: str) -> dict[str, int] | None:
    """Return where a tier's last batch ends, by the ledger."""
    return dict(lab.query("select distinct on (tier) tier, ends from ledger order by tier, batch desc")).get(
        tier
    )
