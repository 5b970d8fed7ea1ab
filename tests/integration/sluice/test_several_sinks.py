"""Several sinks of one tier hold each record once, whatever stops a batch between two of them."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import psycopg
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, Written
from sluice.commands import tables
from sluice.sinks import archive as archives
from sluice.sinks.archive import Archive
from sluice.sinks.batches import Batch
from sluice.sinks.ledger import Ledger
from sluice.sinks.refused import REFUSED
from sluice.sinks.several import Sinks
from sluice.sinks.sql_table import SqlTable
from sluice.sinks.table import Once, ParquetFiles, Totals
from sluice_ops.model.tier import Kind
from sluice_ops.site.site_file import S3Config
from tests.database import database

pytestmark = pytest.mark.timeout(240)

TOO_LARGE = 2**40
"""PostgreSQL refuses a number that is so much larger in a column of type integer."""
NUMBER = {"n": "integer"}
ADDED = {"who": "text", "n": "bigint"}
UNLUCKY = 3
"""A database outside refuses multiples of this number."""
RUNS = count()
"""The numbers of the runs, each with tables of its own."""


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(tmp_path_factory.mktemp("several")) as address:
        yield address


class CrashError(Exception):
    """The writer dies here."""


@dataclass
class Crash:
    """Where the writer dies in its next batch."""

    at: str | None = None

    def reach(self, place: str) -> None:
        if self.at == place:
            self.at = None
            raise CrashError(place)


@dataclass(frozen=True)
class Trap(Sink):
    """A place between two sinks where the writer may die."""

    transactional: ClassVar[bool] = True
    crash: Crash = field(default_factory=Crash)

    def statements(self) -> list[Any]:
        return []

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        del cursor, batch, halt
        self.crash.reach(self.name)
        return Written(len(first_seen(marks, rows.paths, rows.origins)))


@dataclass(frozen=True)
class OutsideTrap(Trap):
    """A trap between sinks outside."""

    transactional: ClassVar[bool] = False
    exactly_once: ClassVar[bool] = True


@dataclass(frozen=True)
class Service(Sink):
    """A service: it gets records again after a crash."""

    calls: list[int] = field(default_factory=list)

    def statements(self) -> list[Any]:
        return []

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        del cursor, batch, halt
        new = first_seen(marks, rows.paths, rows.origins)
        self.calls.extend(rows.columns["n"][row] for row in new)
        return Written(len(new))


COMMIT = "commit"
"""The writer dies when all sinks have the rows, and PostgreSQL's transaction is still open."""


@dataclass
class Dying(Ledger):
    """A writer that may die just before its commit."""

    crash: Crash = field(default_factory=Crash)

    def _record(self, *args: Any, **options: Any) -> None:
        super()._record(*args, **options)
        self.crash.reach(COMMIT)


def make(postgres: str, tier: str, sink: Sink) -> None:
    """Make the tables of a tier."""
    out = Tier(tier, Kind.OUTBOUND, (Stream("in"),), lambda records: records, sink=sink)
    tables.create(postgres, Pipeline((out,)))


class Run:
    """One tier with several sinks, and the model of what they must hold.

    The number of a record is its offset; PostgreSQL refuses some numbers.
    """

    def __init__(self, postgres: str, home: Path, order: list[int]) -> None:
        self.postgres, self.crash, run = postgres, Crash(), next(RUNS)
        self.files = {name: home / f"{name}{run}.db" for name in ("told", "sold")}
        for name, check in (("told", ""), ("sold", f"check (n % {UNLUCKY} <> 0)")):
            with closing(sqlite3.connect(self.files[name])) as database_outside:
                database_outside.execute(f"create table rows (n integer {check})")
        url = {name: f"sqlite:///{file}" for name, file in self.files.items()}
        self.service = Service(f"called{run}", NUMBER)
        self.sinks: dict[str, Sink] = {
            "kept": Once(f"kept{run}", NUMBER),
            "sums": Totals(f"sums{run}", ADDED, key=("who",)),
            "inside": Trap("inside", NUMBER, crash=self.crash),
            "told": SqlTable(f"told{run}", NUMBER, url=url["told"], table="rows"),
            "outside": OutsideTrap("outside", NUMBER, crash=self.crash),
            "sold": SqlTable(f"sold{run}", NUMBER, url=url["sold"], table="rows"),
            "called": self.service,
        }
        self.names = [[*self.sinks][place] for place in order]
        self.sink = Sinks(*(self.sinks[name] for name in self.names))
        self.tier = f"tier-{run}"
        make(postgres, self.tier, self.sink)
        self.offset = self.records = 0
        self.bad: set[int] = set()
        self.quarantine: list[int] = []
        self.refused = 0
        self.is_once = True
        """Whether the service got each record once: no writer died after it was called."""

    def put(self, new: list[bool], again: int, crash: str | None) -> None:
        """Write a batch as a driver does: some earlier records, and new ones, good or bad."""
        first = max(0, self.records - again)
        self.bad |= {self.records + place for place, good in enumerate(new) if not good}
        self.records += len(new)
        numbers, set_aside = range(first, self.records), list[int]()
        batch = Batch({"in/0": self.offset}, {"in/0": self.offset + len(numbers)})
        self.offset += len(numbers)
        self.crash.at = crash
        while True:
            good = [number for number in numbers if number not in set_aside]
            before, rows = len(self.quarantine), self.rows(good)
            with closing(Dying(self.postgres, self.tier, 1, self.sink, crash=self.crash)) as ledger:
                try:
                    counts = ledger.write(
                        batch,
                        rows,
                        epoch=1,
                        quarantined=len(set_aside),
                        put_quarantined=partial(self.quarantine.extend, set_aside),
                    )
                except CrashError as died:
                    self.is_once &= str(died) != COMMIT
                except REFUSED:
                    assert len(self.quarantine) == before, "it is too early for the quarantine"
                    with suppress(CrashError):
                        refused = ledger.refused(rows)
                        assert refused, "the tier would stop for ever"
                        set_aside += [good[row] for row in refused]
                else:
                    self.refused += counts.refused
                    return

    def rows(self, numbers: list[int]) -> Rows:
        columns = {
            "n": [number + TOO_LARGE if number in self.bad else number for number in numbers],
            "who": [f"user-{number % 2}" for number in numbers],
        }
        return Rows(columns, [f"0:{number}" for number in numbers], ["0"] * len(numbers))

    def check(self) -> None:
        """Compare each sink, the quarantine and the ledger with the model."""
        good = sorted({*range(self.records)} - self.bad)
        lucky = [number for number in good if number % UNLUCKY]
        unlucky = sorted({*good} - {*lucky})
        sums: Counter[str] = Counter()
        for number in good:
            sums[f"user-{number % 2}"] += number
        names = {name: sink.name for name, sink in self.sinks.items()}
        assert self.read(f"select n from {names['kept']} order by n") == good  # noqa: S608
        assert self.read(f"select (who, n)::text from {names['sums']} order by 1") == [  # noqa: S608
            f"({who},{total})" for who, total in sorted(sums.items())
        ]
        assert (self.outside("told"), self.outside("sold")) == (good, lucky)
        refused = f"select (record->>'n')::int from {names['sold']}_refused order by 1"  # noqa: S608
        assert self.read(refused) == unlucky
        assert {*self.service.calls} == {*good}
        assert not self.is_once or sorted(self.service.calls) == good
        assert {*self.quarantine} == self.bad
        first, *others = self.names
        wrote = dict.fromkeys(self.names, len(good)) | {"sold": len(lucky)}
        of_tier = f"from ledger where tier = '{self.tier}'"
        assert self.read(f"select coalesce(sum(rows_out), 0)::int {of_tier}") == [wrote[first]]
        for name in others:
            query = f"select coalesce(sum((others->>'{names[name]}')::int), 0)::int {of_tier}"
            assert self.read(query) == [wrote[name]]
        assert self.refused == (0 if first == "sold" else len(unlucky))

    def read(self, query: str) -> list[Any]:
        with psycopg.connect(self.postgres) as connection:
            return [value for (value,) in connection.execute(query.encode()).fetchall()]

    def outside(self, name: str) -> list[int]:
        with closing(sqlite3.connect(self.files[name])) as database_outside:
            return [n for (n,) in database_outside.execute("select n from rows order by n")]


BATCHES = st.tuples(
    st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=5),
    st.integers(0, 3),
    st.sampled_from([None, "inside", "outside", COMMIT]),
)
"""The new records, good or bad; how many records come again; and where the writer dies once."""


@settings(max_examples=30)
@given(order=st.permutations(range(7)), puts=st.lists(BATCHES, min_size=1, max_size=5))
def test_each_sink_has_each_record_once_after_crashes_and_refusals(
    postgres: str, tmp_path_factory: pytest.TempPathFactory, order: list[int], puts: list[Any]
) -> None:
    run = Run(postgres, tmp_path_factory.mktemp("run"), order)
    for put in puts:
        run.put(*put)
    run.check()


def test_a_service_is_called_last_and_not_again_while_another_is_away(postgres: str, tmp_path: Path) -> None:
    run = Run(postgres, tmp_path, [6, 4, 3, 2, 0, 1, 5])
    run.put([True, True], 0, "outside")
    run.check()
    assert run.is_once


def test_the_archive_of_a_sink_added_later_begins_with_its_first_row(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_ROWS", 2)
    kept, files = Once("kept", NUMBER), ParquetFiles("files", NUMBER, folder="files")
    both = Sinks(kept, files)
    make(postgres, "grown", both)
    for number in range(8):
        rows = Rows({"n": [number]}, [f"0:{number}"], ["0"])
        with closing(Ledger(postgres, "grown", 1, kept if number < 6 else both)) as ledger:
            ledger.write(Batch({"in/0": number}, {"in/0": number + 1}), rows, epoch=1)
    with closing(Archive(postgres, tmp_path, "grown", files, S3Config())) as archive:
        assert [archive.write(), archive.write()] == [2, 0]
    written = ds.dataset(tmp_path / "archive" / "files", partitioning="hive").to_table()
    assert sorted(written["n"].to_pylist()) == [6, 7]
