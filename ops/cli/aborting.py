"""`sluice abort`: the end of a change whose caller has gone."""

import typer

from ops import runbook
from ops.channel.trail import me
from ops.cli.connect import open_channel
from ops.cli.ending import FAILED, OK, WrongUsageError
from ops.cli.output import print_json
from ops.model import paths
from ops.model.operation import ChangeRecord, MaintenanceLock


def abort(change: str | None, *, as_json: bool) -> None:
    """Abort a change, or the one that holds the maintenance lock."""
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
        say = None if as_json else lambda step, sentence: typer.echo(f"{step}: {sentence}")
        result = runbook.abort(channel, change, record.value.spec, me(), say)
    if as_json:
        print_json(result)
    else:
        typer.echo(result.sentence)
    raise typer.Exit(OK if result.ok else FAILED)
