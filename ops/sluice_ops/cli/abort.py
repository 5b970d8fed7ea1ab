"""`sluice abort`: the end of a change whose caller has gone."""

import time

import typer

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.exit_codes import FAILED, OK, WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, MaintenanceLock
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.abort_preview import preview
from sluice_ops.snapshot.view import View, look


def abort(change: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Abort a change, or the one that holds the maintenance lock; or only say what that would undo."""
    with open_channel() as channel:
        if change is None:
            lock = channel.read(paths.LOCK, MaintenanceLock)
            if lock is None:
                message = "no change is under way: there is nothing to abort"
                raise WrongUsageError(message)
            change = lock.value.change
        record = channel.read(paths.change(change), ChangeRecord)
        if record is None:
            message = f"there is no change {change!r}; `sluice operations` lists them"
            raise WrongUsageError(message)
        if dry_run:
            _tell(ChangeId(change), record.value, look(channel), as_json=as_json)
            return
        say = None if as_json else lambda step, sentence: typer.echo(f"{step}: {sentence}")
        result = requests.abort(channel, change, record.value.spec, cli_user(), say)
    if as_json:
        print_json(result)
    else:
        typer.echo(result.sentence)
    raise typer.Exit(OK if result.ok else FAILED)


def _tell(identity: ChangeId, change: ChangeRecord, view: View, *, as_json: bool) -> None:
    """Say what an abort would undo, and how long it would take as far as the last ones tell."""
    active = change.state is ChangeState.ACTIVE
    would, seconds = preview(change, view, time.time()) if active else ([], 0.0)
    if as_json:
        print_json({"dry_run": True, "change": identity, "undoes": would, "predicted_seconds": seconds})
        return
    nothing = (
        "nothing, every tier is with the owner that it had"
        if active
        else f"nothing, it has ended: it is {change.state}"
    )
    typer.echo(f"would undo of {identity}: {'; '.join(would) or nothing}")
    if active:
        typer.echo("  the maintenance lock is free then")
        known = "not predicted: how long it takes, for no abort has been timed here yet"
        typer.echo(f"  {known if seconds is None else f'predicted: about {seconds:.0f} s in all'}")
