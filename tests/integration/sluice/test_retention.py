"""Rows that nothing else bounds are deleted when they are old, whoever calls the function; younger
rows stay.
"""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from sluice.api import declarations
from sluice.audit.retention import AGAIN_DAYS, REFUSED_DAYS, TRAIL_DAYS, delete_expired
from sluice.commands import tables
from tests.database import database

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(tmp_path_factory.mktemp("retention")) as server:
        tables.create(server, declarations.load("hits"))
        yield server


def fill(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Add a row just too old and one just young enough to each table, and a mark of a path, which
    stays.
    """
    connection.execute("CREATE TABLE service_refused (origin text, batch bigint, refused_at timestamptz)")
    connection.execute("CREATE TABLE refused (origin text, refused_at timestamptz)")
    for name, day in (("old", 1), ("young", -1)):
        connection.execute(
            "INSERT INTO trail (role, name, at, by, what, outcome, sentence)"
            " VALUES ('operator', %s, now() - make_interval(days => %s), 'x', 'x', 'done', '')",
            (name, TRAIL_DAYS + day),
        )
        connection.execute(
            "INSERT INTO marks (tier, path, position, at) VALUES ('t', %s, '{1}', now() - "
            "make_interval(days => %s))",
            (f"0/again:{name}", AGAIN_DAYS + day),
        )
        for table in ("service_refused", "refused"):
            put = sql.SQL(
                "INSERT INTO {} (origin, refused_at) VALUES (%s, now() - make_interval(days => %s))"
            ).format(sql.Identifier(table))
            connection.execute(put, (name, REFUSED_DAYS + day))
    connection.execute(
        "INSERT INTO marks (tier, path, position, at) VALUES ('t', '0', '{1}', now() - interval '9 years')"
    )


def test_old_rows_are_deleted_and_all_others_stay(address: str) -> None:
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        fill(connection)
        assert delete_expired(connection) == 3
        assert delete_expired(connection) == 0
        assert connection.execute("SELECT name FROM trail").fetchall() == [("young",)]
        assert connection.execute("SELECT path FROM marks ORDER BY path").fetchall() == [
            ("0",),
            ("0/again:young",),
        ]
        assert connection.execute("SELECT origin FROM service_refused").fetchall() == [("young",)]
        assert len(connection.execute("SELECT origin FROM refused").fetchall()) == 2, (
            "the table belongs to no sink"
        )
        for change, reason in (
            ("DELETE FROM trail", "table trail: this row is too young to delete"),
            ("UPDATE trail SET by = 'y'", "table trail accepts only new rows"),
            ("TRUNCATE trail", "table trail accepts only new rows"),
        ):
            with pytest.raises(psycopg.errors.RaiseException, match=reason):
                connection.execute(change.encode())


def test_a_role_without_the_right_to_delete_may_call_retention(address: str) -> None:
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        fill(connection)
        connection.execute("CREATE ROLE stranger")
        connection.execute("SET ROLE stranger")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM trail")
        assert delete_expired(connection) == 3
