"""`sluice reap`: terminate orphaned EC2 instances, and retire hosts of ended ones."""

import time

import typer

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.output import print_json
from sluice_ops.cloud import ec2, reaper
from sluice_ops.operations.connect import open_channel


def reap(*, dry_run: bool, as_json: bool) -> None:
    """Look once, and print what was done or, with `dry_run`, what would be done."""
    with open_channel() as channel:
        reaped = reaper.reap(ec2.the_cloud(), channel, cli_user(), time.time(), dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "terminated": reaped.terminated, "retired": reaped.retired})
        return
    would = "would be " if dry_run else ""
    for instance, why in reaped.terminated.items():
        typer.echo(f"{would}terminated: {instance}: {why}")
    for host in reaped.retired:
        typer.echo(f"{would}retired: {host}: its instance has ended")
    if not reaped.terminated and not reaped.retired:
        typer.echo("every instance of this installation is in use, and no host of an ended instance is left")
