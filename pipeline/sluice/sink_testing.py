"""Checks that a sink keeps the rules of the driver: for the tests of a sink of your own.

    from sluice.sink_testing import SinkCase, check_sink

    def test_my_sink_conforms():
        check_sink(SinkCase(SINK, row, expected, held), "postgresql://127.0.0.1/test")

`check_sink` writes batches as a driver does, in the same transactions. It needs a PostgreSQL with
rights to create tables, and what the sink writes to. Spark and Kafka are not needed. The rules:

- Creating the tables twice is harmless, and no other tables are used.
- A record that comes again changes nothing.
- The writer may die at each step; the next writer writes the batch again.
- The writer may freeze at each step, be replaced, and wake up: it cannot write any more.
- A writer without the right to write changes nothing.
- While the tier must hold, the batch is written, or given back with SinkAwayError.
- The writer of files may die or freeze at each step, as the writer of batches may.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, RLock
from typing import Any, TypeVar
from uuid import uuid4

import psycopg

from sluice.api.declarations import Pipeline, State, Stream, Tier
from sluice.api.sink import Absorbed, Rows, Sink, SinkAwayError
from sluice.commands import tables
from sluice.postgres import Connected
from sluice.sinks.archive import Archive, has_archive
from sluice.sinks.batches import Batch, LedgerMovedError
from sluice.sinks.fence import FencedError
from sluice.sinks.ledger import Ledger
from sluice.sinks.table import RecordTable
from sluice_ops.model.tier import Delivery, Kind
from sluice_ops.site.site_file import S3Config

__all__ = ["NonconformingSinkError", "SinkCase", "check_sink"]

ROWS = 6
"""The records of a batch."""
MOST_STEPS = 500
END_SECONDS = 10
"""How long a session of PostgreSQL may take to end."""


class NonconformingSinkError(AssertionError):
    """The sink breaks a rule; the message names the rule, the step and the difference."""


@dataclass(frozen=True)
class SinkCase:
    """A sink, and how to see what it has written."""

    sink: Sink
    """An empty sink: nothing has been written to it."""
    row: Callable[[int], Mapping[str, Any]]
    """Returns the columns of record 0, 1, 2 …."""
    expected: Callable[[int], object]
    """Returns what the sink must hold when it has taken so many records, each of them once."""
    held: Callable[[], object]
    """Returns what the sink holds now, to be compared with `expected`."""
    home: Path = Path("/nonexistent")
    """The home of a sink that writes files below it."""


A = TypeVar("A", bound=Archive)


class _Killed(BaseException):
    """The writer dies here."""


class _Fuse:
    """Does something at one step of a writer: a statement, or a look at `halt`."""

    def __init__(self, steps: int, burn: Callable[[], None]) -> None:
        self._left, self._burn, self._lock = steps, burn, RLock()
        self.burnt = False

    def step(self) -> None:
        with self._lock:
            if self._left == 0:
                self.burnt = True
                self._burn()
            else:
                self._left -= 1


class _Halt(Event):
    """The event `halt` of a writer with a fuse."""

    def __init__(self, fuse: _Fuse) -> None:
        super().__init__()
        self._fuse = fuse

    def is_set(self) -> bool:
        self._fuse.step()
        return super().is_set()


class _Fused(Connected):
    """A writer whose statements are steps of a fuse."""

    fuse: _Fuse

    def open(self) -> psycopg.Connection[Any]:
        connection, fuse = super().open(), self.fuse

        class Cursor(psycopg.Cursor[Any]):
            def execute(self, *args: Any, **options: Any) -> "Cursor":
                fuse.step()
                super().execute(*args, **options)
                fuse.step()
                return self

            def executemany(self, *args: Any, **options: Any) -> None:
                fuse.step()
                super().executemany(*args, **options)
                fuse.step()

        connection.cursor_factory = Cursor
        return connection


class _FusedLedger(_Fused, Ledger):
    """The ledger of a writer with a fuse."""


class _FusedArchive(_Fused, Archive):
    """The archive of a writer with a fuse."""


@dataclass
class _Check:
    """The check of one sink: it remembers what was written."""

    case: SinkCase
    postgres: str
    tier: str
    epoch: int = 1
    taken: int = 0
    """The records that the sink has to hold."""
    offset: int = 0
    """The input offset at which the next batch begins."""

    def replays(self) -> None:
        """Check that records are written, and that records that come again change nothing."""
        self._compare("the sink must be empty at first")
        with closing(self._writer()) as writer:
            self._write(writer, self._next())
        self._took("a batch")
        if self.case.sink.replaces:
            return  # the state of the tier drops replays
        again = self._rows(0, self.taken)
        with closing(self._writer()) as writer:
            counts = writer.write(self._batch(again), again, epoch=self.epoch)
        self.offset += len(again)
        self._compare("records that came again changed something")
        if counts.replays != len(again):
            message = (
                f"records that came again: the sink returned {counts.written} of them as new; "
                "count only rows that are new"
            )
            raise NonconformingSinkError(message)

    def kills(self) -> None:
        """Let the writer die at each step."""
        for step in self._steps():
            rows, fuse = self._next(), _Fuse(step, _die)
            where = f"the writer died at step {step}"
            with closing(self._writer(fuse)) as writer, suppress(_Killed):
                self._write(writer, rows)
            if not fuse.burnt:
                self._took("a batch")
                return
            if all(sink.transactional for sink in self.case.sink.members):
                self._compare(f"{where}, and its rows were not rolled back")
            self.epoch += 1
            with closing(self._writer()) as writer:
                self._write(writer, rows)
            self._took(f"{where}, and the next writer wrote the batch again")

    def freezes(self) -> None:
        """Let the writer freeze at each step, be replaced, and wake up."""
        for step in self._steps():
            if not self._freezes_at(step):
                return

    def _freezes_at(self, step: int) -> bool:
        """Let the writer freeze at a step; return whether it has so many steps."""
        rows, epoch, where = self._next(), self.epoch, f"the writer froze at step {step}"

        def take_over() -> None:
            if self.epoch == epoch:  # else another thread of the sink wakes up
                self.epoch += 1
                self._end_session(frozen)
                with closing(self._writer()) as successor:
                    self._write(successor, rows)

        fuse = _Fuse(step, take_over)
        frozen = self._writer(fuse)
        with closing(frozen):
            try:
                self._write(frozen, rows, epoch)
            except (psycopg.Error, LedgerMovedError, FencedError, SinkAwayError):
                pass
            else:
                if fuse.burnt:
                    message = f"{where}, was replaced, and wrote its batch all the same"
                    raise NonconformingSinkError(message)
        self._took(f"{where}, was replaced, and woke up" if fuse.burnt else "a batch")
        return fuse.burnt

    def fence(self) -> None:
        """Check that a writer without the right to write changes nothing."""
        rows = self._next()
        with closing(self._writer()) as writer:
            try:
                self._write(writer, rows, self.epoch - 1)
            except FencedError:
                self._compare("a writer without the right to write changed something")
            else:
                message = "a writer without the right to write was not refused"
                raise NonconformingSinkError(message)

    def halt(self) -> None:
        """Check that the sink gives a batch back, or writes it, while the tier must hold."""
        rows = self._next()
        with closing(self._writer()) as writer:
            writer.halt.set()
            try:
                self._write(writer, rows)
            except SinkAwayError:
                writer.halt.clear()
                self._write(writer, rows)
        self._took("the tier had to hold, and went on")

    def files(self) -> None:
        """Let the writer of files die at each step, and freeze at each step and wake up."""
        for table in filter(has_archive, self.case.sink.members):
            for dies in (True, False):
                for step in self._steps():
                    if not self._files_at(table, step, dies=dies):
                        break

    def _files_at(self, table: RecordTable, step: int, *, dies: bool) -> bool:
        """Let the writer of files die or freeze at a step; return whether it has so many steps."""
        with closing(self._writer()) as writer:
            self._write(writer, self._next())
        self.taken, self.offset = self.taken + ROWS, self.offset + ROWS
        where = f"the writer of files {'died' if dies else 'froze'} at step {step}"
        frozen = self._archive(_FusedArchive, table)

        def take_over() -> None:
            self._end_session(frozen)
            self._compare(f"{where}, and was replaced")
            with closing(self._writer()) as successor:
                self._write(successor, self._next())
            self._took(f"{where}, and the next one wrote more files")

        fuse = _Fuse(step, _die if dies else take_over)
        frozen.fuse = fuse
        with closing(frozen), suppress(_Killed):
            frozen.write()
        self._compare(f"{where}, and the next one went on" if fuse.burnt else "files were written")
        return fuse.burnt

    def _archive(self, kind: type[A], table: RecordTable) -> A:
        return kind(self.postgres, self.case.home, self.tier, table, S3Config())

    def _steps(self) -> Iterator[int]:
        yield from range(MOST_STEPS)
        message = f"a batch of {ROWS} rows takes more than {MOST_STEPS} steps; write rows together"
        raise NonconformingSinkError(message)

    def _writer(self, fuse: _Fuse | None = None) -> Ledger:
        if fuse is None:
            return Ledger(self.postgres, self.tier, self.epoch, self.case.sink)
        writer = _FusedLedger(self.postgres, self.tier, self.epoch, self.case.sink, halt=_Halt(fuse))
        writer.fuse = fuse
        return writer

    def _end_session(self, frozen: Connected) -> None:
        """End the session of a frozen writer, as its successor does."""
        session = frozen.open().info.backend_pid
        with psycopg.connect(self.postgres, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, %s)", (session, END_SECONDS * 1000))

    def _next(self) -> Rows:
        return self._rows(self.taken, self.taken + ROWS)

    def _rows(self, first: int, last: int) -> Rows:
        rows = [self.case.row(number) for number in range(first, last)]
        columns: dict[str, Sequence[Any]] = {
            name: [row[name] for row in rows] for name in self.case.sink.columns
        }
        return Rows(columns, [f"0:{number}" for number in range(first, last)], ["0"] * len(rows))

    def _batch(self, rows: Rows) -> Batch:
        return Batch({"check/0": self.offset}, {"check/0": self.offset + len(rows)})

    def _write(self, writer: Ledger, rows: Rows, epoch: int | None = None) -> None:
        absorbed = Absorbed(taken=len(rows)) if self.case.sink.replaces else None
        writer.write(self._batch(rows), rows, epoch=self.epoch if epoch is None else epoch, absorbed=absorbed)

    def _took(self, what: str) -> None:
        """Note that a batch was written, and compare."""
        self.taken, self.offset = self.taken + ROWS, self.offset + ROWS
        self._compare(what)

    def _compare(self, what: str) -> None:
        for table in filter(has_archive, self.case.sink.members):
            with closing(self._archive(Archive, table)) as archive:
                archive.write()
        held, expected = self.case.held(), self.case.expected(self.taken)
        if held != expected:
            message = f'sink "{self.case.sink.name}": {what}: it holds {held}, and should hold {expected}'
            raise NonconformingSinkError(message)


def check_sink(case: SinkCase, postgres: str) -> None:
    """Raise NonconformingSinkError if the sink breaks a rule.

    `postgres` is the address of a database for tests: the tables of Sluice and of the sink are made
    there. DeclarationError if a pipeline could not name the sink.
    """
    tier = f"check-{uuid4().hex[:8]}"
    _make_tables(case.sink, tier, postgres)
    check = _Check(case, postgres, tier)
    check.replays()
    check.kills()
    check.freezes()
    check.fence()
    check.halt()
    check.files()


def _make_tables(sink: Sink, tier: str, postgres: str) -> None:
    pipeline = Pipeline(
        (
            Tier(
                tier,
                Kind.OUTBOUND,
                (Stream("check"),),
                lambda records: records,
                sink=sink,
                state=State(0) if sink.replaces else None,
                delivery=Delivery.AT_LEAST_ONCE,
            ),
        )
    )
    for _ in range(2):
        tables.create(postgres, pipeline)
    for member in sink.members:
        granted = {member.name, f"{member.name}_refused"}
        if others := {*member.tables} - granted:
            message = (
                f'sink "{member.name}": drivers get no rights to its tables {", ".join(sorted(others))}; '
                f"use {' and '.join(sorted(granted))} only"
            )
            raise NonconformingSinkError(message)
    if missing := tables.missing(postgres, pipeline):
        message = f'sink "{sink.name}": `statements` does not create {", ".join(missing)}; correct `tables`'
        raise NonconformingSinkError(message)


def _die() -> None:
    raise _Killed
