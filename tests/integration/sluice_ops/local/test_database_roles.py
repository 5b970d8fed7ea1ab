"""PostgreSQL's roles on a real server.

An earlier database is handed over, and each role can do only its own work.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from hits import nightly_report
from sluice.api import declarations
from sluice.api.sink import Absorbed, Rows, Unfit
from sluice.audit import fold, retention
from sluice.audit.book import Book, Line, Missing, Page
from sluice.audit.trail_archive import _ADD
from sluice.commands import tables
from sluice.driver.process.progress_report import UPSERT
from sluice.replay import book as replays
from sluice.sinks.archive import Archive
from sluice.sinks.ledger import Batch, Counts, Ledger
from sluice.sinks.send_intents import Intent, Intents
from sluice.sinks.table import Latest, Once, Totals
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.services.postgres import superuser
from sluice_ops.model.access import Role
from sluice_ops.queries import figures, in_flight, trail_history
from sluice_ops.site import database_roles
from sluice_ops.site.endpoints import Endpoints
from sluice_ops.site.site_file import S3Config
from tests.lab import ROOT, free_base

pytestmark = pytest.mark.timeout(240)
PIPELINE = "hits"
NEWEST = Latest("newest", {"who": "text", "n": "bigint"}, key=("who",))


@dataclass
class Server:
    """PostgreSQL alone, with tables of Sluice and Airflow that belong to the superuser, as before
    there were roles.
    """

    where: Layout

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints.model_validate_json(self.where.endpoints.read_text())

    def run(self, *words: str) -> None:
        other_variables = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        base = str(self.where.ports.zookeeper - 1)
        subprocess.run(
            [sys.executable, "-m", "sluice_ops.local.parts", *words],
            env=other_variables | {"SLUICE_HOME": str(self.where.home), "SLUICE_PORT_BASE": base},
            cwd=ROOT,
            check=True,
            timeout=120,
        )

    def start(self) -> None:
        self.run("up", "--only", "postgres")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("roles") / "home"
    postgres = Server(Layout(home=home, ports=Ports.above(free_base()), site=ROOT / "site.yaml"))
    try:
        postgres.start()
        before = postgres.endpoints.postgres
        assert before.startswith("postgresql://sluice:"), "a PostgreSQL that is started alone has no roles"
        tables.create(before, declarations.load(PIPELINE))
        with psycopg.connect(before, autocommit=True) as link:
            for statement in NEWEST.statements():
                link.execute(statement)
            link.execute(
                "INSERT INTO ledger VALUES ('counts', 1, 0, '{}', '{}', 1, 1, 0, 0, 0, now() - interval "
                "'99 days')"
            )
        with psycopg.connect(superuser(postgres.where, "airflow"), autocommit=True) as link:
            link.execute("CREATE TYPE colour AS ENUM ('red')")
            link.execute(
                "CREATE TABLE dag (id serial PRIMARY KEY, colour colour); "
                "CREATE VIEW dags AS SELECT * FROM dag"
            )
        database_roles.make_passwords(postgres.where.postgres_users)
        postgres.start()  # as `make up` does with an earlier database
        tables.create(
            postgres.endpoints.postgres_as(Role.PUBLISHER), declarations.load(PIPELINE), {"newest": "Latest"}
        )
        yield postgres
    finally:
        postgres.run("down")


@pytest.fixture
def where(server: Server, monkeypatch: pytest.MonkeyPatch) -> Endpoints:
    """Return the endpoints, as a process of Sluice reads them."""
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(server.where.endpoints))
    return server.endpoints


def rows(first: int, last: int) -> tuple[list[str], list[str]]:
    return [f"0:{number}" for number in range(first, last)], ["0"] * (last - first)


def test_no_role_is_a_superuser_and_no_address_holds_a_password(server: Server, where: Endpoints) -> None:
    with psycopg.connect(superuser(server.where, "sluice")) as link:
        superusers = link.execute(
            "SELECT rolname FROM pg_roles WHERE rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication"
        ).fetchall()
        assert superusers == [("sluice",)], "no process works as this role"
        owners = link.execute(
            "SELECT datname, datdba::regrole::text FROM pg_database WHERE datname IN ('sluice', 'airflow')"
        ).fetchall()
        assert dict(owners) == {"sluice": "sluice_publisher", "airflow": "airflow"}
        wrong_owners = (
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND "
            "relowner::regrole::text <> 'sluice_publisher'"
        )
        assert link.execute(wrong_owners).fetchall() == []
    written = server.where.endpoints.read_text()
    for name in (*(role for role in Role if (server.where.postgres_users / role).exists()), "airflow"):
        assert database_roles.password(server.where.postgres_users, name) not in written
    assert server.where.secrets().postgres not in written
    assert server.where.secrets().airflow not in written
    assert "PASSWORD" not in where.postgres_as(Role.DRIVER)
    assert database_roles.make(superuser(server.where, "postgres"), server.where.postgres_users) == [], (
        "a second start changes nothing"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE delivered",
        "TRUNCATE delivered",
        "DELETE FROM ledger",
        "UPDATE ledger SET rows_in = 0",
        "ALTER TABLE ledger ADD COLUMN mine text",
        "CREATE TABLE mine ()",
        "CREATE TEMP TABLE mine ()",
        (
            "CREATE OR REPLACE FUNCTION campaign_counts_added_up() RETURNS trigger "
            "LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
        ),
        "COPY ledger TO PROGRAM 'cat'",
        "COPY ledger FROM PROGRAM 'id'",
        "COPY ledger FROM '/etc/passwd'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT * FROM trail",
        "INSERT INTO trail VALUES ('operator', 'x', now(), 'me', NULL, 'x', NULL, 'done', '')",
        "DELETE FROM losses",
        "SET ROLE sluice_publisher",
        "ALTER ROLE sluice_driver SUPERUSER",
    ],
)
def test_a_driver_is_refused_what_it_does_not_need(where: Endpoints, statement: str) -> None:
    with (
        psycopg.connect(where.postgres_as(Role.DRIVER)) as link,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        link.execute(statement.encode())


@pytest.mark.parametrize("database", ["airflow", "postgres", "template1"])
def test_a_driver_reads_no_other_database(where: Endpoints, database: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=f'permission denied for database "{database}"'):
        psycopg.connect(make_conninfo(where.postgres_as(Role.DRIVER), dbname=database))


def test_airflow_has_its_own_database_and_no_other(server: Server) -> None:
    password = database_roles.password(server.where.postgres_users, "airflow")
    airflow_address = make_conninfo(superuser(server.where, "airflow"), user="airflow", password=password)
    with psycopg.connect(airflow_address) as link:  # as Airflow's migrations do
        link.execute(
            "INSERT INTO dag (colour) VALUES ('red'); ALTER TABLE dag ADD COLUMN name text; "
            "ALTER TYPE colour ADD VALUE 'blue'"
        )
        link.execute("CREATE TABLE run (id serial PRIMARY KEY); DROP VIEW dags")
    with pytest.raises(psycopg.OperationalError, match='permission denied for database "sluice"'):
        psycopg.connect(make_conninfo(airflow_address, dbname="sluice"))


def test_drivers_do_all_their_work_as_their_own_role(where: Endpoints, tmp_path: Path) -> None:
    address = where.postgres_as(Role.DRIVER)
    delivered, counts = (declarations.load(PIPELINE).tier(name).sink for name in ("outbound", "counts"))
    assert isinstance(delivered, Once)
    assert isinstance(counts, Totals)
    names = rows(0, 2)
    hit = {name: ["x", "y"] for name in delivered.columns} | {"at": ["2026-01-01", "2026-01-01"]}
    with (
        closing(Ledger(address, "outbound", 1, delivered)) as ledger,
        closing(Archive(address, tmp_path, "outbound", delivered, S3Config())) as archive,
    ):
        assert ledger.write(Batch({"in/0": 0}, {"in/0": 2}), Rows(hit, *names), epoch=1).written == 2
        assert ledger.refused(Rows(hit, *rows(5, 7))) == {}
        assert archive.write() == 2
    added = {
        "campaign": ["a", "a"],
        "window_start": ["2026-01-01"] * 2,
        "views": [1, 1],
        "clicks": [0, 0],
        "buys": [0, 0],
    }
    with closing(Ledger(address, "counts", 2, counts)) as ledger:
        ledger.write(Batch({"in/0": 0}, {"in/0": 2}), Rows(added, *names), epoch=1)
        ledger.write(Batch({"in/0": 2}, {"in/0": 4}), Rows(added, *rows(2, 4)), epoch=2)
        assert ledger.marks == 1
    newest = {"who": ["a", "b"], "n": [1, Unfit("not a number")]}
    with closing(Ledger(address, "newest", 1, NEWEST)) as ledger:
        ledger.write(Batch({"in/0": 0}, {"in/0": 2}), Rows(newest, *names), epoch=1, absorbed=Absorbed(2))
        ledger.write(Batch({"in/0": 2}, {"in/0": 4}), Rows(newest, *names), epoch=1, absorbed=Absorbed(2))
    with closing(Intents(address, "outbound")) as intents:
        intents.declare(Intent(1, {}, {}, (), {}))
        intents.withdraw()
    with psycopg.connect(address) as link:
        for _ in range(2):
            link.execute(UPSERT, ("counts", 1, 0.0, 1.0, 1.0, 0, None, "{}", "{}"))


def test_the_audit_and_the_operator_can_do_their_work(where: Endpoints) -> None:
    with closing(Book(where.postgres_as(Role.AUDIT))) as book:
        for _ in range(2):
            book.save("counts", Page({"in/0": Line(1)}, {"ledger": 0}), [Missing("in/0:1", 1, "one is lost")])
            book.save_complete("counts", 1.0)
        fold.fold(book.open(), "counts")
        book.open().execute(fold.FOLD, {"tier": "counts", "day": "2020-01-01", "batch": 0})
        book.open().execute(_ADD, ("operator", "e-1", time.time(), "me", None, "x", None, "done", ""))
        book.open().execute(
            "SELECT FROM delivered, campaign_counts, intents, replays, added_up, tier_progress, "
            "campaign_daily"
        )
        assert book.drop_undeclared(["counts"]) == []
        assert retention.delete_expired(book.open()) == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            book.open().execute("UPDATE delivered SET id = ''")
    assert figures.read_figures().missing is None
    assert len(figures.read_figures().losses) == 2
    assert in_flight.measure().missing == "", "a drain to empty reads with the operator's rights"
    assert figures.settle(2, "me") == 2
    assert [line.what for line in trail_history._stored(5, None, None)] == ["x"]
    nightly_report.write(where.postgres_as(Role.OPERATOR), [("2026-01-01", "a", 1, 0, 0)])
    book_of_replays = replays.Book(where.postgres_as(Role.OPERATOR))
    replay = book_of_replays.take(
        book_of_replays.add(replays.Replay(0, "outbound", 1.0, {"in/0": 0}, {"in/0": 0}, {"in/0": 1}))
    )
    sink = declarations.load(PIPELINE).tier("outbound").sink
    assert sink is not None
    with closing(Ledger(where.postgres_as(Role.OPERATOR), "outbound", 0, sink)) as ledger:
        ledger.replay(
            1,
            Rows({name: [] for name in sink.columns}, [], []),
            number=1,
            quarantined=0,
            save=lambda cursor, counts: book_of_replays.save(replay, counts, cursor),
        )
        ledger.forget_ends(["in/0"])
    book_of_replays.save_pace(replay, 1.0, "well")
    assert isinstance(book_of_replays.counts(replay), Counts)
    book_of_replays.through(declarations.load(PIPELINE).tier("enrich"))
    book_of_replays.cancel(replay.number)
    book_of_replays._connection.close()
    with closing(Book(where.postgres_as(Role.OPERATOR))) as skipped:
        skipped.save("entry", Page(), [Missing("in/0:1", 1, "skipped")])
