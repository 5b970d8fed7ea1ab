"""Migrations of the platform's tables: of their own schema only, each once, and of a database that an older version has made."""

from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

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
    """Make a schema, and another one that comes after it in the search path; return the address for them."""
    with psycopg.connect(server, autocommit=True) as connection:
        for schema in (MINE, OTHER):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        yield f"{server}?options={quote(f'-csearch_path={MINE},{OTHER}')}"
        for schema in (MINE, OTHER):
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def columns(address: str, table: str) -> set[str]:
    with psycopg.connect(address) as connection:
        asked = "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = %s"
        return {name for (name,) in connection.execute(asked, (table,))}


def test_tables_of_another_schema_are_not_taken_for_those_of_this_one(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {OTHER}.ledger (tier text, at timestamptz, late int, lost int, replay int, written int);"
            f" CREATE INDEX ledger_at ON {OTHER}.ledger (at);"
            f" CREATE TABLE {OTHER}.audit (unseen int, checked text, first_lost int);"
            f" CREATE TABLE {OTHER}.marks (index int); CREATE TABLE {OTHER}.archived (upto int)".encode()
        )
    tables.create(address, HITS)
    assert {"late", "lost", "replay", "written"} <= columns(address, "ledger")
    assert {"unseen", "checked"} <= columns(address, "audit")
    assert "upto" in columns(address, "archived")
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT to_regclass('mine.ledger_at') IS NOT NULL").fetchone() == (True,)


def test_each_statement_is_run_once_in_a_database(address: str) -> None:
    tables.create(address, HITS)
    with psycopg.connect(address, autocommit=True) as connection:
        ran = connection.execute("SELECT number, part, digest, at FROM migrations ORDER BY number").fetchall()
        assert {(part, known) for _, part, known, _ in ran} == {
            (part, digest(each)) for part, statements in tables.PARTS.items() for each in statements
        }
        tables.create(address, HITS)
        assert (
            connection.execute("SELECT number, part, digest, at FROM migrations ORDER BY number").fetchall()
            == ran
        )


def test_a_database_of_before_gets_what_it_lacks(address: str) -> None:
    tables.create(address, HITS)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE migrations")
        connection.execute("ALTER TABLE ledger DROP COLUMN replay; ALTER TABLE audit DROP COLUMN checked")
        connection.execute("INSERT INTO tier_epochs (tier, epoch, incarnation) VALUES ('counts', 7, 3)")
        tables.create(address, HITS)
        assert connection.execute("SELECT epoch, incarnation FROM tier_epochs").fetchall() == [(7, 3)]
    assert "replay" in columns(address, "ledger")
    assert "checked" in columns(address, "audit")
