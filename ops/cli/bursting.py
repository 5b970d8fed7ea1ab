"""`sluice burst` and `sluice leave`: instances come before the hand-over, and go after it."""

import time

import typer

from ops.channel import Channel
from ops.cli.change import carried_out, identity_of
from ops.cli.connect import open_channel
from ops.cli.ending import FAILED, OK, WrongUsageError
from ops.cli.snapshot import the_site
from ops.cloud import ec2
from ops.model import paths
from ops.model.operation import ChangeSpec
from ops.model.tier import TierSpec
from ops.planning.burst import BurstError, instances
from ops.planning.layers import burst_of

BOOT_SECONDS = 120.0
POLL_SECONDS = 0.5


def burst(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Launch what k workers need, wait for the hosts, hand the tier over; when that fails, terminate what was launched."""
    change = identity_of(spec)
    with open_channel() as channel:
        count = _instances_for(channel, spec, change)
        if dry_run:
            typer.echo(f"{count} instances would be launched, and {spec.tier} be given {spec.k} more workers on them", err=True)
            return
        ids = ec2.launch(change, count)
        hosts = [ec2.host_of(each) for each in ids]
        typer.echo(f"launched {', '.join(ids)}; waiting for {', '.join(hosts)}", err=True)
        until = time.monotonic() + min(deadline, BOOT_SECONDS)
        while (missing := [host for host in hosts if not channel.exists(paths.live(host))]) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
    done = False
    try:
        if missing:
            typer.echo(f"no agent has registered {', '.join(missing)}; look at the instance's console log", err=True)
        else:
            done = carried_out(spec, deadline=deadline, dry_run=False, as_json=as_json, change=change)
    finally:
        if not done:
            ec2.terminate(ids)
            typer.echo(f"terminated {', '.join(ids)}: the burst failed", err=True)
    raise typer.Exit(OK if done else FAILED)


def leave(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Hand over to the site's own hosts, then terminate every instance."""
    done = carried_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)
    if done and not dry_run:
        ids = [instance.id for instance in ec2.instances()]
        ec2.terminate(ids)
        typer.echo(f"terminated {', '.join(ids)}" if ids else "no instance was there", err=True)
    raise typer.Exit(OK if done else FAILED)


def _instances_for(channel: Channel, spec: ChangeSpec, change: str) -> int:
    found = channel.read(paths.tier(spec.tier or ""), TierSpec)
    if found is None:
        message = f"there is no tier {spec.tier!r}; known tiers: {', '.join(channel.children('/tiers')) or 'none is published yet'}"
        raise WrongUsageError(message)
    config = the_site().ec2
    running = [each for each in ec2.instances() if each.token != change]
    try:
        return instances(found.value, burst_of(spec), config.capacity, len(running), config.max_instances)
    except BurstError as error:
        raise WrongUsageError(str(error)) from error
