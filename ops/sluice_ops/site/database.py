"""How PostgreSQL is reached: the address in the endpoints file, for each role that works there.

`postgresql://db:5432/sluice?users=/etc/sluice/postgres-users` names no user: the folder has a file for each role that processes of this
machine are, such as `driver`, in the format of libpq's password file (`*:*:*:sluice_driver:PASSWORD`). libpq reads it itself, so no
address that Sluice handles, logs or prints holds a password. Other options of libpq, such as `sslmode`, may follow.

An address that names a user (`postgresql://sluice:PASSWORD@db:5432/sluice`) is used as it is, by all processes: as before there were roles.
"""

import os
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sluice_ops.model.access import Role
from sluice_ops.model.database import known_as

USERS = "users"
OTHERS = 0o077
"""Permissions with which libpq does not read a password file."""


class DatabaseError(ValueError):
    """The address cannot be used; the message says why."""


def users_of(address: str) -> Path | None:
    """Return the folder with the roles' passwords; None where the address names its user."""
    parts = urlsplit(address)
    folder = dict(parse_qsl(parts.query)).get(USERS)
    if folder is None:
        return None
    if "@" in parts.netloc or not folder.startswith("/"):
        message = (
            f"with {USERS}= PostgreSQL's address names no user, and the folder's path begins with /: "
            f"postgresql://HOST:5432/sluice?{USERS}=/etc/sluice/postgres-users"
        )
        raise DatabaseError(message)
    return Path(folder)


def signed(address: str, role: Role) -> str:
    """Return the address for one of the roles; DatabaseError where its password cannot be read here."""
    folder = users_of(address)
    if folder is None:
        return address
    kept = folder / role
    if not os.access(kept, os.R_OK):
        message = (
            f"{kept} does not exist, or user {os.geteuid()} cannot read it: it holds the password of {known_as(role)} in PostgreSQL; "
            "copy it from where `sluice access --postgres` was run"
        )
        raise DatabaseError(message)
    if kept.stat().st_mode & OTHERS:
        message = f"{kept} can be read by others, so libpq ignores it: chmod 600 {kept}"
        raise DatabaseError(message)
    parts = urlsplit(address)
    options = [(key, value) for key, value in parse_qsl(parts.query) if key != USERS]
    return parts._replace(
        netloc=f"{known_as(role)}@{parts.netloc}",
        query=urlencode([*options, ("passfile", kept)], quote_via=quote),
    ).geturl()


def without_user(address: str, folder: Path) -> str:
    """Return an address that names its user as one whose roles' passwords are in `folder`."""
    parts = urlsplit(address)
    options = [(key, value) for key, value in parse_qsl(parts.query) if key != USERS]
    netloc = parts.netloc.rpartition("@")[2]
    return parts._replace(
        netloc=netloc, query=urlencode([*options, (USERS, folder)], quote_via=quote, safe="/")
    ).geturl()


def password_line(user: str, password: str) -> str:
    """Return the line of a password file: whatever the server, port and database."""
    return f"*:*:*:{user}:{password}\n"
