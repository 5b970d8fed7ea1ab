"""`sluice abort`: the end of a change whose caller has gone."""

from collections.abc import Mapping

import typer

from ops import runbook
from ops.channel import Read
from ops.channel.trail import me
from ops.cli.connect import open_channel
from ops.cli.ending import FAILED, OK, WrongUsageError
from ops.cli.output import print_json
from ops.model import paths
from ops.model.ids import TierName
from ops.model.incarnation import OwnerRecord
from ops.model.operation import ChangeRecord, ChangeState, MaintenanceLock


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
            would = undoes(record.value, {tier: channel.read(paths.owner(tier), OwnerRecord) for tier in record.value.incarnations})
            if as_json:
                print_json({"dry_run": True, "change": change, "undoes": would})
            else:
                typer.echo(f"would undo of {change}: {'; '.join(would) or 'nothing, it has handed over or started no tier'}")
            return
        say = None if as_json else lambda step, sentence: typer.echo(f"{step}: {sentence}")
        result = runbook.abort(channel, change, record.value.spec, me(), say)
    if as_json:
        print_json(result)
    else:
        typer.echo(result.sentence)
    raise typer.Exit(OK if result.ok else FAILED)


def undoes(change: ChangeRecord, owners: Mapping[TierName, Read[OwnerRecord] | None]) -> list[str]:
    """Say what becomes of each tier that a change has begun to move, when it is aborted now."""
    if change.state is not ChangeState.ACTIVE:
        return []
    said = []
    for tier, number in sorted(change.incarnations.items()):
        owner = owners[tier]
        if owner is not None and owner.value.next == number:
            said.append(f"{tier}: incarnation {number} is dropped, {owner.value.owner} goes on")
        elif owner is not None and owner.value.owner == number:
            said.append(f"{tier}: was handed over to incarnation {number}, which goes on")
    return said
