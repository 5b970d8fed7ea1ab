"""The sink `SqlTable` on SQLite: each record once, whoever dies between the two commits."""

import sqlite3
from contextlib import closing
from threading import Event

import pytest
from sqlalchemy.exc import OperationalError

from sluice.api.declarations import DeclarationError
from sluice.api.sink import Rows, SinkAwayError, Unfit, Written
from sluice.sinks import outside as outside_sink
from sluice.sinks.sql_table import SqlTable, refuses_rows

COLUMNS = {"n": "bigint", "text": "text"}
NOT_NULL = "NOT NULL constraint failed: orders.text"


class Cursor:
    """A cursor of PostgreSQL, of one session."""

    class Session:
        pass

    def __init__(self):
        self.connection, self.kept = self.Session(), []

    def executemany(self, _statement, rows):
        self.kept += rows


class Look(Event):
    """The event `halt`: at the look with this number something happens, or it is set."""

    def __init__(self, number, happens=None):
        super().__init__()
        self.number, self.happens = number, happens or self.set

    def is_set(self):
        self.number -= 1
        if self.number == 0:
            self.happens()
        return super().is_set()


class DiedError(BaseException):
    """The writer dies here."""


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setattr(outside_sink, "identity", lambda _cursor: "platform")


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table orders (n integer primary key, text varchar(9) not null)")
    return path


@pytest.fixture
def sink(outside):
    return SqlTable("told", COLUMNS, url=f"sqlite:///{outside}", table="orders")


def rows(*numbers, texts=None, path="0"):
    columns = {"n": list(numbers), "text": texts or [f"text {number}" for number in numbers]}
    return Rows(columns, [f"0:{number}" for number in numbers], [path] * len(numbers))


def stored(outside, query="select n from orders order by n"):
    with closing(sqlite3.connect(outside)) as database:
        return [value for (value,) in database.execute(query)]


def test_a_batch_that_comes_again_is_known_to_the_database(sink, outside):
    assert sink.write(Cursor(), rows(1, 2), 1, {}, Event()) == Written(2)
    again = sink.write(Cursor(), rows(1, 2, 3), 1, {}, Event())
    assert again == Written(3), "the ledger has not counted the first try"
    assert stored(outside) == [1, 2, 3]


def test_rows_that_earlier_batches_have_are_left_out(sink, outside):
    marks = {}
    sink.write(Cursor(), rows(1, 2), 1, marks, Event())
    assert sink.write(Cursor(), rows(2, 3), 2, marks, Event()) == Written(1)
    assert stored(outside) == [1, 2, 3]


def test_a_tier_and_a_replay_write_in_turn_with_one_mark_for_each_path(sink, outside):
    tier, replay = Cursor(), Cursor()
    for number in (1, 2, 3):
        assert sink.write(tier, rows(number), number, {}, Event()) == Written(1)
        again = rows(number + 10, path=f"0/again:0:{number + 10}")
        assert sink.write(replay, again, number, {}, Event()) == Written(1)
    assert stored(outside) == [1, 2, 3, 11, 12, 13]
    assert sorted(stored(outside, "select position from sluice_marks")) == ["[11]", "[12]", "[13]", "[3]"]


@pytest.mark.parametrize("key", ["primary key", ""])
def test_a_writer_that_froze_and_was_replaced_commits_nothing(sink, outside, key):
    with closing(sqlite3.connect(outside)) as database:
        database.executescript(f"drop table orders; create table orders (n integer {key}, text text)")
    sink.write(frozen := Cursor(), rows(1), 1, {}, Event())
    successor = Look(1, lambda: sink.write(Cursor(), rows(2), 2, {}, Event()))
    assert sink.write(frozen, rows(2, 3), 2, {}, successor) == Written(2), "the second try sends what lacks"
    assert stored(outside) == [1, 2, 3]
    assert stored(outside, "select * from sluice_refused") == []


def test_of_a_writer_that_dies_while_it_tries_halves_nothing_stays(sink, outside):
    def die():
        raise DiedError

    batch = rows(1, 2, 3, 4, texts=["a", "b", "c", None])
    with pytest.raises(DiedError):
        sink.write(Cursor(), batch, 1, {}, Look(3, die))
    assert stored(outside) == []
    assert sink.write(Cursor(), batch, 1, {}, Event()) == Written(3, refused=1)


def test_refused_rows_keep_the_databases_reason_also_after_a_retry(sink, outside):
    numbers, texts = (1, 2, 3, 4, 2**64), ["a", None, "c", Unfit("no UTF-8"), "e"]
    reasons = [NOT_NULL, "no UTF-8", "Python int too large to convert to SQLite INTEGER"]
    for read in (3, 4, 5):  # PostgreSQL has rolled back each time
        batch = rows(*numbers[:read], texts=texts[:read])
        refused = [row for row in (1, 3, 4) if row < read]
        written = sink.write(cursor := Cursor(), batch, 1, {}, Event())
        assert written == Written(2, refused=len(refused))
        kept = {origin: reason for origin, _record, reason, _batch in cursor.kept}
        assert kept == {batch.origins[row]: reason for row, reason in zip(refused, reasons, strict=False)}
    assert stored(outside) == [1, 3]


def test_of_two_rows_with_one_key_the_later_one_is_refused(sink, outside):
    batch = rows(1, 2, 1)
    batch.origins[2] = "0:9"
    assert sink.write(cursor := Cursor(), batch, 1, {}, Event()) == Written(2, refused=1)
    assert stored(outside) == [1, 2]
    assert [origin for origin, *_ in cursor.kept] == ["0:9"]


def test_a_refused_row_that_is_replayed_may_be_refused_or_accepted(sink, outside):
    refused = rows(1, 2, texts=[None, None])
    assert sink.write(Cursor(), refused, 1, {}, Event()) == Written(0, refused=2)
    replayed = rows(1, texts=[None], path="0/again:0:1")
    assert sink.write(Cursor(), replayed, 2, {}, Event()) == Written(0, refused=1)
    mended = rows(2, path="0/again:0:2")
    for _ in range(2):
        assert sink.write(Cursor(), mended, 3, {}, Event()) == Written(1)
    assert stored(outside) == [2]


def test_a_table_that_is_not_there_makes_the_tier_wait_with_the_reason(outside):
    sink = SqlTable("told", COLUMNS, url=f"sqlite:///{outside}", table="lost")
    with pytest.raises(
        SinkAwayError, match=r"no rows of sink \"told\": no such table: lost; the batch is tr"
    ):
        sink.write(Cursor(), rows(1), 1, {}, Event())


@pytest.mark.parametrize("look", [1, 2])
def test_nothing_is_sent_while_the_tier_must_hold(sink, outside, look):
    with pytest.raises(SinkAwayError, match="must hold"):
        sink.write(Cursor(), rows(1, 2, texts=["a", None]), 1, {}, Look(look))
    assert stored(outside) == []


def test_the_password_comes_from_a_file(tmp_path):
    (tmp_path / "password").write_text("a b/c\n")
    sink = SqlTable("told", COLUMNS, url="mysql+mysqldb://shop@db/shop", password_file=f"{tmp_path}/password")
    with pytest.raises(SinkAwayError, match="No module named 'MySQLdb'"):
        sink.write(Cursor(), rows(1), 1, {}, Event())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql+pymysql://shop:hush@db/shop", "put the password into a file"),
        ("postgresql+psycopg://shop@db/shop?password=hush", "put the password into a file"),
        ("mssql+pyodbc:///?odbc_connect=UID%3Dshop%3BPWD%3Dhush", "put the password into a file"),
        ("shop:hush@db/shop", "is no address of SQLAlchemy; an example: mysql"),
        ("mysql://shop:hush", "is no address of SQLAlchemy; an example: mysql"),
    ],
)
def test_an_unusable_address_is_refused_at_the_declaration_and_not_shown(url, says):
    with pytest.raises(DeclarationError, match=says) as refused:
        SqlTable("told", COLUMNS, url=url)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("state", "refuses"),
    [("23000", True), ("22007", True), ("40001", False), ("42S02", False), ("HY000", False), (None, False)],
)
def test_the_state_of_an_operational_error_tells_if_it_is_about_a_row(state, refuses):
    class DriverError(Exception):
        sqlstate = state

    assert refuses_rows(OperationalError("insert", {}, DriverError())) is refuses
