"""The sink `SqlTable` on a real MariaDB: its refusals, its deadlocks, and its death in a batch."""

import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event
from typing import Any

import pytest

from sluice.api.sink import Rows, SinkAwayError, Unfit, Written
from sluice.sinks.sql_table import SqlTable
from tests.lab import until
from tests.mariadb import MariaDB, mariadb
from tests.unit.sluice.test_sql_table import Cursor, Look, platform

__all__ = ["platform"]
pytestmark = pytest.mark.timeout(300)

COLUMNS = {"n": "bigint", "text": "text", "at": "timestamp", "price": "decimal(30,2)", "part": "double"}
TABLE = """
n int primary key,
text varchar(9) character set utf8mb4 not null unique,
at timestamp(6) null,
price decimal(10, 2) null,
part double null,
constraint positive check (price > 0)
"""
HELD = "select n from bills order by n"
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    with mariadb(tmp_path_factory.mktemp("mariadb")) as running:
        yield running


@pytest.fixture
def sink(server: MariaDB) -> SqlTable:
    """Return the sink of an empty table; nothing of an earlier test is left."""
    server.query("drop table if exists bills, sluice_marks, sluice_refused, sluice_writers")
    server.make_table("bills", TABLE)
    return SqlTable("told", COLUMNS, url=server.url, table="bills", password_file=server.password_file)


def rows(*numbers: int | None, **columns: list[Any]) -> Rows:
    """Return rows that the table accepts, except for these columns."""
    size = len(numbers)
    accepted = {
        "n": list(numbers),
        "text": [f"text {row}" for row in range(size)],
        "at": [NOON] * size,
        "price": [Decimal("1.50")] * size,
        "part": [0.5] * size,
    }
    return Rows(accepted | columns, [f"0:{row}" for row in range(size)], ["0"] * size)


def numbers(server: MariaDB) -> list[int]:
    return [n for (n,) in server.query(HELD)]


def refusals(cursor: Cursor) -> dict[str, str]:
    return {origin: reason for origin, _record, reason, _batch in cursor.kept}


BAD = {
    "text": (None, r"Column 'text' cannot be null"),
    "long text": ("ten letters", r"Data too long for column 'text'"),
    "same text": ("表", r"Duplicate entry '表' for key 'text'"),
    "surrogate": ("\ud800", r"surrogates not allowed"),
    "check": (Decimal(-1), r"CONSTRAINT `positive` failed"),
    "large": (Decimal(10**12), r"Out of range value for column 'price'"),
    "time": ("soon", r"Incorrect datetime value: 'soon'"),
    "year": (datetime(1000, 1, 1, tzinfo=UTC), r"Incorrect datetime value: '1000-01-01 00:00:00'"),
    "nan": (math.nan, r"mysql has no nan"),
    "infinity": (-math.inf, r"mysql has no -inf"),
    "unfit": (Unfit("a time of the year 10000"), r"a time of the year 10000"),
}
"""Values that a column refuses, and why."""
COLUMN = {"check": "price", "large": "price", "time": "at", "year": "at", "unfit": "at", "nan": "part"} | {
    "infinity": "part"
}


def test_each_row_that_mariadb_refuses_is_set_aside_with_its_reason(server: MariaDB, sink: SqlTable) -> None:
    good = len(BAD) + 1
    batch = rows(*range(good), 2**40, 0)
    batch.columns["text"][0] = "表"
    for row, (name, (value, _)) in enumerate(BAD.items(), 1):
        batch.columns[COLUMN.get(name, "text")][row] = value
    expected = [reason for _, reason in BAD.values()]
    expected += [r"Out of range value for column 'n'", r"Duplicate entry '0' for key 'PRIMARY'"]
    for turn in ("new", "again"):  # PostgreSQL has rolled back after the first try
        written = sink.write(cursor := Cursor(), batch, 1, {}, Event())
        kept = refusals(cursor)
        assert kept.keys() == {f"0:{row}" for row in range(1, good + 2)}, turn
        for row, pattern in enumerate(expected, 1):
            assert re.search(pattern, kept[f"0:{row}"]), (turn, pattern)
        assert written == Written(1, refused=len(expected))
    assert numbers(server) == [0]


@pytest.fixture
def careless(server: MariaDB) -> Iterator[None]:
    """Let the server cut values off, be in the east, and make tables without transactions."""
    names = ("sql_mode", "time_zone", "default_storage_engine")
    (before,) = server.query(f"select {', '.join(f'@@global.{name}' for name in names)}")
    server.query("set global sql_mode = '', time_zone = '+05:00', default_storage_engine = 'MyISAM'")
    yield
    server.query(*(f"set global {name} = '{value}'" for name, value in zip(names, before, strict=True)))


@pytest.mark.usefixtures("careless")
def test_a_careless_server_cuts_nothing_off_and_shifts_no_time(server: MariaDB, sink: SqlTable) -> None:
    batch = rows(1, 2, 3, text=["a", "ten letters", "c"], price=[1, 1, 10**12])
    assert sink.write(cursor := Cursor(), batch, 1, {}, Event()) == Written(1, refused=2)
    assert list(refusals(cursor)) == ["0:1", "0:2"]
    assert server.query("select n, unix_timestamp(at) from bills") == [(1, NOON.timestamp())]
    engines = "select distinct engine from information_schema.tables where table_schema = 'shop'"
    assert server.query(engines) == [("InnoDB",)]


def test_sinks_whose_names_differ_in_case_have_their_own_marks(server: MariaDB, sink: SqlTable) -> None:
    assert sink.write(Cursor(), rows(1), 1, {}, Event()) == Written(1)
    server.query("delete from bills")
    assert replace(sink, name="Told").write(Cursor(), rows(1), 1, {}, Event()) == Written(1)
    assert numbers(server) == [1]


def fails(sink: SqlTable, batch: Rows, reason: str, look: int, happens: Callable[[], None]) -> None:
    """Write a batch, of which something happens at a look, and the sink waits with the reason."""
    with pytest.raises(SinkAwayError, match=reason) as raised:
        sink.write(cursor := Cursor(), batch, 1, {}, Look(look, happens))
    assert cursor.kept == []
    assert "is tried again" in str(raised.value)


def is_written_then(server: MariaDB, sink: SqlTable, batch: Rows, refused: int) -> None:
    """Write the batch of a test again: only the row without a text is refused."""
    assert server.query("select count(*) from sluice_refused") == [(0,)]
    written = sink.write(cursor := Cursor(), batch, 1, {}, Event())
    assert written == Written(len(batch) - refused, refused=refused)
    assert all("Column 'text' cannot be null" in reason for reason in refusals(cursor).values())


def test_after_a_lock_wait_the_batch_is_tried_again(server: MariaDB, sink: SqlTable) -> None:
    batch = rows(1, 2, 3, 4, text=["a", None, "c", "d"])
    with closing(server.connect()) as other, other.cursor() as cursor:
        other.begin()
        cursor.execute("insert into bills (n, text) values (4, 'other')")
        fails(sink, batch, r"Lock wait timeout exceeded", 99, lambda: None)
        assert numbers(server) == []
        other.rollback()
    is_written_then(server, sink, batch, 1)
    assert numbers(server) == [1, 3, 4]


def test_after_a_deadlock_the_batch_is_tried_again(server: MariaDB, sink: SqlTable) -> None:
    batch = rows(1, 2, 3, 4, text=["a", None, "c", "d"])
    with closing(server.connect()) as other, other.cursor() as cursor, ThreadPoolExecutor(1) as thread:
        other.begin()
        # The server ends the transaction with fewer changes.
        cursor.execute("insert into bills (n, text) select seq, seq from seq_4_to_300")

        def insert_first_row() -> None:
            """Wait for the row that the sink has inserted, while the sink is about to want 4."""
            thread.submit(cursor.execute, "insert into bills (n, text) values (1, 'other')")
            waiting = "select count(*) from information_schema.innodb_lock_waits"
            until("the other transaction waits", lambda: server.query(waiting) == [(1,)])

        fails(sink, batch, r"Deadlock found", 5, insert_first_row)
        thread.shutdown()
        other.rollback()
    is_written_then(server, sink, batch, 1)
    assert numbers(server) == [1, 3, 4]


@pytest.mark.parametrize("look", [1, 3, 5])
def test_a_server_that_is_killed_in_a_batch_gets_it_again(server: MariaDB, sink: SqlTable, look: int) -> None:
    batch = rows(1, 2, 3, 4, text=["a", None, "c", "d"])
    fails(sink, batch, r"Lost connection|gone away", look, server.kill)
    with pytest.raises(SinkAwayError, match="Can't connect"):
        sink.write(Cursor(), batch, 1, {}, Event())
    server.start()
    is_written_then(server, sink, batch, 1)
    assert numbers(server) == [1, 3, 4]


def test_a_session_that_the_server_ends_between_batches_is_replaced(server: MariaDB, sink: SqlTable) -> None:
    assert sink.write(session := Cursor(), rows(1), 1, {}, Event()) == Written(1)
    server.query("kill user sluice")
    more = rows(2, text=["b"])
    more.origins[0] = "0:1"
    assert sink.write(session, more, 2, {}, Event()) == Written(1)
    assert numbers(server) == [1, 2]


def test_the_server_ends_the_transaction_of_a_frozen_writer(server: MariaDB, sink: SqlTable) -> None:
    batch = rows(1, 2, 3, 4, text=["a", None, "c", "d"])
    server.query("set global wait_timeout = 3")

    def succeed() -> None:
        """Write as the next driver does, while this one is frozen with a row that it inserted."""
        with pytest.raises(SinkAwayError, match="Lock wait timeout exceeded"):
            sink.write(Cursor(), batch, 1, {}, Event())
        sessions = "select count(*) from information_schema.innodb_trx"
        until("the frozen transaction has ended", lambda: server.query(sessions) == [(0,)])
        is_written_then(server, sink, batch, 1)

    try:
        fails(sink, batch, r"inactivity|Lost connection|gone away", 5, succeed)
    finally:
        server.query("set global wait_timeout = default")
    assert numbers(server) == [1, 3, 4]
