"""The table of replays in PostgreSQL: the range, the progress, the counts and the incarnation of
each replay.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from sluice.api.declarations import QUARANTINE, Tier
from sluice.api.origins import REPLAY
from sluice.postgres import connect
from sluice.sinks.ledger import Counts

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS replays (number bigserial PRIMARY KEY, source text NOT NULL,"
        " rate float8 NOT NULL, begins jsonb NOT NULL, done jsonb NOT NULL, ends jsonb NOT NULL,"
        " began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz)"
    ),
    sql.SQL(  # replays of earlier versions put records into their stream and had no incarnation
        "ALTER TABLE replays DROP COLUMN IF EXISTS stream, ADD COLUMN IF NOT EXISTS tier text, ADD COLUMN "
        "IF NOT EXISTS incarnation bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS rows_in bigint NOT "
        "NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS rows_out bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT "
        "EXISTS filtered bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS quarantined bigint NOT NULL "
        "DEFAULT 0, ADD COLUMN IF NOT EXISTS replays bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS "
        "pace float8 NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS sentence text NOT NULL DEFAULT '', ADD "
        "COLUMN IF NOT EXISTS said_at timestamptz"
    ),
    sql.SQL("ALTER TABLE replays ADD COLUMN IF NOT EXISTS name text UNIQUE"),
)
"""`sluice.commands.publish` runs each statement once; a statement whose text changes runs again."""


class ReplayError(Exception):
    """The replay is refused; the message names the cause."""


class BrokenOffError(Exception):
    """The replay ended early and can be resumed."""


@dataclass(frozen=True)
class Replay:
    """One replay of a tier: the offsets from `begins` to `ends`, by `topic/partition`.

    Offsets before `done` are processed.
    """

    number: int
    tier: str
    rate: float
    """The maximum rate. Unit: records per second."""
    begins: dict[str, int]
    done: dict[str, int]
    ends: dict[str, int]
    incarnation: int = 0
    """The number of the process; only the newest process of a replay may save."""

    @property
    def by(self) -> str:
        """The writer's name in lineage; it differs from a run's, whose records show the tier's
        position.
        """
        return f"{self.tier}{REPLAY}{self.number}"

    @property
    def quarantined(self) -> bool:
        """Whether the replay reads quarantined records."""
        return all(place.rpartition("/")[0].endswith(QUARANTINE) for place in self.ends)

    @property
    def source(self) -> str:
        """The names of the topics that the replay reads."""
        return ", ".join(sorted({place.rpartition("/")[0] for place in self.ends}))

    @property
    def open(self) -> dict[str, int]:
        """The unfinished partitions, with the next offset of each."""
        return {
            partition: self.done[partition]
            for partition, end in self.ends.items()
            if self.done[partition] < end
        }

    def at(self, done: dict[str, int]) -> "Replay":
        """Return this replay with the progress `done`."""
        return replace(self, done=done)

    @property
    def left(self) -> int:
        """The number of records that are not processed yet."""
        return sum(self.ends[partition] - offset for partition, offset in self.open.items())


def deleted_records(replay: Replay, oldest: dict[str, int]) -> str | None:
    """Return a sentence if Kafka has deleted records that the replay needs, or None. Pure.

    `oldest` are the oldest offsets of the replay's streams.
    """
    deleted = {
        place: (offset, min(oldest[place], replay.ends[place]))
        for place, offset in replay.open.items()
        if offset < oldest[place]
    }
    if not deleted:
        return None
    places = ", ".join(
        f"{place} from {first} up to {last}" for place, (first, last) in sorted(deleted.items())
    )
    return (
        f"Kafka's retention deleted records that replay {replay.number} has not processed: {places}; "
        f"end the replay with `sluice replay --cancel {replay.number}`, "
        f"then start a new one for the other records with `sluice replay {replay.tier}`"
    )


def moved_behind(
    begins: dict[str, int], earlier: Iterable[tuple[dict[str, int], dict[str, int]]]
) -> dict[str, int]:
    """Return the begins, moved behind the spans of earlier replays that join without a gap.

    `earlier` has the begins and the progress of each earlier replay.
    """
    spans = sorted((first, done[place], place) for start, done in earlier for place, first in start.items())
    moved = dict(begins)
    for first, last, place in spans:
        if place in moved and first <= moved[place]:
            moved[place] = max(moved[place], last)
    return moved


def _refuse_if_replaced(replay: Replay, rows: int) -> None:
    """Raise ReplayError if an update changed no row: this process is not the newest one."""
    if not rows:
        message = (
            f"replay {replay.number} was cancelled, or another process continues it; this process has stopped"
        )
        raise ReplayError(message)


class Book:
    """The table of replays, and what a replay reads from the tables of the audit and the ledger."""

    def __init__(self, postgres: str) -> None:
        self._connection = connect(postgres)

    def add(self, replay: Replay, name: str | None = None) -> Replay:
        """Insert a new replay; return it with its number. UniqueViolation if the name is taken."""
        row = self._connection.execute(
            "INSERT INTO replays (tier, source, rate, begins, done, ends, name)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING number",
            (
                replay.tier,
                replay.source,
                replay.rate,
                json.dumps(replay.begins),
                json.dumps(replay.done),
                json.dumps(replay.ends),
                name,
            ),
        ).fetchone()
        return replace(replay, number=0 if row is None else int(row[0]))

    def named(self, name: str) -> Replay | None:
        """Return the replay with this name, or None; ReplayError if it was cancelled."""
        row = self._connection.execute("SELECT number FROM replays WHERE name = %s", (name,)).fetchone()
        return None if row is None else self.find(int(row[0]))

    def find(self, number: int) -> Replay:
        """Return an earlier replay; ReplayError if unknown, cancelled, or of an old version."""
        row = self._connection.execute(
            "SELECT number, tier, rate, begins, done, ends, incarnation, ended_at FROM replays"
            " WHERE number = %s",
            (number,),
        ).fetchone()
        if row is None:
            message = f"replay {number} does not exist"
            raise ReplayError(message)
        if row[1] is None:
            message = (
                f"an earlier version of Sluice wrote replay {number}, and this version cannot continue it; "
                "start a new one with `sluice replay TIER`"
            )
            raise ReplayError(message)
        *columns, ended = row
        replay = Replay(*columns)
        if ended is not None and replay.left:
            message = f"replay {number} was cancelled; start a new one with `sluice replay {replay.tier}`"
            raise ReplayError(message)
        return replay

    def take(self, replay: Replay) -> Replay:
        """Continue a replay as its next incarnation; earlier processes can no longer save."""
        row = self._connection.execute(
            "UPDATE replays SET incarnation = incarnation + 1, rate = %s, said_at = clock_timestamp()"
            " WHERE number = %s RETURNING incarnation, done",
            (replay.rate, replay.number),
        ).fetchone()
        return replay if row is None else replace(replay, incarnation=int(row[0]), done=dict(row[1]))

    def cancel(self, number: int) -> None:
        """End a replay for good; its process stops with ReplayError at the next step."""
        self._connection.execute(
            "UPDATE replays SET ended_at = clock_timestamp() WHERE number = %s AND ended_at IS NULL",
            (number,),
        )

    def save(self, replay: Replay, counts: Counts, cursor: "psycopg.Cursor[Any] | None" = None) -> None:
        """Save the progress and add the counts of the last records.

        With a cursor, the update is part of the caller's transaction. Raise ReplayError if this
        process is not the newest one.
        """
        updated = (cursor or self._connection).execute(
            "UPDATE replays SET done = %s, rows_in = rows_in + %s, rows_out = rows_out + %s,"
            " filtered = filtered + %s, quarantined = quarantined + %s, replays = replays + %s,"
            " said_at = clock_timestamp(), ended_at = CASE WHEN %s THEN clock_timestamp() END"
            " WHERE number = %s AND incarnation = %s AND ended_at IS NULL",
            (
                json.dumps(replay.done),
                counts.rows_in,
                counts.rows_out,
                counts.filtered,
                counts.quarantined,
                counts.replays,
                not replay.left,
                replay.number,
                replay.incarnation,
            ),
        )
        _refuse_if_replaced(replay, updated.rowcount)

    def save_pace(self, replay: Replay, pace: float, sentence: str) -> None:
        """Save the current pace and its reason, for `sluice status`."""
        updated = self._connection.execute(
            "UPDATE replays SET pace = %s, sentence = %s, said_at = clock_timestamp()"
            " WHERE number = %s AND incarnation = %s AND ended_at IS NULL",
            (pace, sentence, replay.number, replay.incarnation),
        )
        _refuse_if_replaced(replay, updated.rowcount)

    def counts(self, replay: Replay) -> Counts:
        """Return the counts of all records that the replay has processed."""
        row = self._connection.execute(
            "SELECT rows_in, rows_out, filtered, quarantined, replays FROM replays WHERE number = %s",
            (replay.number,),
        ).fetchone()
        rows_in, rows_out, filtered, quarantined, replays = row or (0, 0, 0, 0, 0)
        return Counts(rows_in, rows_out, filtered, quarantined, replays, 0, 0, rows_out)

    def after(self, tier: str, begins: dict[str, int]) -> dict[str, int]:
        """Return the begins, moved behind the records of earlier replays of the tier."""
        earlier = self._connection.execute(
            "SELECT begins, done FROM replays WHERE coalesce(tier, %s) = %s ORDER BY number", (tier, tier)
        ).fetchall()
        return moved_behind(begins, earlier)

    def through(self, tier: Tier) -> dict[str, int]:
        """Return the offsets before which all records have gone through the tier.

        They come from the ledger, or from the audit if the tier writes streams.
        """
        if tier.sink is None:
            return dict(
                self._connection.execute(
                    "SELECT partition, judged FROM audit WHERE tier = %s", (tier.name,)
                ).fetchall()
            )
        row = self._connection.execute(
            "SELECT ends FROM ledger WHERE tier = %s ORDER BY batch DESC LIMIT 1", (tier.name,)
        ).fetchone()
        return {} if row is None else dict(row[0])

    def dropped(self, tiers: Iterable[str], replay: Replay) -> dict[str, int]:
        """Return how many records each tier has dropped as duplicates since the replay began."""
        return dict(
            self._connection.execute(
                "SELECT ledger.tier, sum(ledger.replays)::bigint"
                " FROM ledger JOIN replays ON ledger.at >= replays.began_at"
                " WHERE ledger.tier = ANY(%s) AND ledger.replay IS NULL AND replays.number = %s"
                " GROUP BY ledger.tier ORDER BY ledger.tier",
                (list(tiers), replay.number),
            ).fetchall()
        )
