"""Which tiers have drifted for so long that the controller repairs them, if the site file lets it.

The beginning of a drift is in the tier's status, so that the next leader knows it. Called by
`settling`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, starvation
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.change import OWN, REPAIR, ChangeSpec, ChangeState, Move
from sluice_ops.model.ids import TierName
from sluice_ops.model.repair import Repair
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.placement.cluster import RefusedError

HOUR = 3600.0


def tiers_to_repair(draft: Draft) -> list[tuple[TierName, str]]:
    """Note when each tier's drift began; return the tiers to repair, each with the reason.

    While the brake holds or a person's change is active, the time starts again. During a change of
    the controller, it runs on for tiers that this change does not move.
    """
    repair = draft.rules.repair
    active = [change for change in draft.changes.values() if change.state is ChangeState.ACTIVE]
    if repair is None or draft.braked or any(change.by not in OWN for change in active):
        return []
    before = {} if draft.view.status is None else draft.view.status.tiers
    if active:
        moving = {move.tier for change in active for move in change.plan.moves}
        for name, status in before.items():
            if name not in moving:
                _note(draft, name, status.drifted_since, status.drift)
        return []
    moves, unrepairable = _repairs(draft)
    for name, drift in unrepairable.items():
        _note(draft, name, None, drift)
    closed, due = _closed(draft, repair), list[tuple[TierName, str]]()
    for move in moves:
        noted = before.get(move.tier)
        since = draft.now if noted is None or noted.drifted_since is None else noted.drifted_since
        lasted = draft.age(since)
        if move.tier in draft.starved:
            _note(draft, move.tier, since, None)
            is_due = starvation.is_due(draft, move.tier, lasted, repair.after)
        else:
            when = closed or f"after {repair.after:g} s of drift"
            _note(draft, move.tier, since, f"{move.why}; the controller moves it {when}")
            is_due = closed is None and lasted >= repair.after
        if is_due:
            due.append((move.tier, f"{move.tier} has drifted for {lasted:.0f} s: the tier {move.why}"))
    return due


def _closed(draft: Draft, repair: Repair) -> str | None:
    """Return when the next repair may begin, if none may now."""
    opens = None if repair.window is None else repair.window.opens(draft.now)
    if opens is not None:
        time = datetime.fromtimestamp(opens, UTC).strftime("%Y-%m-%d %H:%M")
        return f"from {time} UTC on, in the window of the site file"
    begun = sum(
        change.spec.kind == REPAIR
        and change.by in OWN
        and not change.id.startswith(starvation.change_prefix(change.spec.tier or TierName("")))
        and draft.age(change.started_at) < HOUR
        for change in draft.changes.values()
    )
    if begun < repair.changes_per_hour:
        return None
    return f"later: {begun} repairs have begun within an hour, as many as changes_per_hour allows"


def _note(draft: Draft, name: TierName, since: float | None, drift: str | None) -> None:
    if name in draft.statuses:
        changed = {"drifted_since": since, "drift": drift}
        draft.statuses[name] = draft.statuses[name].model_copy(update=changed)


def _repairs(draft: Draft) -> tuple[list[Move], Mapping[TierName, str]]:
    """Return the moves of a repair, nearest the end first, and the drift that cannot be repaired.

    Tiers that are being changed are left out.
    """
    try:
        planned = plan(ChangeSpec(kind=REPAIR), cluster_of_draft(draft))
    except RefusedError:
        return [], {}
    moves = [move for move in planned.moves if health.undisturbed(draft, move.tier)]
    moving = {move.tier for move in planned.moves}
    unrepairable = {
        name: note.removeprefix(f"{name} ")
        for name in draft.view.tiers
        if name not in moving and health.undisturbed(draft, name)
        for note in planned.notes
        if note.startswith(f"{name} ")
    }
    return moves, unrepairable
