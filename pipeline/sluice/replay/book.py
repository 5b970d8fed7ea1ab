"""What is remembered of each replay, in PostgreSQL: from where to where, how far, what came of it, and which process goes on with it."""

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
    sql.SQL(  # a replay put records into their stream again, and had no incarnation of its own
        "ALTER TABLE replays DROP COLUMN IF EXISTS stream, ADD COLUMN IF NOT EXISTS tier text,"
        " ADD COLUMN IF NOT EXISTS incarnation bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS rows_in bigint NOT NULL DEFAULT 0,"
        " ADD COLUMN IF NOT EXISTS rows_out bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS filtered bigint NOT NULL DEFAULT 0,"
        " ADD COLUMN IF NOT EXISTS quarantined bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS replays bigint NOT NULL DEFAULT 0,"
        " ADD COLUMN IF NOT EXISTS pace float8 NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS sentence text NOT NULL DEFAULT '',"
        " ADD COLUMN IF NOT EXISTS said_at timestamptz"
    ),
)
"""The table; `sluice.commands.publish` creates it."""


class ReplayError(Exception):
    """The replay cannot be done as it is asked for."""


class BrokenOffError(Exception):
    """It has ended in the middle, and can be gone on with."""


@dataclass(frozen=True)
class Replay:
    """One replay of a tier: from `begins` up to `ends`, by `topic/partition`, and before `done` it is done."""

    number: int
    tier: str
    rate: float
    """The most records that it takes in a second."""
    begins: dict[str, int]
    done: dict[str, int]
    ends: dict[str, int]
    incarnation: int = 0
    """Which of the processes that have gone on with it: the last one alone may save."""

    @property
    def by(self) -> str:
        """Name it as the writer of records: no run of the tier, so that nobody takes them for the tier's own position."""
        return f"{self.tier}{REPLAY}{self.number}"

    @property
    def quarantined(self) -> bool:
        """Whether it reads what was set aside."""
        return all(place.rpartition("/")[0].endswith(QUARANTINE) for place in self.ends)

    @property
    def source(self) -> str:
        """Name the topics that it reads."""
        return ", ".join(sorted({place.rpartition("/")[0] for place in self.ends}))

    @property
    def open(self) -> dict[str, int]:
        """The partitions that are not done, and where to go on."""
        return {
            partition: self.done[partition]
            for partition, end in self.ends.items()
            if self.done[partition] < end
        }

    def at(self, done: dict[str, int]) -> "Replay":
        """Return it further on."""
        return replace(self, done=done)

    @property
    def left(self) -> int:
        """How many records are still to be taken."""
        return sum(self.ends[partition] - offset for partition, offset in self.open.items())


def gone(replay: Replay, oldest: dict[str, int]) -> str | None:
    """Say which records that it has still to take its streams, which begin at `oldest`, hold no more; None where they hold all. Pure."""
    lost = {
        place: (offset, min(oldest[place], replay.ends[place]))
        for place, offset in replay.open.items()
        if offset < oldest[place]
    }
    if not lost:
        return None
    places = ", ".join(f"{place} from {first} up to {last}" for place, (first, last) in sorted(lost.items()))
    number, way = (
        replay.number,
        f"`sluice replay --cancel {replay.number}`, and begin a new one for what is left",
    )
    return f"records that replay {number} has still to take are gone, for Kafka keeps no stream for ever: {places}; end it with {way}"


def beyond(
    begins: dict[str, int], earlier: Iterable[tuple[dict[str, int], dict[str, int]]]
) -> dict[str, int]:
    """Return the begins moved past what was done already, from begin to end, without a hole."""
    spans = sorted((first, done[place], place) for start, done in earlier for place, first in start.items())
    moved = dict(begins)
    for first, last, place in spans:
        if place in moved and first <= moved[place]:
            moved[place] = max(moved[place], last)
    return moved


def _refuse_another(replay: Replay, rows: int) -> None:
    """Refuse to go on where this is the replay's incarnation no more."""
    if not rows:
        message = (
            f"replay {replay.number} was cancelled, or another process goes on with it; this one has stopped"
        )
        raise ReplayError(message)


class Book:
    """The table of replays, and what the audit and the ledger say that a replay has to know."""

    def __init__(self, postgres: str) -> None:
        """Connect."""
        self._connection = connect(postgres)

    def add(self, replay: Replay) -> Replay:
        """Give a new replay its number."""
        row = self._connection.execute(
            "INSERT INTO replays (tier, source, rate, begins, done, ends) VALUES (%s, %s, %s, %s, %s, %s) RETURNING number",
            (
                replay.tier,
                replay.source,
                replay.rate,
                json.dumps(replay.begins),
                json.dumps(replay.done),
                json.dumps(replay.ends),
            ),
        ).fetchone()
        return replace(replay, number=0 if row is None else int(row[0]))

    def find(self, number: int) -> Replay:
        """Return an earlier replay that may be gone on with."""
        row = self._connection.execute(
            "SELECT number, tier, rate, begins, done, ends, incarnation, ended_at FROM replays WHERE number = %s",
            (number,),
        ).fetchone()
        if row is None or row[1] is None:
            message = f"there is no replay {number}" + (
                "" if row is None else " that this version can go on with: begin a new one"
            )
            raise ReplayError(message)
        *known, ended = row
        replay = Replay(*known)
        if ended is not None and replay.left:
            message = f"replay {number} was cancelled; begin a new one with `sluice replay {replay.tier}`"
            raise ReplayError(message)
        return replay

    def take(self, replay: Replay) -> Replay:
        """Go on with it as its next incarnation: whoever went on with it before saves nothing any more."""
        row = self._connection.execute(
            "UPDATE replays SET incarnation = incarnation + 1, rate = %s, said_at = clock_timestamp() WHERE number = %s"
            " RETURNING incarnation, done",
            (replay.rate, replay.number),
        ).fetchone()
        return replay if row is None else replace(replay, incarnation=int(row[0]), done=dict(row[1]))

    def cancel(self, number: int) -> None:
        """End it where it is; a process that goes on with it is refused at its next step."""
        self._connection.execute(
            "UPDATE replays SET ended_at = clock_timestamp() WHERE number = %s AND ended_at IS NULL",
            (number,),
        )

    def save(self, replay: Replay, counts: Counts, cursor: "psycopg.Cursor[Any] | None" = None) -> None:
        """Remember how far it is and what came of the last records; within the caller's transaction, where there is one."""
        saved = (cursor or self._connection).execute(
            "UPDATE replays SET done = %s, rows_in = rows_in + %s, rows_out = rows_out + %s, filtered = filtered + %s,"
            " quarantined = quarantined + %s, replays = replays + %s, said_at = clock_timestamp(),"
            " ended_at = CASE WHEN %s THEN clock_timestamp() END WHERE number = %s AND incarnation = %s AND ended_at IS NULL",
            (
                json.dumps(replay.done), counts.rows_in, counts.rows_out, counts.filtered, counts.quarantined, counts.replays,
                not replay.left, replay.number, replay.incarnation,
            ),
        )  # fmt: skip
        _refuse_another(replay, saved.rowcount)

    def say(self, replay: Replay, pace: float, sentence: str) -> None:
        """Say how it is doing."""
        said = self._connection.execute(
            "UPDATE replays SET pace = %s, sentence = %s, said_at = clock_timestamp()"
            " WHERE number = %s AND incarnation = %s AND ended_at IS NULL",
            (pace, sentence, replay.number, replay.incarnation),
        )
        _refuse_another(replay, said.rowcount)

    def counts(self, replay: Replay) -> Counts:
        """Return what came of all its records so far."""
        row = self._connection.execute(
            "SELECT rows_in, rows_out, filtered, quarantined, replays FROM replays WHERE number = %s",
            (replay.number,),
        ).fetchone()
        rows_in, rows_out, filtered, quarantined, replays = row or (0, 0, 0, 0, 0)
        return Counts(rows_in, rows_out, filtered, quarantined, replays, 0, 0, rows_out)

    def after(self, tier: str, begins: dict[str, int]) -> dict[str, int]:
        """Return where to begin so that nothing is taken that earlier replays of the tier have taken."""
        earlier = self._connection.execute(
            "SELECT begins, done FROM replays WHERE coalesce(tier, %s) = %s ORDER BY number", (tier, tier)
        ).fetchall()
        return beyond(begins, earlier)

    def through(self, tier: Tier) -> dict[str, int]:
        """Return the offsets before which all has gone through the tier: as its ledger says, or as the audit has found in its streams."""
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
        """Return what each of these tiers has dropped since the replay began, as records that it had."""
        return dict(
            self._connection.execute(
                "SELECT ledger.tier, sum(ledger.replays)::bigint FROM ledger JOIN replays ON ledger.at >= replays.began_at"
                " WHERE ledger.tier = ANY(%s) AND ledger.replay IS NULL AND replays.number = %s GROUP BY ledger.tier ORDER BY ledger.tier",
                (list(tiers), replay.number),
            ).fetchall()
        )
