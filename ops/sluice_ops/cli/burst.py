"""`sluice burst` and `sluice leave`: instances are launched before the change of a tier, once
another person has approved that if the site asks for it, and terminated after it.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict

import typer

from sluice_ops.channel import ChannelAwayError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.carry_out import carried_out, ended_as_by_ctrl_c, identity_of
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.cloud import ec2, reaper
from sluice_ops.cloud.burst_hosts import (
    after_leave,
    comes_in_time,
    instances_needed,
    readings_of,
    tiers_by_host,
)
from sluice_ops.cloud.cost import launch_of, per_million, per_million_in_words, receipt, total
from sluice_ops.cloud.errors import CloudError
from sluice_ops.cloud.instance import Instance
from sluice_ops.cloud.launch_checks import check_launch
from sluice_ops.cloud.receipts import keep_receipts, receipts_now
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.snapshot import the_site
from sluice_ops.planning.changes.burst import BurstError, burst_of

POLL_SECONDS = 0.5


def burst(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Launch instances for k workers, wait for their hosts, and give the tier workers there.

    If another person has to approve the burst, it waits for that before it launches anything. If a
    step fails, the launched instances are terminated.
    """
    change, k, config = identity_of(spec), burst_of(spec), the_site().ec2
    if spec.k not in {None, k} or k < 1:
        message = f"burst takes a number of workers, 1 or more, not {spec.k}"
        raise WrongUsageError(message)
    running = ec2.the_cloud().instances()
    try:
        with open_channel() as channel:
            count = instances_needed(channel, spec, change, running, config)
            receipts = receipts_now(channel, running, time.time())
            in_time = comes_in_time(channel, TierName(spec.tenant), count, receipts, time.time())
            readings = readings_of(channel, TierName(spec.tenant))
    except BurstError as error:
        raise WrongUsageError(str(error)) from error
    launch = launch_of(receipts, count, config, time.time())
    spec = spec.model_copy(update={"launch": launch})
    million = per_million(launch, k, readings)
    notes = check_launch(ec2.the_cloud(), count)
    for note in (*notes, in_time.sentence, *per_million_in_words(million)):
        _tell(note)
    if dry_run:
        price = launch.per_hour
        if not as_json:
            typer.echo(
                f"would launch {count} x {' or '.join(config.instance_types)} ({len(running)} of at most "
                f"{config.max_instances} run now)" + ("" if price is None else f", for {price:g} an hour")
            )
        carried = carried_out(spec, deadline=deadline, dry_run=True, as_json=as_json)
        carried.tell(
            as_json=as_json,
            instances=count,
            instance_types=config.instance_types,
            cost_per_hour=price,
            cost_per_million=million,
            break_even=asdict(in_time),
        )
        raise typer.Exit(OK if carried.done else FAILED)
    _ask(spec, change, deadline=deadline, as_json=as_json)
    ended_as_by_ctrl_c()
    end, done = time.monotonic() + deadline, False
    try:
        launched = ec2.the_cloud().launch(change, count, _tell)
        with open_channel() as channel:
            keep_receipts(channel, [*running, *launched], time.time())
        hosts = [instance.host for instance in launched]
        _tell(
            f"launched {', '.join(map(str, launched))}; waiting for {', '.join(hosts)}"
            if launched
            else "launched nothing: the running instances have room for the workers"
        )
        missing = _not_registered(hosts, end)
        if missing:
            reason = (
                f"{', '.join(missing)} did not register within {deadline:g} s; "
                "read the console log of the instance in EC2"
            )
            typer.echo(reason, err=True)
            if as_json:
                print_json(
                    {"change": change, "kind": spec.kind, "dry_run": False, "ok": False, "error": reason}
                )
        else:
            carried = carried_out(
                spec, deadline=end - time.monotonic(), dry_run=False, as_json=as_json, change=change
            )
            done = carried.done
            carried.tell(as_json=as_json)
    finally:
        if not done:
            _terminate_launched(change)
    raise typer.Exit(OK if done else FAILED)


def _ask(spec: ChangeSpec, change: str, *, deadline: float, as_json: bool) -> None:
    """Return once instances may be launched; exit if another person refused, or nobody answered."""
    asked = carried_out(
        spec, deadline=deadline, dry_run=False, as_json=as_json, change=change, steps=(Step.APPROVAL,)
    )
    if not asked.done:
        asked.tell(as_json=as_json)
        _tell("no instance was launched")
        raise typer.Exit(FAILED)


def _tell(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _not_registered(hosts: list[HostName], end: float) -> list[HostName]:
    """Wait for the hosts' agents until `end` (monotonic clock); return the hosts without an agent
    then.
    """
    with open_channel() as channel:
        while (
            missing := [host for host in hosts if not channel.exists(paths.live(host))]
        ) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
    return missing


def _terminate_launched(change: str) -> None:
    """Terminate the instances that a failed or interrupted burst launched."""
    try:
        running = ec2.the_cloud().instances()
        own = [instance for instance in running if instance.token == change]
        with open_channel() as channel:
            users = tiers_by_host(channel)
        free = [each for each in own if each.host not in users]
        _terminate(free, {each: users[each.host] for each in own if each.host in users}, running)
    except (CloudError, ChannelAwayError) as error:
        typer.echo(
            f"{error}. The instances of change {change} may still run. Terminate them: `sluice leave`",
            err=True,
        )


def leave(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Take tiers off EC2, terminate the instances without units, and retire the hosts."""
    carried = carried_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)
    if not carried.done:
        carried.tell(as_json=as_json)
        raise typer.Exit(FAILED)
    if dry_run and not as_json:
        carried.tell(as_json=False)
    try:
        running = ec2.the_cloud().instances()
        with open_channel() as channel:
            free, users = after_leave(channel, spec, running, time.time())
        if dry_run:
            # Tiers still run there; the plan tells which of them leave.
            free, users = (running if spec.tier is None else []), {}
        else:
            _terminate(free, users, running)
        retired = [] if dry_run else _retire(free)
    except (CloudError, ChannelAwayError) as error:
        if as_json:
            carried.tell(as_json=True, ok=False, error=str(error))
        raise
    terminated, kept = [each.id for each in free], {each.id: tiers for each, tiers in users.items()}
    if as_json or not (kept or dry_run):
        carried.tell(
            as_json=as_json,
            ok=not kept,
            **(
                {"instances": terminated}
                if dry_run
                else {
                    "terminated": terminated,
                    "kept": kept,
                    "retired": retired,
                    "cost": total(free, the_site().ec2, time.time()),
                }
            ),
        )
    if dry_run and not as_json:
        ended = "the instances without units" if spec.tier is not None else ", ".join(terminated)
        typer.echo(f"  then it would terminate, unless a tier runs there: {ended or 'no instance runs'}")
    elif not running:
        typer.echo("no instance runs", err=True)
    raise typer.Exit(FAILED if kept else OK)


def _retire(ours: list[Instance]) -> list[HostName]:
    """Retire the hosts of ended instances, also of those that are just ending; return the hosts."""
    config, now = the_site().ec2, time.time()
    receipts = {each.host: receipt(each, config, now) for each in ours}
    with open_channel() as channel:
        retired = reaper.retire_soon(channel, ec2.the_cloud(), cli_user(), receipts)
    if retired:
        _tell(f"retired {', '.join(retired)}")
    return retired


def _terminate(free: list[Instance], kept: Mapping[Instance, list[str]], running: list[Instance]) -> None:
    """Terminate the instances `free`, and name those that stay; `running` are all instances."""
    ids = [each.id for each in free]
    with open_channel() as channel:
        ec2.the_cloud().terminate(ids)
        keep_receipts(channel, running, time.time(), ids)
    if free:
        _tell(f"terminated {', '.join(ids)}")
    config, now = the_site().ec2, time.time()
    for each in free:
        _tell(receipt(each, config, now))
    for each, tiers in kept.items():
        typer.echo(
            f"kept {each.id}: {', '.join(tiers)} still runs there. Move the tier and terminate: "
            "`sluice leave`",
            err=True,
        )
