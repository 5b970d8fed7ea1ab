"""Shrinking in place: a tier gives up its last workers without a handover (record 0041).

The workers finish their last tasks, then their slots are taken away. The change's record names the
workers before the driver hears of it, so that the next leader continues from there. If the change
ends early, workers that are still there get tasks again (`stop_order`).
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

LEAVING_KEY = "lets_go"
"""The key in a change's receipts under which the leaving workers of a tier are."""


def leaving(draft: Draft, tier: TierName) -> list[UnitId]:
    """Name the workers of the owner that the active change takes away."""
    change = None if draft.lock is None else draft.changes.get(draft.lock.change)
    receipts = {} if change is None else change.receipts.get(tier, {})
    owner = draft.owners[tier].owner
    return [UnitId(worker) for worker in receipts.get(LEAVING_KEY, ()) if receipts["new"] == owner]


def resting(draft: Draft, tier: TierName) -> frozenset[UnitId]:
    """Return the workers that the owner reports as paused: they have finished their last task."""
    owner = draft.owners[tier].owner
    report = None if owner is None else health.report(draft, tier, owner)
    return frozenset() if report is None else report.paused_workers


def shrink(draft: Draft, identity: ChangeId, move: Move) -> Outcome | None:
    """Take a tier one step further towards fewer workers.

    None if the tier has no more workers than it keeps, or does not run.
    """
    change, tier, owning = draft.changes[identity], move.tier, draft.owner_spec(move.tier)
    recorded, failed = change.receipts.get(tier), draft.statuses[tier].state is TierState.FAILED
    if failed and recorded is not None:
        return Failed(f"{tier} {draft.statuses[tier].sentence}")
    if owning is None:
        return None
    if recorded is not None and health.state(draft, tier, Incarnation(recorded["new"])) is State.FAILED:
        return Failed(
            f"{tier}/{recorded['new']} failed while it gave up workers; "
            f"{owning.incarnation} has taken over with all workers"
        )
    if failed:  # given up before the driver heard of it: the tier stays as it is
        _take_away(draft, identity, owning, ())
        return None
    going = draft.workers(tier)[len(move.after.slots) :]
    waits = (
        (_obstacle(draft, owning, len(move.after.slots)) or _announce(draft, identity, owning, going))
        if going
        else None
    )
    if waits is None:
        _take_away(draft, identity, owning, going)
    return waits


def _announce(
    draft: Draft, identity: ChangeId, owning: IncarnationSpec, going: tuple[UnitId, ...]
) -> Outcome | None:
    """Write the leaving workers into the change, and wait for the end of their last tasks."""
    change, tier = draft.changes[identity], owning.tier
    recorded = {"old": owning.incarnation, "new": owning.incarnation, LEAVING_KEY: list(going)}
    if change.receipts.get(tier) != recorded:
        draft.update_change(identity, receipts={**change.receipts, tier: recorded})
    idle = resting(draft, tier).intersection(draft.owners[tier].paused_workers)
    waits = [worker for worker in going if worker in draft.living_workers(tier) and worker not in idle]
    return (
        Waiting(
            f"waiting until {listed(waits)} of {tier} {'has' if len(waits) == 1 else 'have'} finished the "
            "last task"
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
            f"{tier}: incarnation {owning.incarnation} goes on with {workers(len(kept))}, without "
            f"{listed(going)}"
        )
    draft.update_change(
        identity, incarnations={**draft.changes[identity].incarnations, tier: owning.incarnation}
    )


def _obstacle(draft: Draft, owning: IncarnationSpec, keeps: int) -> Outcome | None:
    """Say why the other workers could not go on alone; None if they can.

    Some of them are lost, or those of a realtime tier have too few threads.
    """
    tier, number = owning.tier, owning.incarnation
    lost = sorted({host for host in owning.placement.slots[:keeps] if draft.is_lost(host)})
    if lost:
        return Waiting(
            f"waiting for {tier}/{number} to get back the slots that it lost on {listed(lost)}, before it "
            "gives up others"
        )
    spec, report = draft.view.tiers[tier].spec, health.report(draft, tier, number)
    if spec.mode is not Mode.REALTIME or report is None or report.started_from is None:
        return None
    partitions, threads = len(report.started_from.positions), keeps * spec.quantum.threads
    if report.unread is not None or partitions > threads:
        why = (
            report.unread
            or f"it reads {partitions} partitions, but {workers(keeps)} of {spec.quantum.threads} threads "
            f"have {threads} threads"
        )
        return Failed(
            f"{tier}/{number} cannot go on with {workers(keeps)}: {why}; give it more workers: "
            f"`sluice scale {tier} K`"
        )
    return None


def receipt(draft: Draft, tier: TierName, workers: list[UnitId]) -> dict[str, Any]:
    """Return the receipt of workers that left, for the change's record.

    The other workers of a tier in micro-batches went on without a gap. The gap of a realtime tier,
    whose query starts again, is not measured.
    """
    if draft.owner_spec(tier) is None:
        return {"sentence": "the tier was stopped meanwhile"}
    report = health.report(draft, tier, draft.owners[tier].owner or Incarnation(0))
    receipts = (
        {}
        if report is None
        else {worker: report.workers[worker] for worker in workers if worker in report.workers}
    )
    described = {
        worker: f"{worker} (drained in {receipt.seconds:.1f} s, {receipt.tasks} tasks done)"
        for worker, receipt in receipts.items()
    }
    return {
        "workers": {worker: receipt.model_dump(mode="json") for worker, receipt in receipts.items()},
        "gap_seconds": None if draft.view.tiers[tier].spec.mode is Mode.REALTIME else 0.0,
        "sentence": f"gave up {', '.join(described.get(worker, worker) for worker in workers)}",
    }
