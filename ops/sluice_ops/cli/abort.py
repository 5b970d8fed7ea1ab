"""`sluice abort`: ends a change whose caller no longer runs."""

import time

import typer

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, MaintenanceLock
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.abort_preview import preview
from sluice_ops.snapshot.view import View, read_view


def abort(change: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Abort `change`, by default the change that holds the maintenance lock; a dry run only shows
    the effect.
    """
    with open_channel() as channel:
        if change is None:
            lock = channel.read(paths.LOCK, MaintenanceLock)
            if lock is None:
                message = "no change is in progress, so there is nothing to abort"
                raise WrongUsageError(message)
            change = lock.value.change
        record = channel.read(paths.change(change), ChangeRecord)
        if record is None:
            message = f"no change is named {change!r}; `sluice changes` lists the changes"
            raise WrongUsageError(message)
        if dry_run:
            _print_preview(ChangeId(change), record.value, read_view(channel), as_json=as_json)
            return
        on_sentence = None if as_json else lambda step, sentence: typer.echo(f"{step}: {sentence}")
        result = requests.abort(channel, change, record.value.spec, cli_user(), on_sentence)
    if as_json:
        print_json(result)
    else:
        typer.echo(result.sentence)
    raise typer.Exit(OK if result.ok else FAILED)


def _print_preview(identity: ChangeId, change: ChangeRecord, view: View, *, as_json: bool) -> None:
    """Print what an abort would undo, and its predicted time."""
    active = change.state is ChangeState.ACTIVE
    undone, seconds = preview(change, view, time.time()) if active else ([], 0.0)
    if as_json:
        print_json({"dry_run": True, "change": identity, "undoes": undone, "predicted_seconds": seconds})
        return
    nothing = {
        ChangeState.ACTIVE: "nothing: every tier still has the owner that it had before",
        ChangeState.WAITING: "nothing: the change waits for approval, and would be withdrawn",
    }.get(change.state, f"nothing: the change has ended ({change.state})")
    typer.echo(f"an abort of {identity} would undo: {'; '.join(undone) or nothing}")
    if active:
        typer.echo("  it would release the maintenance lock")
        unknown = "time not predicted: no abort was measured on this platform yet"
        typer.echo(f"  {unknown if seconds is None else f'predicted: about {seconds:.0f} s in all'}")
