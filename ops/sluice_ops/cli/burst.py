"""`sluice burst` and `sluice leave`: instances come before the hand-over, and go after it."""

import time

import typer

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli.carry_out import carried_out, ended_as_by_ctrl_c, identity_of
from sluice_ops.cli.exit_codes import FAILED, OK, WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.cloud import ec2
from sluice_ops.cloud.burst_hosts import instances_needed, tiers_by_host
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import HostName
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.snapshot import the_site
from sluice_ops.planning.changes.burst import BurstError, burst_of

POLL_SECONDS = 0.5


def burst(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Launch what k workers need, wait for the hosts, hand the tier over; when that fails, terminate what was launched."""
    change, k, config = identity_of(spec), burst_of(spec), the_site().ec2
    if spec.k not in {None, k} or k < 1:
        message = f"burst takes a number of workers, 1 or more, not {spec.k}"
        raise WrongUsageError(message)
    running = sum(each.token != change for each in ec2.instances())
    try:
        with open_channel() as channel:
            count = instances_needed(channel, spec.tier or "", k, running, config)
    except BurstError as error:
        raise WrongUsageError(str(error)) from error
    if dry_run:
        if not as_json:
            typer.echo(
                f"would launch {count} x {config.instance_type} ({running} run already, {config.max_instances} are allowed)"
            )
        carried = carried_out(spec, deadline=deadline, dry_run=True, as_json=as_json)
        carried.tell(as_json=as_json, instances=count, instance_type=config.instance_type)
        raise typer.Exit(OK if carried.done else FAILED)
    ended_as_by_ctrl_c()
    until, done = time.monotonic() + deadline, False
    try:
        ids = ec2.launch(change, count)
        hosts = [ec2.host_of(each) for each in ids]
        typer.echo(f"launched {', '.join(ids)}; waiting for {', '.join(hosts)}", err=True)
        missing = _not_registered(hosts, until)
        if missing:
            why = f"no agent has registered {', '.join(missing)} within {deadline:g} s; look at the instance's console log"
            typer.echo(why, err=True)
            if as_json:
                print_json({"change": change, "kind": spec.kind, "dry_run": False, "ok": False, "error": why})
        else:
            carried = carried_out(
                spec, deadline=until - time.monotonic(), dry_run=False, as_json=as_json, change=change
            )
            done = carried.done
            carried.tell(as_json=as_json)
    finally:
        if not done:
            _take_back(change)
    raise typer.Exit(OK if done else FAILED)


def _not_registered(hosts: list[HostName], until: float) -> list[HostName]:
    """Wait for the hosts' agents; return those that have not registered by then, on the monotonic clock."""
    with open_channel() as channel:
        while (
            missing := [host for host in hosts if not channel.exists(paths.live(host))]
        ) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
    return missing


def _take_back(change: str) -> None:
    """Terminate what a burst has launched, whatever it was broken off by."""
    try:
        _terminate([instance for instance in ec2.instances() if instance.token == change])
    except (ec2.CloudError, ChannelAwayError) as error:
        typer.echo(
            f"{error}. What change {change} has launched is still there: `sluice leave` terminates it",
            err=True,
        )


def leave(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Hand over to the site's own hosts, then terminate every instance; it is done when both are."""
    carried = carried_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)
    if not carried.done:
        carried.tell(as_json=as_json)
        raise typer.Exit(FAILED)
    if dry_run and not as_json:
        carried.tell(as_json=False)
    try:
        ours = ec2.instances()
        kept = {} if dry_run else _terminate(ours)
    except (ec2.CloudError, ChannelAwayError) as error:
        if as_json:
            carried.tell(as_json=True, ok=False, error=str(error))
        raise
    gone = [each.id for each in ours if each.id not in kept]
    if as_json or not (kept or dry_run):
        carried.tell(
            as_json=as_json,
            ok=not kept,
            **({"instances": gone} if dry_run else {"terminated": gone, "kept": kept}),
        )
    if dry_run and not as_json:
        typer.echo(
            f"  then terminated, as far as no tier runs there: {', '.join(gone) or 'nothing, for no instance is there'}"
        )
    elif not ours:
        typer.echo("no instance was there", err=True)
    raise typer.Exit(FAILED if kept else OK)


def _terminate(ours: list[ec2.Instance]) -> dict[str, list[str]]:
    """Terminate those that no tier runs on, for its records would wait until it is started elsewhere; return the others, with the tiers."""
    with open_channel() as channel:
        users = tiers_by_host(channel)
    free = [each.id for each in ours if each.host not in users]
    ec2.terminate(free)
    if free:
        typer.echo(f"terminated {', '.join(free)}", err=True)
    for each in ours:
        if each.host in users:
            typer.echo(
                f"kept {each.id}: {', '.join(users[each.host])} would be interrupted; `sluice leave` hands over what has no place there",
                err=True,
            )
    return {each.id: users[each.host] for each in ours if each.host in users}
