"""The parts of a sink, on real Kafka and PostgreSQL: quarantine, ledger, archive, connections and
tables.
"""

import base64
import gzip
import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.api import declarations
from sluice.api.sink import Absorbed, Rows, Unfit
from sluice.audit import fold
from sluice.commands import tables
from sluice.kafka.reader import Streams
from sluice.postgres import LOCK_SECONDS, connect
from sluice.sinks import archive as archives
from sluice.sinks.archive import Archive
from sluice.sinks.batches import Batch, LedgerMovedError
from sluice.sinks.ledger import Ledger
from sluice.sinks.quarantine import Quarantine, QuarantineError
from sluice.sinks.table import JsonFiles, Latest, Once, ParquetFiles, Table, Totals
from sluice_ops.site.files import atomic_file
from sluice_ops.site.site_file import S3Config
from tests.lab import Lab

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


@pytest.fixture(scope="module")
def narrow(lab: Lab) -> str:
    """Return a stream whose quarantine has one partition and accepts only small records."""
    topic = NewTopic(
        "narrow.quarantine", num_partitions=1, replication_factor=-1, config={"max.message.bytes": "2000"}
    )
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for created in admin.create_topics([topic]).values():
        created.result()
    return "narrow"


def bad(stream: str, value: bytes, partition: int = 0) -> list[dict[str, Any]]:
    lineage = {"origin": "0:1", "path": "0", "from": f"{stream}/{partition}:1", "t0": "1", "key": None}
    return [
        {"reason": "bad", "lineage": {**lineage, "stream": stream, "partition": partition, "value": value}}
    ]


def test_a_bad_record_that_kafka_refuses_does_not_count_as_quarantined(lab: Lab, narrow: str) -> None:
    quarantine = Quarantine(lab.endpoints.kafka, "mine", 1)
    with pytest.raises(
        QuarantineError, match=r"did not accept 1 bad records: .*too large.*; their batch is not written"
    ):
        quarantine.put(bad(narrow, b"x" * 10_000))
    quarantine.put(bad(narrow, b"x"))


def test_a_bad_record_of_an_added_partition_is_quarantined(lab: Lab, narrow: str) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        before = streams.bounds([f"{narrow}.quarantine"]).ends
        Quarantine(lab.endpoints.kafka, "mine", 1).put(bad(narrow, b"x", partition=7))
        assert streams.bounds([f"{narrow}.quarantine"]).ends == {
            place: end + 1 for place, end in before.items()
        }


def test_a_missing_quarantine_is_reported(lab: Lab) -> None:
    with pytest.raises(
        QuarantineError,
        match=r'stream "nowhere.quarantine" is not in Kafka .* run `sluice publish`',
    ):
        Quarantine(lab.endpoints.kafka, "mine", 1).put(bad("nowhere", b"x"))


def test_both_ends_of_a_connection_notice_the_loss_of_the_other(lab: Lab) -> None:
    with closing(connect(lab.endpoints.postgres)) as connection:
        settings = {
            name: connection.execute(f"SHOW {name}".encode()).fetchone()
            for name in ("tcp_keepalives_idle", "lock_timeout")
        }
        assert settings == {"tcp_keepalives_idle": ("10",), "lock_timeout": (f"{LOCK_SECONDS}s",)}
        assert connection.info.get_parameters()["keepalives_idle"] == "10"


@pytest.fixture
def table(lab: Lab, request: pytest.FixtureRequest) -> Once:
    created_table = Once(
        f"once_{request.node.name[5:25]}", {"n": "bigint", "note": "text"}, archive=request.node.name
    )
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in created_table.statements():
            connection.execute(statement)
    return created_table


def rows(first: int, last: int) -> Rows:
    names = [f"0:{number}" for number in range(first, last)]
    return Rows({"n": list(range(first, last)), "note": [None] * len(names)}, names, ["0"] * len(names))


def batch(first: int, last: int) -> Batch:
    return Batch({"in/0": first}, {"in/0": last})


def test_bad_records_are_quarantined_once_though_the_batch_is_refused(lab: Lab, table: Once) -> None:
    quarantined_by: list[str] = []
    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        ledger.write(
            batch(0, 3),
            rows(0, 2),
            epoch=1,
            quarantined=1,
            put_quarantined=lambda: quarantined_by.append("once"),
        )
        with pytest.raises(LedgerMovedError):
            ledger.write(
                batch(1, 4),
                rows(1, 3),
                epoch=1,
                quarantined=1,
                put_quarantined=lambda: quarantined_by.append("moved"),
            )
        with pytest.raises(psycopg.DataError):
            ledger.write(
                batch(3, 4),
                replace(rows(3, 4), columns={"n": [3], "note": ["\0"]}),
                epoch=1,
                put_quarantined=lambda: quarantined_by.append("refused"),
            )
    assert quarantined_by == ["once"]


def test_nothing_is_written_if_bad_records_cannot_be_quarantined(lab: Lab, table: Once) -> None:
    def refuse() -> None:
        raise QuarantineError

    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        with pytest.raises(QuarantineError):
            ledger.write(batch(0, 3), rows(0, 2), epoch=1, quarantined=1, put_quarantined=refuse)
        assert ledger.last() is None
    assert lab.query(f"select count(*) from {table.name}") == [(0,)]  # noqa: S608


def test_null_adds_nothing(lab: Lab) -> None:
    sums = Totals("sums_of_null", {"who": "text", "n": "bigint"}, key=("who",))
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in sums.statements():
            connection.execute(statement)
    with closing(Ledger(lab.endpoints.postgres, "sums_of_null", 1, sums)) as ledger:
        ledger.write(
            batch(0, 3),
            Rows({"who": ["a", "a", "b"], "n": [1, None, None]}, ["0:0", "0:1", "0:2"], ["0"] * 3),
            epoch=1,
        )
    assert lab.query("select who, n from sums_of_null order by who") == [("a", 1), ("b", 0)]


def create_table(lab: Lab, table: Table) -> Table:
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in table.statements():
            connection.execute(statement)
    return table


def test_a_value_too_long_for_its_column_is_refused_not_cut(lab: Lab) -> None:
    kinds = {
        "a": "varchar(3)",
        "b": "char(3)",
        "c": "CHARACTER VARYING (3)",
        "d": "character",
        "e": "bit(3)",
        "f": "numeric(4, 1)",
    }
    table = create_table(lab, Once("short", kinds))
    fits = {"a": "abc", "b": "ab", "c": "abc", "d": "a", "e": "101", "f": 1.26}
    invalid_rows = [
        fits | {name: value}
        for name, value in {"a": "abcd", "b": "abcd", "c": "abcd", "d": "ab", "e": "1011", "f": 99999}.items()
    ]
    input_rows = [fits, *invalid_rows, fits]
    names = [f"0:{number}" for number in range(len(input_rows))]
    rows = Rows({name: [row[name] for row in input_rows] for name in kinds}, names, ["0"] * len(names))
    with closing(Ledger(lab.endpoints.postgres, "short", 1, table)) as ledger:
        refused = ledger.refused(rows)
        assert sorted(refused) == [1, 2, 3, 4, 5, 6]
        assert refused[1] == "value too long for type character varying(3)"
        assert refused[6] == "numeric field overflow"
        ledger.write(batch(0, 2), rows.only([0, 7]), epoch=1)
    stored_rows = lab.query("select a, b, c, d, e::text, f::text from short")
    assert stored_rows == [("abc", "ab ", "abc", "a", "101", "1.3")] * 2, "PostgreSQL rounds a number"


def test_keys_that_are_equal_in_postgresql_are_one_row(lab: Lab) -> None:
    """A `char(n)` ignores spaces at its end."""
    values = {"who": ["a", "a ", "b"], "n": [1, 2, 4]}
    sums = create_table(lab, Totals("sums_of_short", {"who": "char(3)", "n": "bigint"}, key=("who",)))
    with closing(Ledger(lab.endpoints.postgres, sums.name, 1, sums)) as ledger:
        assert (
            ledger.write(batch(0, 3), Rows(values, ["0:0", "0:1", "0:2"], ["0"] * 3), epoch=1).rows_out == 3
        )
    assert lab.query("select who, n from sums_of_short order by who") == [("a  ", 3), ("b  ", 4)]


def test_refused_rows_of_a_state_are_kept_and_all_others_written(lab: Lab) -> None:
    kinds = {"who": "text", "n": "smallint", "doc": "jsonb", "at": "timestamptz"}
    table = create_table(lab, Latest("kept", kinds, key=("who",)))
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("alter table kept add constraint short check (length(doc::text) < 6)")
    long, moment = (
        "".join(chr(33 + number * number % 90) + chr(0x4E00 + number * 37 % 20000) for number in range(3000)),
        datetime(2026, 3, 1, tzinfo=UTC),
    )
    bad = [
        (None, 1, "{}", moment),
        ("a\0b", 1, "{}", moment),
        (long, 1, "{}", moment),
        ("b", 40000, "{}", moment),
        ("c", 1, "[40000]", moment),
        ("d", 1, "{so", moment),
        ("e", 1, "{}", Unfit("+10000-01-01 does not fit its column")),
    ]
    good = [(f"user-{number}", number, "{}", moment) for number in range(20)]

    def write(*rows: tuple[Any, ...]) -> tuple[int, int, int, int]:
        begin = ledger.number + 1
        state_rows = Rows(dict(zip(kinds, zip(*rows, strict=True), strict=True)), [], [])
        counts = ledger.write(batch(begin, begin + 1), state_rows, epoch=1, absorbed=Absorbed(1))
        return counts.rows_in, counts.rows_out, counts.written, counts.refused

    with closing(Ledger(lab.endpoints.postgres, "kept", 1, table)) as ledger:
        assert write(("b", 7, "{}", moment)) == (1, 1, 1, 0)
        assert write(*good[:10], *bad, *good[10:]) == (1, 1, 20, 7)
        assert write(*bad) == (1, 1, 0, 7)
    assert lab.query("select count(*), sum(n) filter (where who = 'b') from kept") == [(21, 7)], (
        "user b keeps the older row"
    )
    reasons = dict(
        lab.query("select coalesce(record ->> 'who', 'none'), reason from kept_refused where batch = 2")
    )
    begins = {
        "none": 'null value in column "who"',
        "ab": "PostgreSQL text fields cannot contain NUL",
        long: "index row ",
        "b": "smallint out of range",
        "c": 'new row for relation "kept" violates check constraint "short"',
        "d": "invalid input syntax for type json",
        "e": "+10000-01-01 does not fit its column",
    }
    assert {who: reason[: len(begins[who])] for who, reason in reasons.items()} == begins


def test_keys_of_a_state_that_are_equal_in_postgresql_are_one_row(lab: Lab) -> None:
    table = create_table(lab, Latest("kept_short", {"who": "char(3)", "n": "bigint"}, key=("who",)))
    with closing(Ledger(lab.endpoints.postgres, "kept_short", 1, table)) as ledger:
        counts = ledger.write(
            batch(0, 1), Rows({"who": ["a", "a "], "n": [1, 2]}, [], []), epoch=1, absorbed=Absorbed(1)
        )
    assert (counts.written, counts.refused) == (1, 0)
    assert lab.query("select who, n from kept_short") == [("a  ", 2)]


def test_marks_of_reprocessed_records_are_queried_and_not_kept(lab: Lab) -> None:
    sums = Totals("sums_again", {"who": "text", "n": "bigint"}, key=("who",))
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in sums.statements():
            connection.execute(statement)

    def reprocessed_rows(*numbers: int) -> Rows:
        origins = [f"0:{number}" for number in numbers]
        return Rows(
            {"who": ["a"] * len(numbers), "n": [1] * len(numbers)},
            origins,
            [f"0/again:{origin}/1" for origin in origins],
        )

    with closing(Ledger(lab.endpoints.postgres, "sums_again", 1, sums)) as ledger:
        assert ledger.write(batch(0, 3), reprocessed_rows(5, 3, 4), epoch=1).rows_out == 3
        assert ledger.write(batch(3, 6), reprocessed_rows(3, 4, 6), epoch=1).replays == 2
        assert (
            ledger.write(batch(6, 7), Rows({"who": ["a"], "n": [1]}, ["0:9"], ["0/1"]), epoch=1).rows_out == 1
        )
        assert ledger.marks == 1
    assert lab.query("select n from sums_again") == [(5,)]
    assert lab.query("select count(*) from marks where tier = 'sums_again'") == [(5,)]


def archived(home: Path, table: Once) -> list[int]:
    files = (home / "archive" / str(table.archive)).glob("hour=*/*.parquet")
    return sorted(number for file in files for number in pq.read_table(file).column("n").to_pylist())


def test_a_late_archive_deletes_no_row(
    lab: Lab, table: Once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old archive has read its rows when its connection breaks.

    The new one archives more, and then the old one's file is written.
    """
    interrupted = threading.Event()

    def archive() -> Archive:
        return Archive(lab.endpoints.postgres, tmp_path, table.name, table, S3Config())

    with (
        closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger,
        closing(archive()) as old,
        closing(archive()) as new,
    ):
        ledger.write(batch(0, 3), rows(0, 3), epoch=1)

        def late(path: Path) -> AbstractContextManager[Path]:
            if not interrupted.is_set():
                interrupted.set()
                assert old._connection is not None
                old._connection.close()
                ledger.write(batch(3, 5), rows(3, 5), epoch=1)
                new.write()
                new.write()
            return atomic_file(path)

        monkeypatch.setattr(archives, "atomic_file", late)
        old.write()
        assert archived(tmp_path, table) == [0, 1, 2, 3, 4]
        assert old.write() == 0


def test_a_backlog_is_archived_in_parts(
    lab: Lab, table: Once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_ROWS", 2)
    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        for first in range(0, 8, 2):
            ledger.write(batch(first, first + 2), rows(first, first + 2), epoch=1)
    with closing(Archive(lab.endpoints.postgres, tmp_path, table.name, table, S3Config())) as archive:
        assert [archive.write() for _ in range(3)] == [2, 2, 2]
        assert archive.due(), "the driver can continue at once with the next part"
        assert [archive.write() for _ in range(2)] == [2, 0]
        assert not archive.due()
    assert archived(tmp_path, table) == list(range(8))


def test_every_file_of_the_archive_has_the_same_types(lab: Lab, table: Once, tmp_path: Path) -> None:
    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        ledger.write(batch(0, 2), rows(0, 2), epoch=1)
    with closing(Archive(lab.endpoints.postgres, tmp_path, table.name, table, S3Config())) as archive:
        archive.write()
    (file,) = (tmp_path / "archive").rglob("*.parquet")
    assert pq.read_schema(file).field("note").type == pa.string(), (
        "a column has its type also if all values are null"
    )


def test_the_archive_accepts_all_values_that_a_table_accepts(lab: Lab, tmp_path: Path) -> None:
    table = Once(
        "varied",
        {"what": "jsonb", "price": "numeric(40, 6)", "key": "uuid", "raw": "bytea"},
        archive="varied",
    )
    whats, prices = (
        ['{"a": 1}', '{"a": "one"}', '[1, "two"]', "3.5", None],
        ["1.500000", "1000000000000000000.000001", None, "0", "0"],
    )
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in table.statements():
            connection.execute(statement)
    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        values = {
            "what": whats,
            "price": prices,
            "key": [str(UUID(int=n)) for n in range(5)],
            "raw": [b"a", b"\x00", None, b"", b"c"],
        }
        ledger.write(batch(0, 5), Rows(values, [f"0:{number}" for number in range(5)], ["0"] * 5), epoch=1)
    with closing(Archive(lab.endpoints.postgres, tmp_path, table.name, table, S3Config())) as archive:
        assert archive.write() == 5
    (file,) = (tmp_path / "archive").rglob("*.parquet")
    archived_columns = pq.read_table(file).sort_by("origin").to_pydict()
    assert archived_columns["what"] == whats
    assert archived_columns["price"] == [*prices[:3], "0.000000", "0.000000"]
    assert archived_columns["key"][1] == "00000000-0000-0000-0000-000000000001"
    assert archived_columns["raw"] == [b"a", b"\x00", None, b"", b"c"]
    assert archived_columns["batch"] == [0] * 5


@pytest.mark.parametrize("kind", ["date", "timestamp(3)", "timestamptz"])
def test_times_that_no_file_could_hold_are_refused(lab: Lab, tmp_path: Path, kind: str) -> None:
    name = f"timed_{kind.partition('(')[0]}"
    table = ParquetFiles(name, {"at": kind}, folder=name)
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in table.statements():
            connection.execute(statement)
    good = ["0001-01-01", "9999-12-31", None]
    times = [*good, "infinity", "-infinity", "10000-01-01", "0044-03-15 BC"]
    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        origins = [f"0:{number}" for number in range(len(times))]
        refused = ledger.refused(Rows({"at": times}, origins, ["0"] * len(times)))
        assert [*refused] == [3, 4, 5, 6]
        assert all("is before the year 1 or after 9999" in reason for reason in refused.values())
        ledger.write(batch(0, 3), Rows({"at": good}, origins[:3], ["0"] * 3), epoch=1)
    with closing(Archive(lab.endpoints.postgres, tmp_path, table.name, table, S3Config())) as archive:
        assert archive.write() == 3
    (file,) = (tmp_path / "archive").rglob("*.parquet")
    assert [at and (at.year, at.month, at.day) for at in pq.read_table(file)["at"].to_pylist()] == [
        (1, 1, 1),
        (9999, 12, 31),
        None,
    ]


def test_lines_of_json_hold_each_value_as_json(lab: Lab, tmp_path: Path) -> None:
    columns = {"line": "jsonb", "said": "json", "price": "numeric", "raw": "bytea", "at": "timestamptz"}
    table = JsonFiles("varied_lines", {**columns, "text": "text"}, folder="varied-lines")
    values = {
        "line": ['{"a": [1, null]}', None],
        "said": ['{"b":\r\n 1}', "2"],
        "price": ["1000000000000000000.000001", "NaN"],
        "raw": [bytes(range(256)), b""],
        "at": ["2026-11-29 13:00:00.5+02", None],
        "text": ['a "line"\nand\u2028another\\', "ü€𝄞"],
    }
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in table.statements():
            connection.execute(statement)
    with closing(Ledger(lab.endpoints.postgres, table.name, 1, table)) as ledger:
        ledger.write(batch(0, 2), Rows(values, ["0:0", "0:1"], ["0"] * 2), epoch=1)
    with closing(Archive(lab.endpoints.postgres, tmp_path, table.name, table, S3Config())) as archive:
        assert archive.write() == 2
    (file,) = (tmp_path / "archive" / "varied-lines").glob("hour=*/from-000000000000.jsonl.gz")
    first, second = map(json.loads, gzip.decompress(file.read_bytes()).decode().rstrip("\n").split("\n"))
    assert [*first] == [*table.columns, "written_at", "origin", "batch"]
    assert (first["line"], first["said"], second["said"]) == ({"a": [1, None]}, {"b": 1}, 2)
    assert (first["price"], second["price"]) == (1000000000000000000.000001, "NaN")
    assert [base64.b64decode(line["raw"]) for line in (first, second)] == values["raw"]
    assert (first["at"], second["at"]) == ("2026-11-29T11:00:00.5+00:00", None)
    assert [line["text"] for line in (first, second)] == values["text"]
    assert [(line["origin"], line["batch"]) for line in (first, second)] == [("0:0", 0), ("0:1", 0)]


def within(seconds: float, call: Callable[[], object]) -> None:
    started = time.monotonic()
    call()
    assert time.monotonic() - started < seconds


def test_publishing_does_not_wait_for_sessions_that_use_a_correct_table(lab: Lab) -> None:
    pipeline = declarations.load("hits")
    with psycopg.connect(lab.endpoints.postgres) as user:
        user.execute(
            "LOCK delivered, campaign_counts, ledger, marks, tier_epochs, audit IN ROW EXCLUSIVE MODE"
        )  # as a writer does
        within(5, lambda: tables.create(lab.endpoints.postgres, pipeline))


def test_publishing_blocks_other_sessions_only_shortly(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LOCK_SECONDS", 1)
    sinks = declarations.load("hits").tier("outbound")
    more = replace(sinks, sink=Once("delivered", {"id": "text", "new": "text"}))
    with psycopg.connect(lab.endpoints.postgres) as reader:
        reader.execute("SELECT FROM delivered LIMIT 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            tables.create(
                lab.endpoints.postgres,
                declarations.Pipeline((replace(more, inputs=(declarations.Stream("raw"),)),)),
            )


SUMS = (
    "select sum(rows_in), sum(rows_out), sum(filtered), sum(replays), sum(written), max(batch), max(at), "
    "sum((others->>'told')::int), sum((others->>'kept')::int) "
    "from ledger where tier = 'old'"
)
CHAIN = """
    select count(*) from (
        select (begins ->> 'in/0')::bigint as begin,
            lag((ends ->> 'in/0')::bigint) over (order by batch) as before
        from ledger where tier = 'old' and replay is null
    ) as batches where begin <> before
"""


def test_a_day_of_the_ledger_becomes_one_row_with_the_same_sums(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "NEWEST", 100)
    with closing(connect(lab.endpoints.postgres)) as connection:
        connection.execute(
            "insert into ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, "
            "quarantined, replays, at, written, others) "
            "select 'old', 1 + n / 400, n, jsonb_build_object('in/0', n "
            "* 10), jsonb_build_object('in/0', n * 10 + 10), 10, 7, 2, 0, 1, now() - interval '45 days' + "
            "n * interval '1 hour', 7, case when n > 99 then jsonb_build_object('told', 6, 'kept', n) end "
            "from generate_series(0, 1079) as n"
        )
        connection.execute("update ledger set replay = 1, begins = ends where tier = 'old' and batch = 30")
        connection.execute(
            "update ledger set begins = jsonb_build_object('in/0', 300) where tier = 'old' and batch = 31"
        )
        sums = connection.execute(SUMS).fetchone()
        assert connection.execute(CHAIN).fetchone() == (0,)
        assert fold.fold(connection, "old") == 0, "the ledger is not audited yet"
        connection.execute("insert into audit_read (tier, source, position) values ('old', 'ledger', 1079)")

        folded = []
        while count := fold.fold(connection, "old"):
            folded.append(count)
        assert connection.execute(SUMS).fetchone() == sums
        assert connection.execute(CHAIN).fetchone() == (0,)
        assert 14 <= len(folded) <= 16
        row_counts = (
            "select count(*), count(*) filter (where replay is not null) from ledger where tier = 'old'"
        )
        assert connection.execute(row_counts).fetchone() == (1080 - sum(folded), 1)
        connection.execute("update audit_read set position = 0 where tier = 'old'")
        assert fold.fold(connection, "old") == 0
