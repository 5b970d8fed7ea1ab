"""Which tiers have drifted, and for how long: the controller repairs those by itself that the site file lets it. Called by `settling`.

Since when is in the tier's status, so that whoever leads next knows it.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, starvation
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.model.change import CONTROLLER, REPAIR, ChangeSpec, ChangeState, Move
from sluice_ops.model.ids import TierName
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.placement.cluster import RefusedError


def due(draft: Draft) -> list[tuple[TierName, str]]:
    """Note since when a repair would move each tier; return those of which that is long enough, and what is said of them.

    While the brake holds, or somebody changes something, time begins anew. During a change of the controller's own it goes on for the tiers
    that this does not move.
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
        (move.tier, f"{move.tier} has drifted for {lasted[move.tier]:.0f} s: it {move.why}")
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
    """Return what a repair would move now, of the tiers that nothing is being done to, nearest the pipeline's end first."""
    try:
        moves = plan(ChangeSpec(kind=REPAIR), cluster(draft)).moves
    except RefusedError:
        return []
    return [move for move in moves if health.undisturbed(draft, move.tier)]
