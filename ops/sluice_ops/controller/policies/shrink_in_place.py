"""A tier lets its last workers go where it runs: they do their last tasks, then their slots are taken away (decision record 0041).

Who goes a change says in its record, before anybody is told. So whoever leads next goes on from there; and once the change has ended,
those that are still there are woken, since nobody wants them to rest any more (`order`).
"""

from typing import Any

from sluice_ops.controller.outcome import Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.model.change import Move
from sluice_ops.model.ids import ChangeId, Incarnation, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, State
from sluice_ops.model.status import TierState
from sluice_ops.model.tier import Mode
from sluice_ops.model.wording import listed, workers

LETS_GO = "lets_go"
"""The key of a change's receipts under which the workers are that a tier lets go."""


def leaving(draft: Draft, tier: TierName) -> list[UnitId]:
    """Name the workers of the owner that the change under way takes away."""
    change = None if draft.lock is None else draft.changes.get(draft.lock.change)
    said = {} if change is None else change.receipts.get(tier, {})
    return [UnitId(worker) for worker in said.get(LETS_GO, ()) if said["new"] == draft.owners[tier].owner]


def at_rest(draft: Draft, tier: TierName) -> frozenset[UnitId]:
    """Return the workers that have done their last task, as the owner says."""
    owner = draft.owners[tier].owner
    said = None if owner is None else health.report(draft, tier, owner)
    return frozenset() if said is None else said.paused_workers


def let_go(draft: Draft, identity: ChangeId, move: Move) -> Outcome | None:
    """Take a tier one step further towards fewer workers; None when it has no more than it is to keep, or does not run."""
    change, tier, owning = draft.changes[identity], move.tier, draft.owner_spec(move.tier)
    told, failed = change.receipts.get(tier), draft.statuses[tier].state is TierState.FAILED
    if failed and told is not None:
        return Failed(f"{tier} {draft.statuses[tier].sentence}")
    if owning is None:
        return None
    if told is not None and health.state(draft, tier, Incarnation(told["new"])) is State.FAILED:
        return Failed(
            f"{tier}/{told['new']} failed while it let workers go, and {owning.incarnation} has taken over with all of its own"
        )
    if failed:  # it was given up before anybody was told, and is left as it is
        _take_away(draft, identity, owning, ())
        return None
    going = draft.workers(tier)[len(move.after.slots) :]
    waits = (
        (_held_up(draft, owning, len(move.after.slots)) or _tell(draft, identity, owning, going))
        if going
        else None
    )
    if waits is None:
        _take_away(draft, identity, owning, going)
    return waits


def _tell(
    draft: Draft, identity: ChangeId, owning: IncarnationSpec, going: tuple[UnitId, ...]
) -> Outcome | None:
    """Say who goes, and wait until they have done their last tasks."""
    change, tier = draft.changes[identity], owning.tier
    told = {"old": owning.incarnation, "new": owning.incarnation, LETS_GO: list(going)}
    if change.receipts.get(tier) != told:
        draft.update_change(identity, receipts={**change.receipts, tier: told})
    rested = at_rest(draft, tier).intersection(draft.owners[tier].paused_workers)
    waits = [worker for worker in going if worker in draft.living_workers(tier) and worker not in rested]
    return (
        Waiting(
            f"waiting until {listed(waits)} of {tier} {'has' if len(waits) == 1 else 'have'} no task any more"
        )
        if waits
        else None
    )


def _take_away(draft: Draft, identity: ChangeId, owning: IncarnationSpec, going: tuple[UnitId, ...]) -> None:
    tier, slots = owning.tier, owning.placement.slots
    if going:
        kept = slots[: len(slots) - len(going)]
        draft.move_slots(tier, owning.incarnation, kept)
        draft.log(
            f"{tier}: incarnation {owning.incarnation} goes on with {workers(len(kept))}, and without {listed(going)}"
        )
    draft.update_change(
        identity, incarnations={**draft.changes[identity].incarnations, tier: owning.incarnation}
    )


def _held_up(draft: Draft, owning: IncarnationSpec, keeps: int) -> Outcome | None:
    """Say why the others could not go on alone: some of them are lost, or a realtime tier's have too few threads."""
    tier, number = owning.tier, owning.incarnation
    lost = sorted({host for host in owning.placement.slots[:keeps] if draft.is_lost(host)})
    if lost:
        return Waiting(
            f"waiting for {tier}/{number} to have the slots that it lost on {listed(lost)}, before it lets others go"
        )
    spec, said = draft.view.tiers[tier].spec, health.report(draft, tier, number)
    if spec.mode is not Mode.REALTIME or said is None or said.started_from is None:
        return None
    partitions, threads = len(said.started_from.positions), keeps * spec.quantum.threads
    if said.unread is not None or partitions > threads:
        why = (
            said.unread
            or f"it reads {partitions} partitions, and {workers(keeps)} of {spec.quantum.threads} threads have {threads}"
        )
        return Failed(
            f"{tier}/{number} cannot go on with {workers(keeps)}: {why}; `sluice scale {tier}` to more of them"
        )
    return None


def receipt(draft: Draft, tier: TierName, workers: list[UnitId]) -> dict[str, Any]:
    """Return what there is to say, in a change's receipts, of workers that a tier has let go.

    The others of a tier in micro-batches have gone on, without a gap; nobody measures the one of a realtime tier that begins again.
    """
    if draft.owner_spec(tier) is None:
        return {"sentence": "was stopped meanwhile"}
    said = health.report(draft, tier, draft.owners[tier].owner or Incarnation(0))
    receipts = (
        {} if said is None else {worker: said.workers[worker] for worker in workers if worker in said.workers}
    )
    each = {
        worker: f"{worker} (drained in {told.seconds:.1f} s, {told.tasks} tasks done)"
        for worker, told in receipts.items()
    }
    return {
        "workers": {worker: told.model_dump(mode="json") for worker, told in receipts.items()},
        "gap_seconds": None if draft.view.tiers[tier].spec.mode is Mode.REALTIME else 0.0,
        "sentence": f"let go {', '.join(each.get(worker, worker) for worker in workers)}",
    }
