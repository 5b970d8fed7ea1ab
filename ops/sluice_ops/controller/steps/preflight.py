"""Preflight: plan, have the plan checked, take the maintenance lock. With dry_run, only say what would be done."""

from datetime import UTC, datetime

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.model.change import (
    CONTROLLER,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    MaintenanceLock,
    Move,
    Operation,
    Plan,
)
from sluice_ops.model.trail import what_of
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.burst import launched
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError


def preflight(draft: Draft, operation: Operation) -> Outcome:
    """Plan a change and begin it."""
    holder = _holder(draft, operation)
    if (
        not operation.dry_run
        and (held_up := _begins_otherwise(operation.spec) or _held_up(operation.spec.kind, holder))
        is not None
    ):
        return held_up
    now, spec = cluster(draft), _completed(draft, operation.spec)
    launches = operation.dry_run and KINDS[spec.kind].launches
    if launches:
        now = launched(spec, now)
    try:
        KINDS[spec.kind].refuse_late(operation.spec, draft.now)
        planned = plan(spec, now)
    except RefusedError as refused:
        return Failed(str(refused))
    wrong = check(planned, spec, now)
    if wrong:
        return Failed(f"the plan does not stand up to its check, nothing was changed: {'; '.join(wrong)}")
    if launches:
        planned = planned.model_copy(
            update={
                "unpredicted": "how long it takes before, until the agents of the instances have registered"
            }
        )
    details = {"plan": planned.model_dump(mode="json")}
    if operation.dry_run:
        return Done(
            f"would do: {describe(planned)}{'' if holder is None else f' (but now {holder})'}", details
        )
    begun = draft.changes.get(operation.change)
    if begun is not None or operation.change in draft.view.garbled:
        how = "its record cannot be read" if begun is None else f"is {begun.state}"
        return Failed(f"change {operation.change} was begun before and {how}; take another id")
    draft.changes[operation.change] = ChangeRecord(
        id=operation.change,
        spec=spec,
        plan=planned,
        state=ChangeState.ACTIVE,
        by=operation.by,
        started_at=draft.now,
        stepped_at=draft.now,
        deadline_seconds=_left(draft, operation),
    )
    draft.lock = MaintenanceLock(change=operation.change, by=operation.by, since=draft.now)
    return Done(f"planned: {describe(planned)}", details)


def _left(draft: Draft, operation: Operation) -> float | None:
    """Return how long the change may take: its first step is posted with the whole deadline, of which it may have waited for some."""
    return (
        None
        if operation.by == CONTROLLER
        else max(0.0, operation.deadline_seconds - draft.age(operation.posted_at))
    )


def _completed(draft: Draft, spec: ChangeSpec) -> ChangeSpec:
    """Fill in what the change leaves to preflight, once for all steps."""
    tier = None if spec.tier is None else draft.view.tiers.get(spec.tier)
    return KINDS[spec.kind].complete(spec, None if tier is None else tier.spec.release)


def check(planned: Plan, spec: ChangeSpec, now: Cluster) -> list[str]:
    """Have a plan looked at by the independent checker."""
    return violations(planned, spec, aftermath(spec, now))


def describe(planned: Plan) -> str:
    """Say a plan in one sentence."""
    moves = [_of_move(move) for move in planned.moves]
    if moves:
        gap = (
            f"with a gap of about {planned.predicted_gap_seconds:g} s"
            if planned.predicted_gap_seconds
            else "without a gap"
        )
        about = f"about {planned.predicted_seconds:.0f} s, " if planned.predicted_seconds else ""
        moves.append(f"{about}{gap}")
    return "; ".join((*moves, *planned.notes)) or "nothing has to be moved"


def _of_move(move: Move) -> str:
    if move.in_place:
        return f"{move.tier} lets {move.let_go} of its workers go where it runs; the others work on, on {listed(move.after.slots)}"
    return f"{move.tier} → driver on {move.after.driver}, workers on {listed(move.after.slots)}"


def _holder(draft: Draft, operation: Operation) -> str | None:
    """Name the change that has the lock; a lock whose change has ended or is unknown holds nobody up."""
    lock = draft.lock
    if lock is None or lock.change == operation.change or KINDS[operation.spec.kind].planned_only:
        return None
    change = draft.changes.get(lock.change)
    if change is None or change.state is not ChangeState.ACTIVE:
        return None
    since = datetime.fromtimestamp(lock.since, UTC).strftime("%H:%M:%S UTC")
    return f"change {lock.change} ({what_of(change.spec)}, by {lock.by}) has had the maintenance lock since {since}"


def _begins_otherwise(spec: ChangeSpec) -> Outcome | None:
    """Refuse what no step begins."""
    if not KINDS[spec.kind].planned_only:
        return None
    return Failed(
        f"a {spec.kind} has no steps: `sluice {spec.kind} {spec.tier}` says that it is wanted, and the rest follows"
    )


def _held_up(kind: str, holder: str | None) -> Outcome | None:
    """Refuse it, or have a shift wait: nobody is there at its hour to ask for it again."""
    if holder is None:
        return None
    if KINDS[kind].waits_for_lock:
        return Waiting(f"{holder}; the {kind} waits for it to end")
    return Failed(f"{holder}; wait for it to end, or abort it")
