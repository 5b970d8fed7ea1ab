"""`sluice retire`: take a host off the channel for good, once nothing is left on it and its agent is gone."""

import time
from collections.abc import Mapping

import typer

from sluice_ops.channel import Channel, ConflictError, Write, trail_queue
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.exit_codes import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import HostName
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.model.wording import listed
from sluice_ops.operations.connect import open_channel
from sluice_ops.snapshot.view import View, look


def retire(host: HostName, *, dry_run: bool, as_json: bool) -> None:
    """Check that nobody needs it any more, and delete its nodes: with them goes what the channel knew of its agent's credential."""
    with open_channel() as channel:
        view = look(channel)
        why = refusal(view, host)
        if why is not None:
            raise WrongUsageError(why)
        if dry_run:
            print_json({"dry_run": True, "retires": host}) if as_json else typer.echo(
                f"would take {host} off the channel: nothing needs it"
            )
            return
        nodes = (paths.host_record(host), paths.host(host), paths.observed(host), paths.assignment(host))
        try:
            take_off(channel, {path: view.versions.get(path) for path in nodes}, f"retire {host}")
        except ConflictError as error:
            message = f"{host} has changed in this moment, and is as it was ({error}): look at `sluice hosts`, then ask again"
            raise ConflictError(message) from error
    if as_json:
        print_json({"retired": host})
    else:
        typer.echo(
            f"{host} is off the channel, with what it knew of its agent's credential. Take it out of the site file; an agent of that name "
            f"that is started again is a new host, once hosts/{host} below its SLUICE_HOME is removed."
        )


def refusal(view: View, host: HostName) -> str | None:
    """Say why a host cannot be taken off, and what to do first; None when it can."""
    seen = view.hosts.get(host)
    if seen is None:
        return f'there is no host "{host}"; known hosts: {listed(view.hosts) or "none"}'
    changes = [
        change.id
        for change in view.changes.values()
        if change.state is ChangeState.ACTIVE and change.spec.host == host
    ]
    if changes:
        return f"change {changes[0]} is about {host}: wait for its end, or `sluice abort {changes[0]}`"
    drained = seen.record.state is HostState.DRAINED
    if seen.live:
        first = "" if drained else f"`sluice drain {host}`, then "
        return f"an agent serves {host}: {first}stop it there (systemctl disable --now sluice-agent@{host})"
    if seen.facts is not None and not drained and not seen.record.written_off:
        return (
            f"{host} was not drained before its agent went: start that again, then `sluice drain {host}`; "
            f"where the machine is gone for good, `sluice write-off {host}`"
        )
    if seen.assignment.units:
        units = listed(unit.id for unit in seen.assignment.units)
        return f"{units} of {host} could not go elsewhere yet: `sluice status` tells what they wait for"
    return None


def take_off(channel: Channel, nodes: Mapping[str, int | None], what: str) -> None:
    """Delete those of a host's nodes that are there, each in this version, and say so in the trail: all of it or nothing."""
    entry = Entry(
        at=time.time(), by=cli_user(), layer=Layer.MAINTENANCE.name.lower(), what=what, outcome=Outcome.DONE
    )
    gone = [Write(path, None, version) for path, version in nodes.items() if channel.exists(path)]
    channel.multi([*gone, trail_queue.write(Role.OPERATOR, entry)])
