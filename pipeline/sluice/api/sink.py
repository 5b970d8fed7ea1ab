"""The base class of sinks, and the types that pass between a sink and the driver.

A driver calls a sink once for each batch, in the transaction that also writes the batch's ledger
row (`sluice.sinks.ledger`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from sluice.api.marks import Marks


class SinkAwayError(Exception):
    """The sink accepts nothing now; the driver retries the batch."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        """Keep how long the sink asks the driver to wait before the retry (seconds)."""
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class OutboxRecord:
    """The record that a stream gets of a row that changes its table."""

    partition: int
    key: bytes | None
    value: bytes | None
    """None: the stream's format has no bytes for the row."""


@dataclass(frozen=True)
class Rows:
    """The rows of a batch: one list for each column, and the origin and path of each row."""

    columns: dict[str, Sequence[Any]]
    origins: Sequence[str]
    paths: Sequence[str]
    records: Sequence[OutboxRecord] = ()
    """If the table has a stream: the record of each row."""

    def only(self, rows: Sequence[int]) -> "Rows":
        """Return the rows with these numbers."""
        return Rows(
            {name: [column[row] for row in rows] for name, column in self.columns.items()},
            [self.origins[row] for row in rows],
            [self.paths[row] for row in rows],
        )

    def __len__(self) -> int:
        return len(self.origins)


@dataclass(frozen=True)
class Unfit:
    """Stands for a value that Python cannot represent: a time of the year 10000, a text that is
    not UTF-8.
    """

    why: str

    def __str__(self) -> str:
        """Return the reason; the table of refused rows keeps it."""
        return self.why


@dataclass(frozen=True)
class Written:
    """The results of a batch's rows, as numbers of rows; all other rows were replays."""

    new: int
    refused: int = 0
    """Rows that the sink will never accept; the sink keeps them in its table `<name>_refused`."""
    lost: int = 0
    """With at-most-once: rows that the sink may or may not have taken; they are not sent again."""


@dataclass(frozen=True)
class Absorbed:
    """The results of the input records of a tier with state, as numbers of records.

    All other input records were late.
    """

    taken: int = 0
    """Records that the state contains."""
    replays: int = 0
    unmatched: int = 0
    """Records of `taken` that a join reads and leaves out, because they found no partner."""

    def __add__(self, other: "Absorbed") -> "Absorbed":
        return Absorbed(
            self.taken + other.taken, self.replays + other.replays, self.unmatched + other.unmatched
        )

    def __sub__(self, other: "Absorbed") -> "Absorbed":
        return Absorbed(
            self.taken - other.taken, self.replays - other.replays, self.unmatched - other.unmatched
        )


@dataclass(frozen=True)
class Sink:
    """The base class of what a tier writes its rows into: a table, files or a service."""

    transactional: ClassVar[bool] = False
    """Whether the transaction contains the rows: a batch is then written wholly or not at all."""
    exactly_once: ClassVar[bool] = False
    """Whether a sink outside of the transaction keeps in its own transaction which rows it has."""
    replaces: ClassVar[bool] = False
    """Whether a row replaces the earlier row with the same key; a tier with state needs this."""

    name: str
    columns: dict[str, str]
    """The transform's columns and their SQL types, in order."""

    @property
    def members(self) -> "tuple[Sink, ...]":
        """The sinks that get each batch: this one, or those of `Sinks`."""
        return (self,)

    @property
    def keys(self) -> Sequence[str]:
        """The columns that identify a row; their values are never null."""
        return ()

    @property
    def folders(self) -> Sequence[str]:
        """The folders of Parquet files that the sink alone writes."""
        return ()

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables that `statements` creates."""
        return (self.name,)

    @property
    def indexes(self) -> Sequence[str]:
        """The names of the indexes that `statements` creates. PostgreSQL names them like tables."""
        return [f"{table}_pkey" for table in self.tables]

    def statements(self) -> list[sql.Composed]:
        """Return the SQL that creates or migrates the sink's tables; a second run is harmless."""
        raise NotImplementedError

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Write the rows in the caller's transaction, and return how many were new or refused.

        A sink that recognises replays by the marks raises the marks in place. A slow sink raises
        SinkAwayError when `halt` is set: an operation waits for the tier to pause or stop.
        """
        raise NotImplementedError

    def write_at_most_once(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Write like `write`, but never send a row again that the sink may have taken.

        SinkAwayError means that no row was sent. Rows that are not sent when `halt` is set are
        lost.
        """
        raise NotImplementedError
