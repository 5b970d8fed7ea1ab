"""Other workers in place: the incarnation stays (decisions 41, 65 and 70).

A tier that gives up workers: its last workers finish their last tasks, then their slots are taken
away. The change's record names the workers before the driver hears of it, so that the next leader
continues from there. If the change ends early, workers that are still there get tasks again
(`stop_order`).

A tier that gets workers: one write adds the slots and names them in the change's record. Spark
gives the running application an executor on each new slot, and the driver reports it. That of a
realtime tier first warms the executor and plans its query anew (decision 88). If the change ends
early, the slots are taken away again.

A tier that does both releases workers first. A slot that comes back under the same name starts only
when no agent reports the old one any more.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sluice_ops.controller.outcome import Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.policies.batch import awaited
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.assignment import slot_ids, slot_number
from sluice_ops.model.change import ChangeRecord, Move
from sluice_ops.model.ids import ChangeId, Incarnation, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, Phase, State, WorkerReceipt
from sluice_ops.model.status import TierState
from sluice_ops.model.tier import Mode
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath
from sluice_ops.planning.placement.cluster import RefusedError
from sluice_ops.planning.placement.shares import Target, target
from sluice_ops.planning.shortage.in_place import Resize, difference, lost_from_burst, resized

LEAVING_KEY = "lets_go"
"""The key in a change's receipts under which the leaving workers of a tier are."""
JOINING_KEY = "joins"
"""The key in a change's receipts under which the joining workers of a tier are."""
LEFT_KEY = "let_go"
"""The key in a change's receipts under which workers are that left before others joined."""


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


def resize(draft: Draft, identity: ChangeId, move: Move) -> Outcome | None:
    """Take a tier one step further towards its new workers; None if it has them.

    Raise RefusedError if there is no room for more workers.
    """
    change, tier, owning = draft.changes[identity], move.tier, draft.owner_spec(move.tier)
    recorded, failed = change.receipts.get(tier), draft.statuses[tier].state is TierState.FAILED
    if failed and recorded is not None:
        return Failed(f"{tier} {draft.statuses[tier].sentence}")
    if owning is None:
        return None
    if failed:  # given up before the driver heard of it: the tier stays as it is
        _note_done(draft, identity, owning)
        return None
    outcome = _step(draft, identity, move, owning)
    if outcome is None:
        _note_done(draft, identity, owning)
    return outcome


def _note_done(draft: Draft, identity: ChangeId, owning: IncarnationSpec) -> None:
    done = {**draft.changes[identity].incarnations, owning.tier: owning.incarnation}
    draft.update_change(identity, incarnations=done)


def _step(draft: Draft, identity: ChangeId, move: Move, owning: IncarnationSpec) -> Outcome | None:
    """Release the last workers, then add others; None if the tier has its new workers."""
    tier, recorded = move.tier, draft.changes[identity].receipts.get(move.tier)
    if recorded is not None and JOINING_KEY in recorded:
        return _joined(draft, identity, owning, recorded)
    if recorded is not None and health.state(draft, tier, Incarnation(recorded["new"])) is State.FAILED:
        return Failed(
            f"{tier}/{recorded['new']} failed while it gave up workers; "
            f"{owning.incarnation} has taken over with all workers"
        )
    kept = _kept(draft, identity, move, owning)
    if not kept:
        return Failed(f"none of the first workers of {tier}/{owning.incarnation} can stay; try again")
    if going := draft.workers(tier)[kept:]:
        waits = _obstacle(draft, owning, kept) or _announce(draft, identity, owning, going)
        if waits is not None:
            return waits
        _take_away(draft, owning, going)
        owning = draft.incarnations[tier][owning.incarnation]
    return _add(draft, identity, move, owning)


def _kept(draft: Draft, identity: ChangeId, move: Move, owning: IncarnationSpec) -> int:
    """Return how many of the owner's first workers stay.

    Once the leaving workers are announced, they are in the change's record. Before that, the tier
    may have other workers than the plan knew.
    """
    change, slots = draft.changes[identity], owning.placement.slots
    recorded = change.receipts.get(owning.tier)
    if recorded is not None and recorded["new"] == owning.incarnation:
        return min(len(slots), slot_number(recorded[LEAVING_KEY][0]))
    if (workers := KINDS[change.spec.kind].reduced_to(change.spec)) is not None:
        return min(len(slots), workers)
    if owning.placement == move.before:
        return move.kept
    return len(_difference(draft, change, move, owning).kept.slots)


def _difference(draft: Draft, change: ChangeRecord, move: Move, owning: IncarnationSpec) -> Resize:
    """Return which workers the owner keeps and lacks after the change."""
    now = aftermath(change.spec, cluster_of_draft(draft))
    share = target(move.tier, now.rules)
    return difference(owning.placement, _aim(share, move), share, now.hosts)


def _aim(share: Target, move: Move) -> Target:
    """Return the target of a move, for which room may have been short."""
    return share.with_own(share.own - move.short)


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


def _take_away(draft: Draft, owning: IncarnationSpec, going: Collection[UnitId], why: str = "") -> None:
    """Take the slots of the last workers away."""
    kept = owning.placement.slots[: -len(going)]
    draft.move_slots(owning.tier, owning.incarnation, kept)
    draft.log(
        f"{owning.tier}: incarnation {owning.incarnation} goes on with {workers(len(kept))}, without "
        f"{listed(going)}{why}"
    )


def _joined(
    draft: Draft, identity: ChangeId, owning: IncarnationSpec, recorded: Mapping[str, Any]
) -> Outcome | None:
    """Wait until the driver reports the joining workers; None if it does."""
    tier, change = owning.tier, draft.changes[identity]
    if recorded["new"] != owning.incarnation:
        return Failed(
            f"{tier}/{recorded['new']} ended while it got workers; {owning.incarnation} has taken over"
        )
    if KINDS[change.spec.kind].launches:
        now = aftermath(change.spec, cluster_of_draft(draft))
        lost = lost_from_burst(owning.placement, target(tier, now.rules), now.hosts)
        if lost:
            return Failed(
                f"{tier} lost {workers(lost)} of its burst while they joined, because their instances are "
                f"away; it goes on without this burst; try again: `sluice burst {tier} K`"
            )
    report = health.report(draft, tier, owning.incarnation)
    at_work = {} if report is None else report.workers
    missing = [worker for worker in recorded[JOINING_KEY] if worker not in at_work or at_work[worker].paused]
    return Waiting(f"waiting until {listed(missing)} of {tier} can take tasks") if missing else None


def _add(draft: Draft, identity: ChangeId, move: Move, owning: IncarnationSpec) -> Outcome | None:
    """Add the slots that the owner lacks; None if it lacks none.

    Raise RefusedError without room.
    """
    tier, change = owning.tier, draft.changes[identity]
    now = aftermath(change.spec, cluster_of_draft(draft))
    share = target(tier, now.rules)
    aim = _aim(share, move)
    lacks = difference(owning.placement, aim, share, now.hosts)
    if not (move.joining and lacks.joining):
        return None
    if len(lacks.kept.slots) < len(owning.placement.slots):
        return Failed(f"{tier} has other workers than when the change began; try again")
    if not health.confirmed(draft, tier) or draft.owners[tier].phase is not Phase.STEADY:
        state = health.state(draft, tier, owning.incarnation)
        return Waiting(
            f"waiting for {tier}/{owning.incarnation} to run before it gets workers (it is {state})"
        )
    try:
        planned = tuple(name for name in move.after.slots[move.kept :] if name in now.hosts)
        after, _ = resized(now.tiers[tier], aim, replace(lacks, back=planned), now.hosts)
    except RefusedError:
        if now.returning:
            return Waiting(f"waiting for {awaited(now)}, for {tier}")
        raise
    added = after.slots[len(owning.placement.slots) :]
    joining = slot_ids(tier, owning.incarnation, len(after.slots))[-len(added) :]
    if (ending := _still_there(draft, joining)) is not None:
        return Waiting(f"waiting until {ending} has ended, before {tier} gets it again")
    draft.move_slots(tier, owning.incarnation, after.slots)
    recorded = {"old": owning.incarnation, "new": owning.incarnation, JOINING_KEY: [*joining]}
    left = change.receipts.get(tier, {}).get(LEAVING_KEY, ())
    if left:
        recorded[LEFT_KEY] = [*left]
    draft.update_change(identity, receipts={**change.receipts, tier: recorded})
    draft.log(f"{tier}: incarnation {owning.incarnation} gets {listed(joining)} on {listed(added)}")
    return _joined(draft, identity, draft.incarnations[tier][owning.incarnation], recorded)


def _still_there(draft: Draft, joining: Collection[UnitId]) -> str | None:
    """Name a released worker that still runs under the name of one that joins; None: none."""
    names = {*joining}
    for name, host in draft.view.hosts.items():
        for unit in () if not host.live or host.observed is None else host.observed.units:
            if unit.id in names:
                return f"{unit.id} on {name}"
    return None


def take_back(draft: Draft, identity: ChangeId) -> None:
    """Take away the workers that an aborted change has added."""
    change = draft.changes[identity]
    for tier, recorded in change.receipts.items():
        joining = recorded.get(JOINING_KEY, ())
        owning = draft.owner_spec(tier) if tier in draft.owners else None
        if not joining or owning is None or recorded["new"] != owning.incarnation:
            continue
        _take_away(draft, owning, joining, " (aborted)")


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


def receipt(draft: Draft, tier: TierName, numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the receipt of workers that left or joined; None after a handover.

    The other workers of a tier in micro-batches went on without a gap. That of a realtime tier is
    reported with the workers that join it, and is not measured where workers leave it.
    """
    if JOINING_KEY not in numbers and LEAVING_KEY not in numbers:
        return None
    if draft.owner_spec(tier) is None:
        return {"sentence": "the tier was stopped meanwhile"}
    if JOINING_KEY in numbers:
        left = f"gave up {listed(numbers[LEFT_KEY])}, then " if LEFT_KEY in numbers else ""
        return {
            "gap_seconds": _gap_of_join(draft, tier, numbers[JOINING_KEY]),
            "sentence": f"{left}got {listed(numbers[JOINING_KEY])}",
        }
    workers: list[UnitId] = numbers[LEAVING_KEY]
    receipts = _receipts(draft, tier, workers)
    described = {
        worker: f"{worker} (drained in {receipt.seconds:.1f} s, {receipt.tasks} tasks done)"
        for worker, receipt in receipts.items()
    }
    return {
        "workers": {worker: receipt.model_dump(mode="json") for worker, receipt in receipts.items()},
        "gap_seconds": None if draft.view.tiers[tier].spec.mode is Mode.REALTIME else 0.0,
        "sentence": f"gave up {', '.join(described.get(worker, worker) for worker in workers)}",
    }


def _gap_of_join(draft: Draft, tier: TierName, joining: Collection[UnitId]) -> float | None:
    """Return the gap in the output of a tier that got workers; None while it is not known."""
    if draft.view.tiers[tier].spec.mode is not Mode.REALTIME:
        return 0.0
    receipts = _receipts(draft, tier, joining)
    gaps = [receipts[worker].gap_seconds for worker in joining if worker in receipts]
    return max((gap for gap in gaps if gap is not None), default=None)


def _receipts(draft: Draft, tier: TierName, named: Collection[UnitId]) -> dict[UnitId, WorkerReceipt]:
    """Return the owner's receipts of some of its workers."""
    report = health.report(draft, tier, draft.owners[tier].owner or Incarnation(0))
    receipts = {} if report is None else report.workers
    return {worker: receipts[worker] for worker in named if worker in receipts}
