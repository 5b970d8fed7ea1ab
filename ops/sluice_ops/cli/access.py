"""`sluice access` and `sluice token`: credentials, the access lists of a tree, and how a host gets its own. For the admin."""

import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import typer

from sluice_ops.channel import Channel, access_lists, trail_queue
from sluice_ops.cli.exit_codes import FAILED, OK, WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.cli.retire import take_off
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.operations import joining
from sluice_ops.operations.expiry import UntilError, ending
from sluice_ops.site import credentials, database_roles, endpoints
from sluice_ops.site.database import users_of, without_user
from sluice_ops.site.files import write_private
from sluice_ops.site.site_file import HOST_NAME

SHOWN = 10


def make(*, as_json: bool) -> None:
    """Make a credential for each role that has none, and name them in the endpoints file."""
    file, where = endpoints.file(), endpoints.load()
    folder = where.access.credentials if where.access is not None else file.parent / "credentials"
    made = credentials.make(folder)
    tls = None if where.access is None else where.access.tls
    contents = {
        **json.loads(file.read_text()),
        "access": made.model_copy(update={"tls": tls}).model_dump(mode="json", exclude_none=True),
    }
    file.write_text(json.dumps(contents, indent=2) + "\n")  # in place: whose file it is stays
    if as_json:
        print_json({"folder": str(folder), "roles": list(made.roles)})
        return
    typer.echo(f"{folder} has a credential for each of {', '.join(made.roles)}; {file} names them.")
    typer.echo(
        "Copy that file to every machine, with the credentials of the roles that it has, and no others; then `sluice access --apply`."
    )


def apply(*, as_json: bool) -> None:
    """Give every node of the tree the access list that it is to have."""
    with _open() as channel:
        mended = access_lists.apply(channel.kazoo)
        if mended:
            entry = Entry(
                at=time.time(),
                by=trail_queue.cli_user(),
                what=f"access lists of {mended} nodes",
                outcome=Outcome.DONE,
            )
            channel.multi([trail_queue.write(Role.OPERATOR, entry)])
    if as_json:
        print_json({"mended": mended})
    else:
        typer.echo(
            f"{mended} nodes had another access list."
            if mended
            else "Every node had its access list already."
        )


def make_postgres(source: str, *, as_json: bool) -> None:
    """Make PostgreSQL's roles and their passwords, and have the endpoints file name them; `source` holds a superuser's URL, - is stdin."""
    file, where = endpoints.file(), endpoints.load()
    folder = users_of(where.postgres) or file.parent / "postgres-users"
    try:
        superuser = (sys.stdin.read() if source == "-" else Path(source).read_text()).strip()
        changed = database_roles.make(superuser, folder)
    except OSError as error:
        message = f"{source}: {error.strerror}; write the URL of a superuser of PostgreSQL there, such as postgresql://postgres:PASSWORD@db/postgres"
        raise WrongUsageError(message) from error
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        message = f"PostgreSQL has not taken it: {reason}; correct the URL, or the superuser's rights, and run it again: it goes on"
        raise WrongUsageError(message) from error
    address = without_user(where.postgres, folder)
    if address != where.postgres:
        contents = {**json.loads(file.read_text()), "postgres": address}
        file.write_text(json.dumps(contents, indent=2) + "\n")  # in place: whose file it is stays
    if as_json:
        print_json({"folder": str(folder), "changed": changed})
        return
    typer.echo(
        f"PostgreSQL: {'; '.join(changed) or 'the roles and databases are as they have to be'}. The passwords are in {folder}."
    )
    typer.echo(
        f"Copy {file} and its password files to every machine (docs/access.md), then run `python -m sluice.commands.publish`."
    )


def show(*, as_json: bool) -> None:
    """Tell which nodes have another one; the exit code tells scripts."""
    with _open() as channel:
        others, unknown = access_lists.find_wrong(channel.kazoo), access_lists.find_unlisted(channel.kazoo)
    if as_json:
        print_json({"ok": not others, "others": others, "unknown": unknown})
    else:
        for path in others[:SHOWN]:
            typer.echo(f"{path} has another access list than it is to have.")
        if len(others) > SHOWN:
            typer.echo(f"And {len(others) - SHOWN} more: `sluice access --json` has all.")
        typer.echo(
            "`sluice access --apply` puts them right."
            if others
            else "Every node has the access list that it is to have."
        )
        if unknown:
            typer.echo(f"Of no known kind, and the admin's alone: {', '.join(unknown)}.")
    raise typer.Exit(FAILED if others else OK)


def forget(host: str, *, as_json: bool) -> None:
    """Take a host off the channel, so that the next agent of its name registers with the credential that it has."""
    with _open(Role.OPERATOR) as channel:
        if not channel.exists(paths.host(host)):
            message = f'no host "{host}" has registered; the channel has {", ".join(channel.children("/hosts")) or "none"}'
            raise WrongUsageError(message)
        if channel.exists(paths.live(host)):
            message = (
                f"an agent serves {host} now, with the credential that the channel knows: stop that one first"
            )
            raise WrongUsageError(message)
        take_off(
            channel,
            dict.fromkeys((paths.host_record(host), paths.host(host), paths.observed(host))),
            f"forget {host}",
        )
    if as_json:
        print_json({"forgotten": host})
    else:
        typer.echo(
            f"{host} is off the channel; the next agent of that name makes it its own. Was it cordoned? `sluice cordon {host}`."
        )


def make_token(file: Path, host: str, lasts: str, *, as_json: bool) -> None:
    """Write a token with which one host joins."""
    if not re.fullmatch(HOST_NAME, host):
        message = (
            f"{host!r} is no name of a host: write small letters, digits and -, a letter first, such as h4"
        )
        raise WrongUsageError(message)
    now = datetime.now(UTC)
    try:
        seconds = (ending(lasts, now, None) - now).total_seconds()
        token = joining.make(endpoints.load(), host, seconds)
    except (UntilError, joining.JoinError) as error:
        raise WrongUsageError(str(error)) from error
    write_private(file, token.model_dump_json() + "\n")
    if as_json:
        print_json({"file": str(file), "host": host, "seconds": round(seconds)})
        return
    typer.echo(
        f"{file} lets {host} join once, for {lasts} by ZooKeeper's clock. There: sluice agent --host {host} --token-file {file.name}"
    )
    typer.echo(f"The first machine that uses it is {host}. An earlier token for {host} is void.")


def _open(role: Role = Role.ADMIN) -> Channel:
    where = endpoints.load()
    if where.access is None:
        message = f"{endpoints.file()} names no roles, so the channel is open to all; `sluice access --make` makes them"
        raise WrongUsageError(message)
    return Channel(where.zookeeper, where.needed(role))
