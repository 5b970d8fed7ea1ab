"""Writers for tests of the audit: tiers that write streams and tables, and writers with a fault."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import psycopg
from confluent_kafka import Producer

from hits.counts import CAMPAIGN_COUNTS
from sluice.api import declarations
from sluice.api.declarations import Tier
from sluice.api.marks import Marks
from sluice.api.sink import Rows, Written
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice.sinks.table import Once, Totals
from sluice_ops.site import endpoints
from tests.lab import Lab

COUNT = 10_000
PIPELINE = declarations.load("hits")


@dataclass
class Kafka:
    """Writes records as tiers do."""

    endpoints_of_lab: endpoints.Endpoints
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self.producer = Producer(
            {"bootstrap.servers": self.endpoints_of_lab.kafka, "acks": "all", "enable.idempotence": True}
        )

    def put(
        self,
        stream: str,
        by: str,
        source: str,
        offsets: Iterable[int],
        at: float,
        partitions: int = 4,
        acked: int | None = None,
    ) -> None:
        """Write a record for each offset of `source`, spread over the stream's partitions as a
        grouping would.

        Each record acknowledges the offsets of earlier calls, or all offsets before `acked`.
        """
        for offset in offsets:
            acked = offset if acked is None else acked
            headers = {
                "origin": f"0:{offset}",
                "path": "0",
                "from": f"{source}:{offset}",
                "by": by,
                "t0": str(int(at * 1000)),
            }
            headers["acked"] = str(acked)
            self.producer.produce(
                stream,
                value=b"{}",
                partition=offset % partitions,
                headers={key: value.encode() for key, value in headers.items()},
                timestamp=int(at * 1000),
            )
            self.producer.poll(0)
        self.producer.flush(30)

    def fill(self, stream: str, end: int, partition: int = 0) -> None:
        """Write records until the partition ends at `end` or later."""
        with closing(Streams(self.endpoints_of_lab.kafka)) as streams:
            current_end = streams.bounds([stream]).ends[f"{stream}/{partition}"]
        for _ in range(current_end, end):
            self.producer.produce(stream, b"{}", partition=partition)
            self.producer.poll(0)
        self.producer.flush(30)


def lines(lab: Lab, tier: str) -> dict[str, tuple[int, int]]:
    with psycopg.connect(lab.endpoints.postgres) as connection:
        rows = connection.execute(
            "SELECT partition, once, again FROM audit WHERE tier = %s", (tier,)
        ).fetchall()
    return {row[0]: (row[1], row[2]) for row in rows}


def losses(lab: Lab, tier: str) -> list[tuple[str, int]]:
    with psycopg.connect(lab.endpoints.postgres) as connection:
        return connection.execute(
            "SELECT place, records FROM losses WHERE tier = %s ORDER BY number", (tier,)
        ).fetchall()


def started_audit(lab: Lab, *tiers: Tier) -> Auditor:
    """Return an audit that has looked once, so that it judges later records."""
    auditor = Auditor(tiers, lab.endpoints)
    assert auditor.check() == []
    return auditor


@dataclass(frozen=True)
class Lossy(Once):
    """A table's writer with a fault: it drops some rows, but counts them as written."""

    drops: frozenset[str] = frozenset()

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        kept_rows = [number for number, origin in enumerate(rows.origins) if origin not in self.drops]
        columns = {name: [column[number] for number in kept_rows] for name, column in rows.columns.items()}
        super().write(
            cursor,
            Rows(columns, [rows.origins[n] for n in kept_rows], [rows.paths[n] for n in kept_rows]),
            batch,
            marks,
            halt,
        )
        return Written(len(rows))


def rows(offsets: Iterable[int]) -> Rows:
    origins = [f"0:{offset}" for offset in offsets]
    texts = {name: [name] * len(origins) for name in ("user", "ad", "campaign", "kind")}
    return Rows({"id": origins, **texts, "at": ["2026-01-01"] * len(origins)}, origins, ["0"] * len(origins))


def ends(offset: int) -> dict[str, int]:
    """Return the end of each partition if the records before `offset` are spread over four
    partitions.
    """
    return {f"enriched/{number}": (offset - number + 3) // 4 for number in range(4)}


@dataclass(frozen=True)
class Dropping(Totals):
    """A totals writer with a fault: it drops some rows, but counts them as added."""

    drops: frozenset[str] = frozenset()

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        kept = rows.only([number for number, origin in enumerate(rows.origins) if origin not in self.drops])
        return Written(super().write(cursor, kept, batch, marks, halt).new + len(rows) - len(kept))


def dropping(origin: str) -> Dropping:
    sink = CAMPAIGN_COUNTS
    return Dropping(sink.name, sink.columns, sink.key, sink.counted, drops=frozenset({origin}))


def hits(offsets: Iterable[int]) -> Rows:
    """Return rows of `counts`, one for each offset: a view or a click."""
    names = [f"0:{offset}" for offset in offsets]
    is_view = [offset % 3 == 0 for offset in offsets]
    added = {
        "views": [int(view) for view in is_view],
        "clicks": [int(not view) for view in is_view],
        "buys": [0] * len(names),
    }
    return Rows(
        {"campaign": ["a"] * len(names), "window_start": ["2026-01-01"] * len(names), **added},
        names,
        ["0"] * len(names),
    )
