"""What is remembered of each replay, in PostgreSQL: from where to where, how far, at which rate."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS replays (number bigserial PRIMARY KEY, stream text NOT NULL, source text NOT NULL,"
        " rate float8 NOT NULL, begins jsonb NOT NULL, done jsonb NOT NULL, ends jsonb NOT NULL,"
        " began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz)"
    ),
)
"""The table; `pipeline.publish` creates it."""


class ReplayError(Exception):
    """The replay cannot be done as it is asked for."""


@dataclass
class Replay:
    """One replay: from `begins` up to `ends`, by `topic/partition`, and before `done` it is done."""

    number: int
    stream: str
    """Where the records are put."""
    source: str
    """The topic that they are read from: the stream itself, or its quarantine."""
    rate: float
    begins: dict[str, int]
    done: dict[str, int]
    ends: dict[str, int]

    @property
    def open(self) -> dict[str, int]:
        """The partitions that are not done, and where to go on."""
        return {partition: self.done[partition] for partition, end in self.ends.items() if self.done[partition] < end}

    @property
    def left(self) -> int:
        """How many records are still to be put."""
        return sum(self.ends[partition] - offset for partition, offset in self.open.items())


def beyond(begins: dict[str, int], earlier: Iterable[tuple[dict[str, int], dict[str, int]]]) -> dict[str, int]:
    """Return the begins moved past what was done already, from begin to end, without a hole."""
    spans = sorted((first, done[place], place) for start, done in earlier for place, first in start.items())
    moved = dict(begins)
    for first, last, place in spans:
        if place in moved and first <= moved[place]:
            moved[place] = max(moved[place], last)
    return moved


class Book:
    """The table of replays."""

    def __init__(self, postgres: str) -> None:
        """Connect."""
        self._connection: psycopg.Connection[Any] = psycopg.connect(postgres, autocommit=True, connect_timeout=5)

    def add(self, replay: Replay) -> Replay:
        """Give a new replay its number."""
        row = self._connection.execute(
            "INSERT INTO replays (stream, source, rate, begins, done, ends) VALUES (%s, %s, %s, %s, %s, %s) RETURNING number",
            (replay.stream, replay.source, replay.rate, json.dumps(replay.begins), json.dumps(replay.done), json.dumps(replay.ends)),
        ).fetchone()
        return replace(replay, number=0 if row is None else int(row[0]))

    def find(self, number: int) -> Replay:
        """Return an earlier replay."""
        row = self._connection.execute(
            "SELECT number, stream, source, rate, begins, done, ends FROM replays WHERE number = %s", (number,)
        ).fetchone()
        if row is None:
            message = f"there is no replay {number}"
            raise ReplayError(message)
        return Replay(*row)

    def after(self, source: str, begins: dict[str, int]) -> dict[str, int]:
        """Return where to begin so that nothing is put that earlier replays of this source have put."""
        earlier = self._connection.execute("SELECT begins, done FROM replays WHERE source = %s ORDER BY number", (source,)).fetchall()
        return beyond(begins, earlier)

    def save(self, replay: Replay) -> None:
        """Remember how far a replay is."""
        self._connection.execute(
            "UPDATE replays SET done = %s, ended_at = CASE WHEN %s THEN clock_timestamp() END WHERE number = %s",
            (json.dumps(replay.done), not replay.left, replay.number),
        )
