"""Create PostgreSQL's roles and their passwords, so that each process works as its own role.

A superuser does this once: `sluice up` on the embedded platform, `sluice access --postgres FILE` on
a site's server. Repeating is harmless. If one user owned everything, the new owner takes over, and
the old user stays a member of the owner's role until somebody drops that user.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sluice_ops.model.database import AIRFLOW, OWNER, WORKERS, known_as
from sluice_ops.site.database import password_line
from sluice_ops.site.files import write_private

BYTES = 24
DATABASE = "sluice"
LOCK_SECONDS = 10
"""Limit for a table's change of owner to wait until no transaction uses the table."""

ATTRIBUTES = sql.SQL("LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS")
FOREIGN = """
    SELECT format('ALTER %%s %%s OWNER TO', CASE c.relkind WHEN 'v' THEN 'VIEW'
        WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' WHEN 'f' THEN 'FOREIGN TABLE'
        ELSE 'TABLE' END, c.oid::regclass), c.relowner::regrole::text
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
    AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND c.relowner <> %(owner)s::regrole
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
        AND (d.deptype = 'e' OR c.relkind = 'S' AND d.deptype IN ('a', 'i')))
    UNION ALL
    SELECT format('ALTER ROUTINE %%s OWNER TO', p.oid::regprocedure), p.proowner::regrole::text
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> %(owner)s::regrole
    AND NOT EXISTS (SELECT FROM pg_depend d
        WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    UNION ALL
    SELECT format('ALTER TYPE %%s OWNER TO', t.oid::regtype), t.typowner::regrole::text
    FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace AND t.typtype IN ('e', 'd')
    AND t.typowner <> %(owner)s::regrole
    AND NOT EXISTS (SELECT FROM pg_depend d
        WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
"""
"""Objects of a database that the owner does not own, with their owners.

A column's sequence is left out: it follows its table.
"""


def make_passwords(folder: Path) -> None:
    """Create the missing password file of each role, including Airflow's."""
    for file, user in _files(folder):
        if not file.exists():
            write_private(file, password_line(user, secrets.token_urlsafe(BYTES)))
    folder.chmod(0o700)


def password(folder: Path, name: str) -> str:
    """Return the password in a role's file."""
    return (folder / name).read_text().strip().rpartition(":")[2]


def make(superuser: str, folder: Path) -> list[str]:
    """Create or correct roles and databases, with the passwords in `folder`; return the changes.

    `superuser` is the URL of a superuser, with any database.
    """
    make_passwords(folder)
    with psycopg.connect(superuser, autocommit=True, connect_timeout=5) as link:
        changed = [*_roles(link, folder), *_databases(link)]
    for database, owner in ((DATABASE, known_as(OWNER)), (AIRFLOW, AIRFLOW)):
        with psycopg.connect(
            make_conninfo(superuser, dbname=database), autocommit=True, connect_timeout=5
        ) as link:
            changed += _hand_over(link, database, owner)
    return changed


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    yield from ((folder / role, known_as(role)) for role in WORKERS)
    yield folder / AIRFLOW, AIRFLOW


def _roles(link: psycopg.Connection, folder: Path) -> Iterator[str]:
    existing_roles = {row[0] for row in link.execute("SELECT rolname FROM pg_roles")}
    for file, user in _files(folder):
        name = sql.Identifier(user)
        if user not in existing_roles:
            link.execute(sql.SQL("CREATE ROLE {}").format(name))
            yield f"role {user}"
        # send the verifier that the server stores, so that no log of the server has the password
        verifier = link.pgconn.encrypt_password(
            password(folder, file.name).encode(), user.encode(), b"scram-sha-256"
        ).decode()
        link.execute(
            sql.SQL("ALTER ROLE {} WITH {} PASSWORD {}").format(name, ATTRIBUTES, sql.Literal(verifier))
        )


def _databases(link: psycopg.Connection) -> Iterator[str]:
    owners: dict[str, str] = dict(
        link.execute("SELECT datname, datdba::regrole::text FROM pg_database").fetchall()
    )
    for database, owner in ((DATABASE, known_as(OWNER)), (AIRFLOW, AIRFLOW)):
        if database not in owners:
            link.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(database), sql.Identifier(owner))
            )
            yield f"database {database}"
        elif owners[database] != owner:
            link.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                    sql.Identifier(database), sql.Identifier(owner)
                )
            )
            yield f"database {database} belongs to {owner}"
        link.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database)))
    workers = sql.SQL(", ").join(sql.Identifier(known_as(role)) for role in WORKERS)
    link.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(DATABASE), workers))


def _hand_over(link: psycopg.Connection, database: str, owner: str) -> Iterator[str]:
    """Give all objects of a database to its owner; earlier owners become members of the owner."""
    name = sql.Identifier(owner)
    link.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(f"{LOCK_SECONDS} s")))
    link.execute(sql.SQL("ALTER SCHEMA public OWNER TO {}").format(name))
    link.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    if database == DATABASE:
        workers = sql.SQL(", ").join(sql.Identifier(known_as(role)) for role in WORKERS)
        link.execute(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(workers))
    foreign_objects = link.execute(FOREIGN, {"owner": owner}).fetchall()
    for statement, _ in foreign_objects:
        link.execute(sql.SQL("{} {}").format(sql.SQL(statement), name))
    supers = {row[0] for row in link.execute("SELECT oid::regrole::text FROM pg_roles WHERE rolsuper")}
    for earlier in sorted({user for _, user in foreign_objects} - supers):
        link.execute(sql.SQL("GRANT {} TO {}").format(name, sql.SQL(earlier)))
    if foreign_objects:
        yield f"{len(foreign_objects)} tables and other objects of {database} belong to {owner}"
