"""What a tier at the end of the pipeline writes into, batch by batch, within the transaction of the batch's ledger row (`ledger`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from sluice.api.marks import Marks


class SinkAwayError(Exception):
    """The sink takes nothing now; the batch is tried again."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        """Say why, and for how long it asks to be left alone (seconds)."""
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class Rows:
    """What a batch brings to a sink: one list for each column, and the lineage of each row."""

    columns: dict[str, Sequence[Any]]
    origins: Sequence[str]
    paths: Sequence[str]

    def only(self, rows: Sequence[int]) -> "Rows":
        """Return some of the rows."""
        columns, *names = self.columns.items(), self.origins, self.paths
        return Rows(
            {name: [column[row] for row in rows] for name, column in columns},
            *([each[row] for row in rows] for each in names),
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.origins)


@dataclass(frozen=True)
class Unfit:
    """In the place of a value that Python has no word for: a time of the year 10000, a text that is not UTF-8."""

    why: str

    def __str__(self) -> str:
        """Say so where the row is kept."""
        return self.why


@dataclass(frozen=True)
class Written:
    """What came of a batch's rows; all others were replays."""

    new: int
    refused: int = 0
    """The sink will never take them; it keeps them aside, as it says."""
    lost: int = 0
    """At most once: it may have taken them or not, and they are not sent again."""


@dataclass(frozen=True)
class Absorbed:
    """What became of the records that a tier with state was given; all others were late."""

    taken: int = 0
    """The state has them."""
    replays: int = 0
    unmatched: int = 0
    """Of those that it took, so many have found no partner, and their join leaves them out."""

    def __add__(self, other: "Absorbed") -> "Absorbed":
        """Add up."""
        return Absorbed(
            self.taken + other.taken, self.replays + other.replays, self.unmatched + other.unmatched
        )

    def __sub__(self, other: "Absorbed") -> "Absorbed":
        """Take away what is counted already."""
        return Absorbed(
            self.taken - other.taken, self.replays - other.replays, self.unmatched - other.unmatched
        )


@dataclass(frozen=True)
class Sink:
    """Takes the rows of a tier."""

    transactional: ClassVar[bool] = False
    """Whether its rows are a part of the transaction, so that a batch is written wholly or not at all."""
    replaces: ClassVar[bool] = False
    """Whether a row takes the place of the one before it with its key: what a tier with state fills."""

    name: str
    columns: dict[str, str]
    """The transform's columns and their SQL types, in order."""

    @property
    def keys(self) -> Sequence[str]:
        """Return the columns by which it finds rows again; they are never null."""
        return ()

    def statements(self) -> list[sql.Composed]:
        """Return the statements that create or migrate what it needs in PostgreSQL; running them again is harmless."""
        raise NotImplementedError

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Write within the caller's transaction, raising the marks (of the caller's copy) when it tells replays by them.

        What takes long gives up with SinkAwayError when `halt` is set: somebody waits for the tier to hold.
        """
        raise NotImplementedError

    def write_at_most_once(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Do the same, and send nothing again that may have been taken; SinkAwayError says that nothing was sent at all.

        What was not sent when `halt` is set is lost.
        """
        raise NotImplementedError
