"""PostgreSQL's address in the endpoints file, and the address that each role connects with.

`postgresql://db:5432/sluice?users=/etc/sluice/postgres-users` names no user. The folder has a file
for each role of this machine's processes, such as `driver`. The file has the format of libpq's
password file (`*:*:*:sluice_driver:PASSWORD`), and libpq reads the file itself. So no address that
Sluice handles, logs or prints contains a password. Other libpq options, such as `sslmode`, may
follow.

All processes use an address that names a user (`postgresql://sluice:PASSWORD@db:5432/sluice`)
unchanged: a server without roles.
"""

import os
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sluice_ops.model.access import Role
from sluice_ops.model.database import known_as

USERS = "users"
OTHERS = 0o077
"""Permissions of group and others; libpq ignores a password file with any of them."""


class DatabaseError(ValueError):
    """The address is unusable; the message says why."""


def users_of(address: str) -> Path | None:
    """Return the folder with the roles' passwords; None if the address names its user."""
    parts = urlsplit(address)
    folder = dict(parse_qsl(parts.query)).get(USERS)
    if folder is None:
        return None
    if "@" in parts.netloc or not folder.startswith("/"):
        message = (
            f"PostgreSQL's address with {USERS}= must name no user, and the folder's path must begin with /; "
            f"write it like postgresql://HOST:5432/sluice?{USERS}=/etc/sluice/postgres-users"
        )
        raise DatabaseError(message)
    return Path(folder)


def certificates_of(address: str) -> list[str]:
    """Return the files with certificates that the address names."""
    options = dict(parse_qsl(urlsplit(address).query))
    named = (options.get("sslrootcert"), options.get("sslcert"))
    return [file for file in named if file is not None and file.startswith("/")]


def with_role(address: str, role: Role) -> str:
    """Return the address for a role; DatabaseError if its password file is not readable."""
    folder = users_of(address)
    if folder is None:
        return address
    file = folder / role
    if not os.access(file, os.R_OK):
        message = (
            f"{file} does not exist, or user {os.geteuid()} cannot read it: "
            f"it holds PostgreSQL's password of {known_as(role)}; "
            "copy it from the machine on which `sluice access --postgres` was run"
        )
        raise DatabaseError(message)
    if file.stat().st_mode & OTHERS:
        message = f"libpq ignores {file}, because other users can read it; run: chmod 600 {file}"
        raise DatabaseError(message)
    parts = urlsplit(address)
    options = [(key, value) for key, value in parse_qsl(parts.query) if key != USERS]
    return parts._replace(
        netloc=f"{known_as(role)}@{parts.netloc}",
        query=urlencode([*options, ("passfile", file)], quote_via=quote),
    ).geturl()


def without_user(address: str, folder: Path) -> str:
    """Return the address without its user, with the roles' passwords in `folder` instead."""
    parts = urlsplit(address)
    options = [(key, value) for key, value in parse_qsl(parts.query) if key != USERS]
    netloc = parts.netloc.rpartition("@")[2]
    return parts._replace(
        netloc=netloc, query=urlencode([*options, (USERS, folder)], quote_via=quote, safe="/")
    ).geturl()


def password_line(user: str, password: str) -> str:
    """Return the line of a password file, for any server, port and database."""
    return f"*:*:*:{user}:{password}\n"
