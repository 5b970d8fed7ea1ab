"""Which tiers have drifted for so long that the controller repairs them, if the site file lets it.

The beginning of a drift is in the tier's status, so that the next leader knows it. Called by
`settling`.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, starvation
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.change import CONTROLLER, REPAIR, ChangeSpec, ChangeState, Move
from sluice_ops.model.ids import TierName
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.placement.cluster import RefusedError


def tiers_to_repair(draft: Draft) -> list[tuple[TierName, str]]:
    """Note when each tier's drift began; return the tiers to repair, each with the reason.

    While the brake holds or a person's change is active, the time starts again. During a change of
    the controller, it runs on for tiers that this change does not move.
    """
    limit = draft.rules.repair_seconds
    active = [change for change in draft.changes.values() if change.state is ChangeState.ACTIVE]
    if limit is None or draft.braked or any(change.by != CONTROLLER for change in active):
        return []
    before = {} if draft.view.status is None else draft.view.status.tiers
    since = {
        name: status.drifted_since for name, status in before.items() if status.drifted_since is not None
    }
    if active:
        moving = {move.tier for change in active for move in change.plan.moves}
        _note(draft, {name: at for name, at in since.items() if name not in moving})
        return []
    moves = _repairs(draft)
    now = {move.tier: since.get(move.tier, draft.now) for move in moves}
    _note(draft, now)
    lasted = {name: draft.age(at) for name, at in now.items()}
    return [
        (move.tier, f"{move.tier} has drifted for {lasted[move.tier]:.0f} s: the tier {move.why}")
        for move in moves
        if (
            starvation.is_due(draft, move.tier, lasted[move.tier], limit)
            if move.tier in draft.starved
            else lasted[move.tier] >= limit
        )
    ]


def _note(draft: Draft, since: dict[TierName, float]) -> None:
    for name, at in since.items():
        if name in draft.statuses:
            draft.statuses[name] = draft.statuses[name].model_copy(update={"drifted_since": at})


def _repairs(draft: Draft) -> list[Move]:
    """Return the moves of a repair without tiers that are being changed, nearest the end first."""
    try:
        moves = plan(ChangeSpec(kind=REPAIR), cluster_of_draft(draft)).moves
    except RefusedError:
        return []
    return [move for move in moves if health.undisturbed(draft, move.tier)]
