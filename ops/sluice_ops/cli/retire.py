"""`sluice retire`: removes an empty host, whose agent is stopped, from the channel for good."""

import typer

from sluice_ops.channel import ConflictError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.exit_codes import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import listed
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.retiring import nodes_of, take_off
from sluice_ops.snapshot.view import View, read_view


def retire(host: HostName, *, dry_run: bool, as_json: bool) -> None:
    """Check that the host is unused, and delete its nodes, including its agent's registered
    credential.
    """
    with open_channel() as channel:
        view = read_view(channel)
        why = refusal(view, host)
        if why is not None:
            raise WrongUsageError(why)
        if dry_run:
            print_json({"dry_run": True, "retires": host}) if as_json else typer.echo(
                f"would remove {host} from the channel: nothing uses it"
            )
            return
        nodes = {path: view.versions.get(path) for path in nodes_of(host)}
        try:
            take_off(channel, nodes, f"retire {host}", cli_user())
        except ConflictError as error:
            message = (
                f"{host} was not removed, because its records changed at this moment ({error}): "
                "check `sluice hosts`, then run the command again"
            )
            raise ConflictError(message) from error
    if as_json:
        print_json({"retired": host})
    else:
        typer.echo(
            f"{host} is removed from the channel, and so is its agent's credential. "
            f"Remove it from the site file too. To use the name for a new host, delete hosts/{host} below "
            "the SLUICE_HOME of that machine first."
        )


def refusal(view: View, host: HostName) -> str | None:
    """Return why a host cannot be removed and what to do first; None if it can be removed."""
    seen = view.hosts.get(host)
    if seen is None:
        return f'there is no host "{host}"; known hosts: {listed(view.hosts) or "none"}'
    changes = [
        change.id
        for change in view.changes.values()
        if change.state is ChangeState.ACTIVE and host in change.spec.named_hosts
    ]
    if changes:
        return (
            f"change {changes[0]} of {host} is in progress: wait for its end, or `sluice abort {changes[0]}`"
        )
    drained = seen.record.state is HostState.DRAINED
    if seen.live:
        first = "" if drained else f"`sluice drain {host}`, then "
        return f"an agent serves {host}: {first}stop it there (systemctl disable --now sluice-agent@{host})"
    if seen.facts is not None and not drained and not seen.record.written_off:
        return (
            f"{host} was not drained before its agent stopped: start the agent, then `sluice drain {host}`; "
            f"if the machine is gone for good, `sluice write-off {host}`"
        )
    if seen.assignment.units:
        units = listed(unit.id for unit in seen.assignment.units)
        return f"{units} of {host} could not be placed elsewhere yet: `sluice status` shows the reason"
    return None
