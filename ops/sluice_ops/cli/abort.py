"""`sluice abort`: the end of a change whose caller has gone."""

import time
from collections.abc import Iterator

import typer

from sluice_ops.channel.trail_queue import me
from sluice_ops.cli.exit_codes import FAILED, OK, WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.controller.pass_state import Draft, Moment
from sluice_ops.controller.policies import rollback
from sluice_ops.controller.steps.abort import predicted, undo
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, MaintenanceLock
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.wording import listed, workers
from sluice_ops.operations import requests
from sluice_ops.operations.connect import open_channel
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.snapshot.stamps import stamps
from sluice_ops.snapshot.view import TierView, View, look


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
        result = requests.abort(channel, change, record.value.spec, me(), say)
    if as_json:
        print_json(result)
    else:
        typer.echo(result.sentence)
    raise typer.Exit(OK if result.ok else FAILED)


def _tell(identity: ChangeId, change: ChangeRecord, view: View, *, as_json: bool) -> None:
    """Say what an abort would undo, and how long it would take as far as the last ones tell."""
    active = change.state is ChangeState.ACTIVE
    would, seconds = undoes(change, view, time.time()) if active else ([], 0.0)
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


def undoes(change: ChangeRecord, view: View, now: float) -> tuple[list[str], float | None]:
    """Say what becomes of each tier and host that a change has begun to change, and how long that takes, if that is known.

    It is aborted in a draft that nobody writes.
    """
    draft = Draft(
        view,
        Moment(
            now=now,
            lost=frozenset(),
            rules=Rules(),
            known_seconds={at: max(0.0, now - at) for at in stamps(view)},
        ),
    )
    undo(draft, change.id, me())
    said = [event.removesuffix(" (aborted)") for event in draft.events]
    for name in sorted(view.tiers):
        said += _of_tier(change, view.tiers[name], draft)
    return said, predicted(draft, change)


def _of_tier(change: ChangeRecord, tier: TierView, draft: Draft) -> Iterator[str]:
    """Say of a tier what goes on, what goes back, and what has been done and stays."""
    name, owner, after = tier.spec.name, tier.owner.owner, draft.wanted[tier.spec.name]
    back = rollback.due(draft, name)
    if tier.wanted.paused and not after.paused:
        yield f"{name}: goes on"
    if woken := [worker for worker in tier.wanted.paused_workers if worker not in after.paused_workers]:
        yield f"{name}: {listed(woken)} to work again"
    fewer = next((move for move in change.plan.moves if move.tier == name and move.in_place), None)
    if fewer is None and owner is not None and change.incarnations.get(name) == owner:
        handed = f"{name}: was handed over to incarnation {owner}"
        yield (
            f"{handed}, which goes on"
            if back is None
            else f"{handed}, and goes back to {back}: a gap of about {draft.pace.gap:g} s"
        )
    if fewer is not None and name in change.receipts and owner in tier.incarnations:
        gone = name in change.incarnations
        yield f"{name}: {workers(fewer.let_go)} {'stay away, they have gone' if gone else 'that were to go work again'}"
