"""A real MariaDB server for tests, with a user who may do what docs/pipelines.md names.

`mariadb.lock` has its version and checksum. The programs need no further package of Debian's.
"""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pymysql
import pytest

from tests.fetched import fetch
from tests.lab import free_ports, until

LOCK = Path(__file__).with_suffix(".lock")
PROGRAMS = ("bin/mariadbd", "bin/my_print_defaults", "bin/resolveip", "scripts/mariadb-install-db")
SHARED = (".sql", ".sys", ".xml")
"""The endings of the files that the server reads: system tables, messages and character sets."""
PASSWORD = "a b/c@d"
OWN_TABLES = ("sluice_marks", "sluice_refused", "sluice_writers")


@dataclass
class MariaDB:
    """A server, and its database `shop`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def programs(self) -> Path:
        return self.folder / "programs"

    @property
    def url(self) -> str:
        """The address of `shop` for the user `sluice`, without the password."""
        return f"mysql+pymysql://sluice@127.0.0.1:{self.port}/shop"

    @property
    def password_file(self) -> str:
        return str(self.folder / "password")

    def connect(self, database: str | None = "shop") -> "pymysql.Connection[Any]":
        """Open a session of the administrator."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )

    def query(self, *statements: str, database: str | None = "shop") -> list[tuple[Any, ...]]:
        """Run statements as the administrator, and return the rows of the last one."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def make_table(self, name: str, columns: str) -> None:
        """Make a table into which the user may only insert."""
        self.query(f"create table {name} ({columns}) engine InnoDB", f"grant insert on {name} to sluice")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = {
            "basedir": self.programs,
            "bind-address": "127.0.0.1",
            "datadir": self.folder / "data",
            "innodb-buffer-pool-size": "64M",
            "innodb-lock-wait-timeout": "2",
            "innodb-log-file-size": "8M",
            "pid-file": self.folder / "mariadb.pid",
            "port": self.port,
            "ssl": "0",  # otherwise it makes a key at each start, for seconds
            "socket": "mariadb.sock",  # a relative path: an absolute one may be too long
            "user": "root",  # only root heeds it
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        command = [self.programs / "bin" / "mariadbd", "--no-defaults", *words]
        with (self.folder / "mariadb.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until("MariaDB answers", self._answers)

    def kill(self) -> None:
        """End the server at once, as a power loss does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "mariadb.log").read_text()[-3000:]
        with suppress(pymysql.err.OperationalError):
            return self.query("select 1", database=None) == [(1,)]
        return False


def unpack(folder: Path) -> None:
    """Unpack the server below `folder` into `programs`, and make its system tables in `data`."""
    archive, programs = fetch(LOCK, folder), folder / "programs"
    with ZipFile(archive) as packed:
        for name in packed.namelist():
            path = name.partition("/linux/")[2]
            if path in PROGRAMS or (path.startswith("share/") and path.endswith(SHARED)):
                target = programs / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(name) as content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
                target.chmod(0o755)
    archive.unlink()
    options = [f"--basedir={programs}", f"--datadir={folder}/data", "--innodb-log-file-size=8M"]
    script = programs / "scripts" / "mariadb-install-db"
    subprocess.run(
        [
            "sh",
            script,
            "--no-defaults",
            *options,
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ],
        check=True,
        capture_output=True,
    )


@contextmanager
def mariadb(folder: Path) -> Iterator[MariaDB]:
    """Run a server in `folder`, which is empty; its data and log stay there."""
    if platform.machine() != "x86_64":
        pytest.skip("MariaDB's programs are for x86-64")
    unpack(folder)
    (port,) = free_ports(1)
    server = MariaDB(folder, port)
    Path(server.password_file).write_text(f"{PASSWORD}\n")
    try:
        server.start()
        rights = [
            f"grant create, select, insert, update, delete on shop.{name} to sluice" for name in OWN_TABLES
        ]
        server.query(
            "create database shop", f"create user sluice identified by '{PASSWORD}'", *rights, database=None
        )
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder / "programs")
