"""Chains of joins, and windows before and after them, in a local Spark.

Over late records, replays and restarts from the checkpoint, rows and counts are those of a model
that compares every record with every other.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

from sluice import Kind, Latest, Quantum, State, Stream, Tier, joined, testing
from sluice.api.declarations import Transform
from sluice.api.lineage_header import headers
from sluice.api.sink import Absorbed
from sluice.checks.operators import KAFKA, check_tier
from sluice.records.joins import How
from sluice.records.state_inputs import absorbed_counts, output_mode, transformed_with_state
from tests.testing_session import end_session

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

LATENESS = 60
NEAR, FAR = (-30, 90), (0, 120)
"""`within` of the first join, and of the second one. Unit: seconds."""
START = 1_764_400_020_000
"""The time of the first record, and the begin of a minute. Unit: epoch ms."""
MINUTE, HOUR = 60_000, 3_600_000
SIZE = Quantum(cpu=1, memory=950, threads=4)
HOWS: tuple[How, ...] = ("inner", "left", "right")

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """A record of an input. Unit of the times: epoch ms."""

    stream: str
    id: int
    partner: int | None
    at: int
    arrived: int

    @property
    def is_late(self) -> bool:
        return self.arrived - self.at > LATENESS * 1000


@pytest.fixture(scope="module", autouse=True)
def ended_session() -> Iterator[None]:
    """End the session and its JVM, so that other tests of this process may start their own."""
    yield
    end_session()


# -- the tiers


def tier(transform: Transform, columns: dict[str, str], inputs: str = "abc") -> Tier:
    return Tier(
        "mine",
        Kind.PROCESSING,
        tuple(Stream(name, "id bigint, partner bigint, at bigint") for name in inputs),
        transform,
        sink=Latest("results", columns, key=tuple(columns)),
        state=State(LATENESS, time="at"),
        filters=True,
        quantum=SIZE,
        driver=SIZE,
    )


def chain(a: DataFrame, b: DataFrame, c: DataFrame, first: How, second: How) -> DataFrame:
    pairs = joined(a, b, a["id"] == b["partner"], within=NEAR, how=first)
    return joined(pairs, c, b["id"] == c["partner"], within=FAR, how=second)


def chain_tier(first: How, second: How) -> Tier:
    def ids(a: DataFrame, b: DataFrame, c: DataFrame) -> DataFrame:
        rows = chain(a, b, c, first, second)
        return rows.select(a["id"].alias("a"), b["id"].alias("b"), c["id"].alias("c"))

    return tier(ids, {"a": "bigint", "b": "bigint", "c": "bigint"})


def by_minute(a: DataFrame, b: DataFrame, c: DataFrame) -> DataFrame:
    """Count the rows of a chain by minute."""
    counted = (
        chain(a, b, c, "left", "left")
        .groupBy(F.window("joined_time", "1 minute"))
        .agg(F.count("*").alias("rows"), F.count(c["id"]).alias("complete"))
    )
    return counted.select(F.unix_millis("window.start").alias("since"), "rows", "complete")


def after_minutes(a: DataFrame, b: DataFrame) -> DataFrame:
    """Join each minute of `a` with the records of `b` in the minute after."""
    minutes = a.groupBy("partner", F.window("time", "1 minute")).count()
    ended = minutes.select(
        F.col("partner").alias("of"),
        "count",
        F.unix_millis("window.start").alias("since"),
        F.window_time("window").alias("time"),
    )
    rows = joined(ended, b, ended["of"] == b["partner"], within=(0, 60), how="inner")
    return rows.select("since", "of", "count", b["id"].alias("b"))


# -- the model

Joined = tuple[tuple[Event | None, ...], int]
"""The records of a row, and its time."""


def matched(
    left: list[Joined], right: list[Joined], on: tuple[int, int], within: tuple[int, int], how: How
) -> tuple[list[Joined], list[Joined]]:
    """Return the rows of a join, and the rows that it leaves out.

    `on`: the place in the left row of the record whose id the record at a place of the right row
    names.
    """
    near = [1000 * seconds for seconds in within]
    pairs, partners = [], Counter[int]()
    for (one, first), (other, second) in product(left, right):
        named, names = one[on[0]], other[on[1]]
        if named is None or names is None or named.id != names.partner:
            continue
        if near[0] <= second - first <= near[1]:
            pairs.append(((*one, *other), max(first, second)))
            partners.update([id(one), id(other)])
    width = len(left[0][0]), len(right[0][0])
    left_alone = [((*row, *[None] * width[1]), time) for row, time in left if not partners[id(row)]]
    right_alone = [((*[None] * width[0], *row), time) for row, time in right if not partners[id(row)]]
    kept = {"inner": [], "left": left_alone, "right": right_alone}[how]
    return pairs + kept, [row for row in (*left_alone, *right_alone) if row not in kept]


def chain_model(events: list[Event], first: How, second: How) -> tuple[list[Joined], int]:
    """Return the rows of a chain, and the number of records that the joins leave out."""
    a, b, c = ([((event,), event.at) for event in events if event.stream == name] for name in "abc")
    pairs, alone = matched(a, b, (0, 0), NEAR, first)
    rows, left_out = matched(pairs, c, (1, 0), FAR, second)
    return rows, len(alone) + sum(records[2] is not None for records, _ in left_out)


# -- the records, and the query


def batches_of_events() -> list[list[Event]]:
    """Return batches of records: some are late, some have no partner, and some no key."""
    chance = random.Random(7)  # noqa: S311 - no secret
    batches = []
    for begin in range(START, START + 4 * MINUTE, MINUTE):
        batch = []
        for place in range(45):
            at = begin + chance.randrange(MINUTE)
            partner = None if chance.random() < 0.1 else chance.randrange(9)
            arrived = at + 1000 * chance.choice([0, 1, LATENESS, LATENESS + 1])
            batch.append(Event("abc"[place % 3], chance.randrange(9), partner, at, arrived))
        batches.append(batch)
    return batches


def later(number: int) -> list[Event]:
    """Return a record of each input, by which time goes on."""
    at = START + number * HOUR
    return [Event(stream, -number, -10 - number, at, at) for stream in "abc"]


@dataclass
class Runs:
    """The query of a tier, which starts anew on its checkpoint for each batch."""

    tier: Tier
    folder: Path
    rows: Counter[Row] = field(default_factory=Counter)
    absorbed: Absorbed = field(default_factory=Absorbed)

    def take(self, records: Sequence[tuple[int, Event]]) -> None:
        """Give the query a batch of records, each with a number that is its origin."""
        spark = testing.session()
        frames = []
        for stream in self.tier.inputs:
            path = str(self.folder / stream.name)
            own = [kafka_record(*each) for each in records if each[1].stream == stream.name]
            spark.createDataFrame(own, KAFKA).coalesce(1).write.mode("append").parquet(path)
            frames.append(spark.readStream.schema(KAFKA).parquet(path))
        result = transformed_with_state(frames, self.tier)

        def put(frame: DataFrame, _: int) -> None:
            self.rows.update(tuple(row) for row in frame.collect())
            (query,) = spark.streams.active
            self.absorbed += absorbed_counts(query)

        writer = result.writeStream.outputMode(output_mode(result)).foreachBatch(put)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()


def kafka_record(number: int, event: Event) -> dict[str, Any]:
    words = {"origin": f"0:{number}", "path": "0", "from": "raw/0:0", "by": "entry/1"}
    words["t0"] = str(event.arrived)
    return {
        "key": None,
        "value": json.dumps({"id": event.id, "partner": event.partner, "at": event.at}).encode(),
        "topic": event.stream,
        "partition": 0,
        "offset": number,
        "timestamp": datetime.fromtimestamp(event.arrived / 1000, UTC),
        "timestampType": 0,
        "headers": list(headers(words, packed=True).items()),
    }


def run(own: Tier, folder: Path) -> tuple[Runs, list[Event]]:
    """Run a tier on all records, and some of them again a batch later.

    Return the runs, and the records that the state contains and whose time is over.
    """
    check_tier(testing.session(), own)
    runs, names = Runs(own, folder), {stream.name for stream in own.inputs}
    taken: list[Event] = []
    again: list[tuple[int, Event]] = []
    number = replays = 0
    for events in [*batches_of_events(), *map(later, (1, 2, 3))]:
        batch = [(number + place, event) for place, event in enumerate(events) if event.stream in names]
        number += len(events)
        runs.take([*batch, *again])
        replays += sum(not event.is_late for _, event in again)
        taken += [event for _, event in batch if not event.is_late]
        again = [each for each in batch if each[0] % 4 == 0 and each[1].at < START + HOUR]
    assert (runs.absorbed.taken, runs.absorbed.replays) == (len(taken), replays)
    assert replays
    return runs, [event for event in taken if event.at <= START + HOUR]


# -- the tests


@pytest.mark.parametrize(("first", "second"), [*product(HOWS, HOWS)])
def test_a_chain_of_joins_has_the_models_rows_and_counts(tmp_path: Path, first: How, second: How) -> None:
    runs, events = run(chain_tier(first, second), tmp_path)
    rows, left_out = chain_model(events, first, second)
    expected = Counter(tuple(event and event.id for event in records) for records, _ in rows)
    assert runs.rows == expected
    assert runs.absorbed.unmatched == left_out
    assert any(None not in row for row in expected)


def test_windows_count_the_rows_of_a_chain(tmp_path: Path) -> None:
    columns = {"since": "bigint", "rows": "bigint", "complete": "bigint"}
    runs, events = run(tier(by_minute, columns), tmp_path)
    rows, left_out = chain_model(events, "left", "left")
    expected = []
    for since, group in groupby(sorted(rows, key=lambda row: row[1]), lambda row: row[1] // MINUTE * MINUTE):
        of_minute = [records for records, _ in group]
        expected.append((since, len(of_minute), sum(records[2] is not None for records in of_minute)))
    assert runs.rows == Counter(expected)
    assert runs.absorbed.unmatched == left_out
    assert any(0 < complete < count for _, count, complete in expected)


def test_a_join_of_windows_counts_records_of_the_other_side(tmp_path: Path) -> None:
    columns = {"since": "bigint", "of": "bigint", "count": "bigint", "b": "bigint"}
    runs, events = run(tier(after_minutes, columns, "ab"), tmp_path)
    minutes = Counter((event.at // MINUTE * MINUTE, event.partner) for event in events if event.stream == "a")
    expected, left_out = Counter[Row](), 0
    for event in (event for event in events if event.stream == "b"):
        since = event.at // MINUTE * MINUTE - MINUTE
        if event.partner is not None and (since, event.partner) in minutes:
            expected[since, event.partner, minutes[since, event.partner], event.id] += 1
        else:
            left_out += 1
    assert runs.rows == expected
    assert runs.absorbed.unmatched == left_out
    assert expected
