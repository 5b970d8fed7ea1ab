"""Migrations of the platform's tables: only in their own schema, each once, and in databases of
older versions.
"""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from docs.site.reference import postgresql
from sluice.api import declarations
from sluice.commands import tables
from sluice.migrations import digest
from tests.database import database

pytestmark = pytest.mark.timeout(300)
HITS = declarations.load("hits")
MINE, OTHER = "mine", "other"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(tmp_path_factory.mktemp("migrations")) as address:
        yield address


@pytest.fixture
def address(server: str) -> Iterator[str]:
    """Create two schemas, the second later in the search path; return the address with
    this path.
    """
    with psycopg.connect(server, autocommit=True) as connection:
        for schema in (MINE, OTHER):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        yield f"{server}?options={quote(f'-csearch_path={MINE},{OTHER}')}"
        for schema in (MINE, OTHER):
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def columns(address: str, table: str) -> set[str]:
    with psycopg.connect(address) as connection:
        query = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() "
            "AND table_name = %s"
        )
        return {name for (name,) in connection.execute(query, (table,))}


def test_tables_of_another_schema_are_not_confused_with_this_ones(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {OTHER}.ledger (tier text, at timestamptz, late int, lost int, replay int, "
            f"written int); CREATE INDEX ledger_at ON {OTHER}.ledger (at); CREATE TABLE {OTHER}.audit "
            f"(unseen int, checked text, first_lost int); CREATE TABLE {OTHER}.marks (index int); "
            f"CREATE TABLE {OTHER}.archived (upto int)".encode()
        )
    tables.create(address, HITS)
    assert {"late", "lost", "replay", "written"} <= columns(address, "ledger")
    assert {"unseen", "checked"} <= columns(address, "audit")
    assert "upto" in columns(address, "archived")
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT to_regclass('mine.ledger_at') IS NOT NULL").fetchone() == (True,)


def test_the_missing_tables_are_those_that_publishing_creates(address: str) -> None:
    missing = tables.missing(address, HITS)
    tables.create(address, HITS)
    with psycopg.connect(address) as connection:
        made = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        assert {*missing} == {name for (name,) in made}
    assert tables.missing(address, HITS) == []


def test_each_statement_is_run_once_in_a_database(address: str) -> None:
    tables.create(address, HITS)
    with psycopg.connect(address, autocommit=True) as connection:
        ran = connection.execute("SELECT number, part, digest, at FROM migrations ORDER BY number").fetchall()
        assert {(part, known) for _, part, known, _ in ran} == {
            (part, digest(statement)) for part, statements in tables.PARTS.items() for statement in statements
        }
        tables.create(address, HITS)
        assert (
            connection.execute("SELECT number, part, digest, at FROM migrations ORDER BY number").fetchall()
            == ran
        )


def test_the_reference_lists_the_tables_with_their_columns_and_purpose(address: str) -> None:
    tables.create(address, HITS)
    described = postgresql.tables()
    assert {name: columns(address, name) for name in described} == {
        name: {*table.columns} for name, table in described.items()
    }
    with psycopg.connect(address) as connection:
        comments = connection.execute(
            "SELECT relname, obj_description(oid, 'pg_class') FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace AND obj_description(oid, 'pg_class') <> ''"
        ).fetchall()
    assert dict(comments) == {name: table.purpose for name, table in described.items()}


def test_a_database_of_an_older_version_gets_missing_columns(address: str) -> None:
    tables.create(address, HITS)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE migrations")
        connection.execute("ALTER TABLE ledger DROP COLUMN replay; ALTER TABLE audit DROP COLUMN checked")
        connection.execute("INSERT INTO tier_epochs (tier, epoch, incarnation) VALUES ('counts', 7, 3)")
        tables.create(address, HITS)
        assert connection.execute("SELECT epoch, incarnation FROM tier_epochs").fetchall() == [(7, 3)]
    assert "replay" in columns(address, "ledger")
    assert "checked" in columns(address, "audit")


def test_the_table_of_a_batch_job_is_made_and_an_earlier_one_is_kept(address: str) -> None:
    (daily,) = HITS.tables
    assert daily.name in tables.create(address, HITS)
    with psycopg.connect(address, autocommit=True) as connection:
        # as an earlier version made the table, with a row of a report
        connection.execute(
            "DROP TABLE campaign_daily; CREATE TABLE campaign_daily (day date, campaign text,"
            " views bigint NOT NULL, clicks bigint NOT NULL, buys bigint NOT NULL,"
            " PRIMARY KEY (day, campaign)); INSERT INTO campaign_daily VALUES ('2026-01-01', 'a', 1, 2, 3)"
        )
        more = replace(daily, columns=daily.columns | {"refunds": "bigint"})
        for pipeline in (HITS, replace(HITS, tables=(more,))):
            tables.create(address, pipeline)
            rows = connection.execute("SELECT views, clicks, buys FROM campaign_daily").fetchall()
            assert rows == [(1, 2, 3)]
    assert columns(address, daily.name) == {*daily.columns, "refunds"}
