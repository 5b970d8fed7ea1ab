"""Every shipped sink conforms, and the check finds sinks that break a rule."""

import gzip
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import Any, ClassVar
from urllib.parse import unquote

import deltalake
import psycopg
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import TableNotFoundError
from moto.server import ThreadedMotoServer
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, Written
from sluice.s3 import client as s3_client
from sluice.sink_testing import NonconformingSinkError, SinkCase, check_sink
from sluice.sinks.http import Post
from sluice.sinks.several import Sinks
from sluice.sinks.sql_table import SqlTable
from sluice.sinks.table import DeltaTable, JsonFiles, Latest, Once, ParquetFiles, Totals
from sluice_ops.site.site_file import S3Config
from tests.database import database
from tests.http_service import Quiet, serving
from tests.lab import free_ports
from tests.mariadb import mariadb

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(tmp_path_factory.mktemp("conformance")) as address:
        yield address


def read(postgres: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgres) as connection:
        return connection.execute(query.encode()).fetchall()


def numbered(number: int) -> dict[str, Any]:
    return {"n": number}


def counted(number: int) -> dict[str, Any]:
    return {"who": f"user-{number % 4}", "hits": number}


def once(sink: Once, postgres: str) -> SinkCase:
    return SinkCase(
        sink,
        numbered,
        lambda count: list(range(count)),
        lambda: [n for (n,) in read(postgres, f"select n from {sink.name} order by n")],  # noqa: S608
    )


def totals(sink: Totals, postgres: str) -> SinkCase:
    def sums(count: int) -> dict[str, int]:
        return {f"user-{who}": sum(range(who, count, 4)) for who in range(min(4, count))}

    query = f"select who, hits from {sink.name}"  # noqa: S608
    return SinkCase(sink, counted, sums, lambda: dict(read(postgres, query)))


class Service(ThreadingHTTPServer):
    """Takes each key once, if it honours keys."""

    daemon_threads = True

    def __init__(self, *, honours_keys: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken: list[tuple[str, int]] = []
        self.lock = threading.Lock()
        self.honours_keys = honours_keys

    def take(self, key: str, number: int) -> None:
        with self.lock:
            if not self.honours_keys or key not in dict(self.taken):
                self.taken.append((key, number))


class Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.take(self.headers["Idempotency-Key"], body["n"])
        with suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()


@contextmanager
def calls(name: str, *, honours_keys: bool) -> Iterator[SinkCase]:
    with serving(Service(honours_keys=honours_keys)) as server:
        yield SinkCase(
            Post(name, {"n": "bigint"}, f"http://127.0.0.1:{server.server_port}/"),
            numbered,
            lambda count: list(range(count)),
            lambda: sorted(number for _, number in server.taken),
        )


def test_a_table_with_each_record_once_conforms(postgres: str) -> None:
    check_sink(once(Once("delivered", {"n": "bigint"}), postgres), postgres)


def orders(url: str, held: Callable[[], list[int]], password_file: str | None = None) -> SinkCase:
    """Return the case of the table `orders` of another database."""
    name = f"told_{url.partition('+')[0].partition(':')[0]}"
    sink = SqlTable(name, {"n": "bigint"}, url=url, table="orders", password_file=password_file)
    return SinkCase(sink, numbered, lambda count: list(range(count)), held)


def test_a_table_of_another_database_conforms(postgres: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("create table orders (n integer primary key)")
        query = "select n from orders order by n"
        case = orders(f"sqlite:///{tmp_path}/shop.db", lambda: [n for (n,) in shop.execute(query)])
        check_sink(case, postgres)


@pytest.fixture
def shop(postgres: str, tmp_path: Path) -> SinkCase:
    """Return the case of a table of another PostgreSQL, with a user that may only insert."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("create role shop login password 'a b/c@d'")
        connection.execute("create database shop")
    (tmp_path / "password").write_text("a b/c@d\n")
    address, server = make_conninfo(postgres, dbname="shop"), conninfo_to_dict(postgres)
    with psycopg.connect(address) as connection:
        connection.execute("grant create on schema public to shop")
        connection.execute(
            "create table orders (id bigint generated always as identity primary key,"
            " n integer not null unique)"
        )
        connection.execute("grant insert on orders to shop")
    return orders(
        f"postgresql+psycopg://shop@{server['host']}:{server['port']}/shop",
        lambda: [n for (n,) in read(address, "select n from orders order by n")],
        f"{tmp_path}/password",
    )


def test_a_table_of_another_postgresql_conforms(postgres: str, shop: SinkCase) -> None:
    check_sink(shop, postgres)

    def write(*values: int | None) -> Written:
        rows = Rows({"n": values}, [f"1:{row}" for row in range(len(values))], ["1"] * len(values))
        with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
            return shop.sink.write(cursor, rows, 1, {}, Event())

    assert write(-1) == Written(1), "nothing is read of a single row, for which the user has no right"
    assert write(-1, None, -2, 2**40, -2, -3) == Written(3, refused=3)
    assert shop.held()[:3] == [-3, -2, -1]
    refusals = read(postgres, "select origin, reason from told_postgresql_refused order by origin")
    assert [origin for origin, _ in refusals] == ["1:1", "1:3", "1:4"]
    for (_, reason), part in zip(refusals, ("not-null", "out of range", "duplicate key"), strict=True):
        assert part in reason


def test_a_table_of_a_mariadb_conforms(postgres: str, tmp_path: Path) -> None:
    with mariadb(tmp_path) as server:
        server.make_table("orders", "n int not null unique")
        query = "select n from orders order by n"
        case = orders(server.url, lambda: [n for (n,) in server.query(query)], server.password_file)
        check_sink(case, postgres)


@cache
def numbers_in(file: Path, _version: int) -> list[int]:
    return [int(number) for number in pq.read_table(file)["n"].to_pylist()]


@cache
def numbers_in_s3(s3: Any, key: str, _version: str) -> list[int]:
    content = BytesIO(s3.get_object(Bucket="lake", Key=key)["Body"].read())
    return [int(number) for number in pq.read_table(content)["n"].to_pylist()]


def parquet(name: str, folder: str, home: Path) -> SinkCase:
    return SinkCase(
        ParquetFiles(name, {"n": "bigint"}, folder=folder),
        numbered,
        lambda count: list(range(count)),
        lambda: sorted(
            number
            for file in (home / "archive" / folder).glob("hour=*/*.parquet")
            for number in numbers_in(file, file.stat().st_mtime_ns)
        ),
        home=home,
    )


def test_parquet_files_conform_below_the_home(postgres: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive" / "clicks"
    case = parquet("clicks_files", "clicks", tmp_path)
    check_sink(case, postgres)
    assert read(postgres, "select count(*) from clicks_files") == [(0,)], "PostgreSQL keeps no rows"
    held = sorted(ds.dataset(folder, partitioning="hive").to_table()["n"].to_pylist())
    assert held == case.held()
    assert read(postgres, "select rows from archived where name = 'clicks_files'") == [(len(held),)]


@cache
def numbers_in_lines(file: Path, _version: int) -> list[int]:
    with gzip.open(file, "rt") as lines:
        return [int(json.loads(line)["n"]) for line in lines]


def test_files_of_json_lines_conform(postgres: str, tmp_path: Path) -> None:
    files = tmp_path / "archive" / "clicks"
    case = SinkCase(
        JsonFiles("clicks_lines", {"n": "bigint"}, folder="clicks"),
        numbered,
        lambda count: list(range(count)),
        lambda: sorted(
            number
            for file in files.glob("hour=*/*.jsonl.gz")
            for number in numbers_in_lines(file, file.stat().st_mtime_ns)
        ),
        home=tmp_path,
    )
    check_sink(case, postgres)
    assert read(postgres, "select count(*) from clicks_lines") == [(0,)], "PostgreSQL keeps no rows"
    held = case.held()
    assert read(postgres, "select rows from archived where name = 'clicks_lines'") == [(len(held),)]


@pytest.fixture(scope="module")
def lake() -> Iterator[str]:
    """Serve a bucket `lake`, and yield the address of the service."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as environment:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": address}
        for name, value in keys.items():
            environment.setenv(name, value)
        s3_client(S3Config(endpoint=address)).create_bucket(
            Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        yield address
    server.stop()


def test_parquet_files_conform_in_s3(postgres: str, lake: str) -> None:
    s3 = s3_client(S3Config(endpoint=lake))

    def held() -> list[int]:
        files = s3.list_objects_v2(Bucket="lake", Prefix="web/clicks/").get("Contents", ())
        assert all(file["Key"].startswith("web/clicks/hour=") for file in files)
        return sorted(n for file in files for n in numbers_in_s3(s3, file["Key"], file["ETag"]))

    case = SinkCase(
        ParquetFiles("clicks_in_s3", {"n": "bigint"}, folder="s3a://lake/web/clicks"),
        numbered,
        lambda count: list(range(count)),
        held,
    )
    check_sink(case, postgres)


def files_of(address: str, options: dict[str, str] | None = None) -> list[str]:
    """Return the addresses of the files that a Delta table has now."""
    try:
        return [unquote(file) for file in deltalake.DeltaTable(address, storage_options=options).file_uris()]
    except TableNotFoundError:
        return []


def test_a_delta_table_conforms_below_the_home(postgres: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive" / "clicks"
    case = SinkCase(
        DeltaTable("clicks_table", {"n": "bigint"}, folder="clicks"),
        numbered,
        lambda count: list(range(count)),
        lambda: sorted(n for file in files_of(str(folder)) for n in numbers_in(Path(file), 0)),
        home=tmp_path,
    )
    check_sink(case, postgres)
    assert read(postgres, "select count(*) from clicks_table") == [(0,)], "PostgreSQL keeps no rows"
    held = case.held()
    assert read(postgres, "select rows from archived where name = 'clicks_table'") == [(len(held),)]


@pytest.mark.timeout(600)  # each step commits, through a server in this process
def test_a_delta_table_conforms_in_s3(postgres: str, lake: str) -> None:
    options = {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": lake}
    s3 = s3_client(S3Config(endpoint=lake))

    def held() -> list[int]:
        files = files_of("s3://lake/web/clicks-table", options)
        return sorted(n for file in files for n in numbers_in_s3(s3, file.removeprefix("s3://lake/"), ""))

    case = SinkCase(
        DeltaTable("clicks_table_in_s3", {"n": "bigint"}, folder="s3a://lake/web/clicks-table"),
        numbered,
        lambda count: list(range(count)),
        held,
    )
    check_sink(case, postgres)


def test_several_sinks_conform_together(postgres: str, tmp_path: Path) -> None:
    own = once(Once("all_rows", {"n": "bigint"}), postgres)
    added = totals(Totals("all_clicks", {"who": "text", "hits": "bigint"}, key=("who",)), postgres)
    with (
        closing(sqlite3.connect(tmp_path / "shop.db")) as shop,
        calls("all_calls", honours_keys=True) as http,
    ):
        shop.execute("create table orders (n integer)")
        query = "select n from orders order by n"
        in_sqlite = orders(f"sqlite:///{tmp_path}/shop.db", lambda: [n for (n,) in shop.execute(query)])
        cases = (http, own, added, in_sqlite, parquet("all_files", "all", tmp_path))
        case = SinkCase(
            Sinks(*(case.sink for case in cases)),
            lambda number: numbered(number) | counted(number),
            lambda count: [case.expected(count) for case in cases],
            lambda: [case.held() for case in cases],
            home=tmp_path,
        )
        check_sink(case, postgres)


def test_a_table_that_adds_up_conforms(postgres: str) -> None:
    columns = {"who": "text", "hits": "bigint"}
    check_sink(totals(Totals("clicks", columns, key=("who",)), postgres), postgres)


def test_a_table_with_the_newest_rows_conforms(postgres: str) -> None:
    def row(number: int) -> dict[str, Any]:
        return {"who": f"user-{number}", "hits": number}

    sink = Latest("newest", {"who": "text", "hits": "bigint"}, key=("who",))
    case = SinkCase(
        sink,
        row,
        lambda count: {f"user-{number}": number for number in range(count)},
        lambda: dict(read(postgres, "select who, hits from newest")),
    )
    check_sink(case, postgres)


def test_a_service_that_honours_keys_conforms(postgres: str) -> None:
    with calls("crm", honours_keys=True) as case:
        check_sink(case, postgres)


def test_a_service_that_ignores_keys_is_found(postgres: str) -> None:
    with (
        calls("bell", honours_keys=False) as case,
        pytest.raises(NonconformingSinkError, match="died at step"),
    ):
        check_sink(case, postgres)


@dataclass(frozen=True)
class Appends(Once):
    """Writes a record again that comes again."""

    def statements(self) -> list[sql.Composed]:
        return [sql.SQL("CREATE TABLE IF NOT EXISTS {} (n bigint)").format(sql.Identifier(self.name))]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        del batch, marks, halt
        insert = sql.SQL("INSERT INTO {} VALUES (%s)").format(sql.Identifier(self.name))
        cursor.executemany(insert, [(number,) for number in rows.columns["n"]])
        return Written(len(rows))


@dataclass(frozen=True)
class Largest(Sink):
    """The example of docs/sinks.md: it counts records that come again as new, or corrects that."""

    transactional: ClassVar[bool] = True
    asks_marks: bool = False

    def statements(self) -> list[sql.Composed]:
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, cents bigint)")
        return [create.format(sql.Identifier(self.name))]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        del batch, halt
        new = rows.only(first_seen(marks, rows.paths, rows.origins)) if self.asks_marks else rows
        upsert = sql.SQL(
            "INSERT INTO {0} VALUES (%s, %s) ON CONFLICT (name)"
            " DO UPDATE SET cents = greatest({0}.cents, excluded.cents)"
        )
        statement = upsert.format(sql.Identifier(self.name))
        cursor.executemany(statement, list(zip(new.columns["name"], new.columns["cents"], strict=True)))
        return Written(len(new))


def largest(sink: Largest, postgres: str) -> SinkCase:
    query = f"select name, cents from {sink.name}"  # noqa: S608
    return SinkCase(
        sink,
        lambda number: {"name": f"user-{number}", "cents": number},
        lambda count: {f"user-{number}": number for number in range(count)},
        lambda: dict(read(postgres, query)),
    )


def test_a_sink_that_counts_replays_as_new_is_found(postgres: str) -> None:
    case = largest(Largest("first_try", {"name": "text", "cents": "bigint"}), postgres)
    with pytest.raises(NonconformingSinkError, match="the sink returned 6 of them as new"):
        check_sink(case, postgres)


def test_the_corrected_example_of_the_page_conforms(postgres: str) -> None:
    sink = Largest("largest", {"name": "text", "cents": "bigint"}, asks_marks=True)
    check_sink(largest(sink, postgres), postgres)


@dataclass(frozen=True)
class CommitsItself(Once):
    """Writes in a session of its own, which a dead or replaced writer cannot undo."""

    address: str = ""

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        del cursor
        with psycopg.connect(self.address) as connection, connection.cursor() as own:
            return super().write(own, rows, batch, marks, halt)


@dataclass(frozen=True)
class OtherTable(Once):
    """Names a table to which drivers get no rights."""

    @property
    def tables(self) -> list[str]:
        return [self.name, "elsewhere"]


def test_a_sink_that_writes_replays_is_found(postgres: str) -> None:
    case = once(Appends("appends", {"n": "bigint"}), postgres)
    with pytest.raises(NonconformingSinkError, match="records that came again changed something"):
        check_sink(case, postgres)


def test_a_sink_that_commits_by_itself_is_found(postgres: str) -> None:
    case = once(CommitsItself("commits", {"n": "bigint"}, address=postgres), postgres)
    with pytest.raises(NonconformingSinkError, match="its rows were not rolled back"):
        check_sink(case, postgres)


def test_a_sink_with_other_tables_is_found(postgres: str) -> None:
    case = once(OtherTable("others", {"n": "bigint"}), postgres)
    with pytest.raises(NonconformingSinkError, match="no rights to its tables elsewhere"):
        check_sink(case, postgres)
