"""`sluice access` and `sluice token`: credentials and access lists of the channel, and tokens for
new hosts.

The admin uses these commands.
"""

import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import typer

from sluice_ops.channel import Channel, access_lists, trail_queue
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.model.wording import page
from sluice_ops.operations import joining
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.expiry import ExpiryError, ending
from sluice_ops.operations.retiring import take_off
from sluice_ops.site import credentials, database_roles, endpoints
from sluice_ops.site.database import users_of, without_user
from sluice_ops.site.files import write_private
from sluice_ops.site.site_file import HOST_NAME

SHOWN = 10
"""Most nodes that `sluice access` prints; --json has all."""


def make(*, as_json: bool) -> None:
    """Create a credential for each role that has none, and write their places into the endpoints
    file.
    """
    file, where = endpoints.file(), endpoints.load()
    folder = where.access.credentials if where.access is not None else file.parent / "credentials"
    access = credentials.make(folder)
    tls = None if where.access is None else where.access.tls
    contents = {
        **json.loads(file.read_text()),
        "access": access.model_copy(update={"tls": tls}).model_dump(mode="json", exclude_none=True),
    }
    file.write_text(json.dumps(contents, indent=2) + "\n")  # in place: the file keeps its owner
    if as_json:
        print_json({"folder": str(folder), "roles": list(access.roles)})
        return
    typer.echo(f"{folder} has a credential for each of {', '.join(access.roles)}; {file} names them.")
    typer.echo(
        f"Copy {file} to every machine, and to each machine only the credentials of its own roles. "
        "Then run `sluice access --apply`."
    )


def apply(*, as_json: bool) -> None:
    """Correct the access list of every node of the channel."""
    with _open() as channel:
        corrected = access_lists.apply(channel.kazoo)
        if corrected:
            entry = Entry(
                at=time.time(),
                by=trail_queue.cli_user(),
                what=f"access lists of {corrected} nodes",
                outcome=Outcome.DONE,
            )
            channel.multi([trail_queue.write(Role.OPERATOR, entry)])
    if as_json:
        print_json({"mended": corrected})
    else:
        typer.echo(
            f"The access lists of {corrected} nodes were corrected."
            if corrected
            else "Every node already had the right access list."
        )


def make_postgres(source: str, *, as_json: bool) -> None:
    """Create the roles of PostgreSQL with passwords, and write their place into the endpoints file.

    `source` is a file with the URL of a superuser; `-` is stdin.
    """
    file, where = endpoints.file(), endpoints.load()
    folder = users_of(where.postgres) or file.parent / "postgres-users"
    try:
        superuser = (sys.stdin.read() if source == "-" else Path(source).read_text()).strip()
        changed = database_roles.make(superuser, folder)
    except OSError as error:
        message = (
            f"{source}: {error.strerror}; write the URL of a PostgreSQL superuser into this file, such as "
            "postgresql://postgres:PASSWORD@db/postgres"
        )
        raise WrongUsageError(message) from error
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        message = (
            f"PostgreSQL refused: {reason}; correct the URL or the superuser's rights, then run the command "
            "again: it continues where it stopped"
        )
        raise WrongUsageError(message) from error
    address = without_user(where.postgres, folder)
    if address != where.postgres:
        contents = {**json.loads(file.read_text()), "postgres": address}
        file.write_text(json.dumps(contents, indent=2) + "\n")  # in place: the file keeps its owner
    if as_json:
        print_json({"folder": str(folder), "changed": changed})
        return
    typer.echo(
        f"PostgreSQL: {'; '.join(changed) or 'all roles and databases are in order'}. "
        f"The passwords are in {folder}."
    )
    typer.echo(
        f"Copy {file} and the password files to every machine, see {page('Access', 'PostgreSQL')}. "
        "Then run `sluice publish`."
    )


def show(*, as_json: bool) -> None:
    """Print the nodes with a wrong access list; the exit code is FAILED if one has."""
    with _open() as channel:
        wrong, unknown = access_lists.find_wrong(channel.kazoo), access_lists.find_unlisted(channel.kazoo)
    if as_json:
        print_json({"ok": not wrong, "others": wrong, "unknown": unknown})
    else:
        for path in wrong[:SHOWN]:
            typer.echo(f"{path} has a wrong access list.")
        if len(wrong) > SHOWN:
            typer.echo(f"And {len(wrong) - SHOWN} more: `sluice access --json` lists all.")
        typer.echo(
            "Correct the lists: `sluice access --apply`."
            if wrong
            else "Every node has the right access list."
        )
        if unknown:
            typer.echo(f"Nodes of no known kind, which only the admin may change: {', '.join(unknown)}.")
    raise typer.Exit(FAILED if wrong else OK)


def forget(host: str, *, as_json: bool) -> None:
    """Remove a host from the channel; the next agent of this name registers with its own
    credential.
    """
    if endpoints.load().access is None:
        _admit(host, as_json=as_json)
        return
    with _open(Role.OPERATOR) as channel:
        if not channel.exists(paths.host(host)):
            registered_hosts = ", ".join(channel.children("/hosts")) or "none"
            message = f'no host "{host}" is registered; registered hosts: {registered_hosts}'
            raise WrongUsageError(message)
        if channel.exists(paths.live(host)):
            message = f"an agent with the registered credential serves {host} now: stop this agent first"
            raise WrongUsageError(message)
        take_off(
            channel,
            dict.fromkeys(
                (paths.host_logs(host), paths.host_record(host), paths.host(host), paths.observed(host))
            ),
            f"forget {host}",
            trail_queue.cli_user(),
        )
    if as_json:
        print_json({"forgotten": host})
    else:
        typer.echo(
            f"{host} is removed from the channel; the next agent of this name registers it again. "
            f"If the host was cordoned, cordon it again: `sluice cordon {host}`."
        )


def _admit(host: str, *, as_json: bool) -> None:
    """Let the name of a decommissioned host be used again, at a site without roles and tokens."""
    with open_channel() as channel:
        if not channel.exists(paths.decommissioned(host)):
            names = ", ".join(channel.children(paths.DECOMMISSIONED)) or "none"
            message = (
                f"{endpoints.file()} names no roles, so there is no credential to forget; and no host "
                f'"{host}" was decommissioned; decommissioned hosts: {names}'
            )
            raise WrongUsageError(message)
        channel.delete(paths.decommissioned(host))
    if as_json:
        print_json({"forgotten": host})
    else:
        typer.echo(f"{host} may be used again: the next agent of this name registers it.")


def make_token(file: Path, host: str, lasts: str, *, as_json: bool) -> None:
    """Write a token that lets one host join."""
    if not re.fullmatch(HOST_NAME, host):
        message = (
            f"{host!r} is no valid host name: use lower-case letters, digits and -, a letter first, such as "
            "h4"
        )
        raise WrongUsageError(message)
    now = datetime.now(UTC)
    try:
        seconds = (ending(lasts, now, None) - now).total_seconds()
        token = joining.make(endpoints.load(), host, seconds)
    except (ExpiryError, joining.JoinError) as error:
        raise WrongUsageError(str(error)) from error
    write_private(file, token.model_dump_json() + "\n")
    if as_json:
        print_json({"file": str(file), "host": host, "seconds": round(seconds)})
        return
    typer.echo(
        f"{file} lets {host} join once within {lasts} by ZooKeeper's clock. On {host} run: "
        f"sluice agent --host {host} --token-file {file.name}"
    )
    typer.echo(f"The first machine that uses the token becomes {host}. Earlier tokens for {host} are void.")


def _open(role: Role = Role.ADMIN) -> Channel:
    where = endpoints.load()
    if where.access is None:
        message = (
            f"{endpoints.file()} names no roles, so everybody may change the channel; "
            "create roles: `sluice access --make`"
        )
        raise WrongUsageError(message)
    return Channel(where.zookeeper, where.required_credential(role))
