"""A tier gives up its last workers where it runs: they do their last tasks, then their slots are taken away (decision record 0041).

Whom a change takes away it says in its record, before anybody is told. So whoever leads next goes on from there; and once the change has
ended, those that are still there are woken, since nobody wants them to rest any more (`order`).
"""

from typing import Any

from ops.controller import vitals
from ops.controller.draft import Draft
from ops.controller.steps.outcome import Failed, Waiting
from ops.model.ids import ChangeId, Incarnation, TierName, UnitId
from ops.model.operation import ChangeState, Move
from ops.model.status import TierState

GIVES_UP = "gives_up"
"""The key of a change's receipts under which the workers are that a tier gives up."""


def leaving(draft: Draft, tier: TierName) -> list[UnitId]:
    """Name the workers of the owner that a change which is under way takes away."""
    owner = draft.owners[tier].owner
    found = (change.receipts.get(tier, {}) for change in draft.changes.values() if change.state is ChangeState.ACTIVE)
    return [UnitId(worker) for said in found if said.get("new") == owner for worker in said.get(GIVES_UP, ())]


def at_rest(draft: Draft, tier: TierName) -> frozenset[UnitId]:
    """Return the workers that have done their last task, as the owner says."""
    owner = draft.owners[tier].owner
    said = None if owner is None else vitals.report(draft, tier, owner)
    return frozenset() if said is None else said.paused_workers


def give_up(draft: Draft, identity: ChangeId, move: Move) -> Waiting | Failed | None:
    """Take a tier one step further towards fewer workers; None when it has no more than it is to keep."""
    change, tier = draft.changes[identity], move.tier
    if draft.statuses[tier].state is TierState.FAILED:
        return Failed(f"{tier} {draft.statuses[tier].sentence}")
    owning, record = draft.owning(tier), draft.owners[tier]
    if owning is None:
        return None
    workers, keeps = draft.workers(tier), len(move.after.slots)
    if len(workers) <= keeps:
        draft.change_of(identity, incarnations={**change.incarnations, tier: owning.incarnation})
        return None
    told = {"old": owning.incarnation, "new": owning.incarnation, GIVES_UP: list(workers[keeps:])}
    if change.receipts.get(tier) != told:
        draft.change_of(identity, receipts={**change.receipts, tier: told})
        draft.tell(f"{tier}: {', '.join(workers[keeps:])} to do the last task and be given up")
    there = at_rest(draft, tier).intersection(record.paused_workers)
    if waits := [worker for worker in workers[keeps:] if worker not in there]:
        return Waiting(f"waiting until {waits[0]} of {tier} has done its last task{', once the tier is resumed' if record.paused else ''}")
    draft.place(tier, owning.incarnation, owning.placement.model_copy(update={"slots": owning.placement.slots[:keeps]}))
    draft.change_of(identity, incarnations={**change.incarnations, tier: owning.incarnation})
    draft.tell(f"{tier}: incarnation {owning.incarnation} goes on with {keeps} of its {len(workers)} workers")
    return None


def given_up(draft: Draft, tier: TierName, workers: list[UnitId]) -> dict[str, Any]:
    """Return what there is to say, in a change's receipts, of workers that a tier has given up."""
    said = vitals.report(draft, tier, draft.owners[tier].owner or Incarnation(0))
    receipts = {} if said is None else {worker: said.workers[worker] for worker in workers if worker in said.workers}
    each = [f"{worker} (drained in {told.seconds:.1f} s, {told.tasks} tasks done)" for worker, told in receipts.items()]
    return {
        "workers": {worker: told.model_dump(mode="json") for worker, told in receipts.items()},
        "sentence": f"gave up {', '.join(each) or ', '.join(workers)}",
    }
