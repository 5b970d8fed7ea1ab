"""The step canary: a worker on each rebooted host processes records before the host returns.

The worker belongs to the next incarnation of a tier. This incarnation is warmed up, and dropped
once its workers have processed records: no tier is handed over (decision 102).
"""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import burst_readiness, health
from sluice_ops.controller.policies.batch import awaited
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.steps import hosts
from sluice_ops.controller.steps.handover import why_dropped
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, Operation, WorkerMove
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import Phase, State
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds.canary import no_worker_to, workers_to

_AT_WORK = frozenset({State.READY, State.RUNNING})
"""The states in which the workers of an incarnation have tasks: after its warm-up, or as owner."""


def canary(draft: Draft, operation: Operation) -> Outcome:
    """Prove the hosts, as many at once as one tier has workers for, until none is left."""
    sound = hosts.health(draft, operation)
    if not isinstance(sound, Done):
        return sound
    change = draft.changes[operation.change]
    for tier, number in change.canaries.items():
        obstacle = _obstacle(draft, change, tier, Incarnation(number))
        if isinstance(obstacle, Failed):
            proofs = burst_readiness.proofs(draft, change, tier, Incarnation(number))
            draft.update_change(change.id, proofs={**change.proofs, **proofs})
        if obstacle is not None:
            return obstacle
        _note_proofs(draft, change, tier, Incarnation(number))
    change = draft.changes[operation.change]
    left = [host for host in change.spec.named_hosts if host not in change.proofs]
    return _begin(draft, change, left) if left else Done("; ".join(change.proofs.values()))


def _obstacle(draft: Draft, change: ChangeRecord, tier: TierName, number: Incarnation) -> Outcome | None:
    """Return what the workers of an incarnation have still to do; None if they have proved hosts.

    None, too, if the incarnation ended without a fault of its own: another one follows.
    """
    if number not in {draft.owners[tier].owner, draft.owners[tier].next}:
        dropped = why_dropped(draft, tier, number, once=False)
        return None if dropped is None else Failed(dropped)
    state = health.state(draft, tier, number)
    if state not in _AT_WORK:
        return Waiting(f"waiting for the canary {tier}/{number} to be ready (it is {state})")
    return burst_readiness.why_not_ready(draft, change, tier, number)


def _note_proofs(draft: Draft, change: ChangeRecord, tier: TierName, number: Incarnation) -> None:
    """Write down which hosts an incarnation has proved, and drop it.

    An incarnation that has taken over stays, because the owner before it died. A slot that was lost
    in between has proved nothing.
    """
    record = draft.owners[tier]
    proofs = {}
    if number in {record.owner, record.next}:
        slots = draft.incarnations[tier][number].placement.slots
        proofs = {
            host: f"{host}'s canary {tier}/{number} is ready; its driver's older version counts no records"
            for host in change.spec.named_hosts
            if host in slots
        } | burst_readiness.proofs(draft, change, tier, number)
    if number == record.next:
        draft.drop_next(tier)
        draft.log(f"{tier}: the canary incarnation {number} is dropped, {record.owner} goes on")
    draft.update_change(change.id, canaries={}, proofs={**change.proofs, **proofs})


def _begin(draft: Draft, change: ChangeRecord, left: list[HostName]) -> Outcome:
    """Start the next incarnation of a tier with workers on some of the hosts that are left."""
    now = cluster_of_draft(draft)
    after = now
    for host in left:
        after = after.with_state(host, HostState.UP)
    moving = workers_to(left, after, short=True)
    if moving:
        return _start(draft, change, moving)
    if now.returning:
        return Waiting(f"{awaited(now)}, for a canary on {listed(left)}")
    without = {host: f"{host} has no canary, because {no_worker_to(host)}" for host in left}
    draft.update_change(change.id, proofs={**change.proofs, **without})
    return Done("; ".join({**change.proofs, **without}.values()))


def _start(draft: Draft, change: ChangeRecord, moving: tuple[WorkerMove, ...]) -> Waiting:
    """Start the incarnation beside the owner, once the owner runs."""
    tier, to = moving[0].tier, {move.worker: move.to for move in moving}
    record, owning = draft.owners[tier], draft.owner_spec(tier)
    if owning is None or not health.confirmed(draft, tier) or record.next is not None:
        return Waiting(f"waiting for {tier} to run, for a canary on {listed(to.values())}")
    slots = tuple(to.get(worker, host) for worker, host in enumerate(owning.placement.slots))
    placement = owning.placement.model_copy(update={"slots": slots})
    number = draft.begin(tier, placement, f"canary {' '.join(to.values())}")
    draft.update_owner(tier, next=number, phase=Phase.PREPARE)
    draft.update_change(change.id, canaries={tier: number})
    draft.log(f"{tier}: incarnation {number} is prepared as a canary, workers on {listed(slots)}")
    return Waiting(f"waiting for the canary {tier}/{number} to be ready")
