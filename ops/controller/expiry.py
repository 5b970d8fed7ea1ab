"""Numbers that hold for a time: when it is over, the controller takes them back by a change of its own, and posts its steps itself.

A step and the one that follows it are one write: whichever controller looks next finds the one or the other. Called by `operations`.
"""

from datetime import UTC, datetime

from ops.controller.draft import Draft
from ops.model.ids import ChangeId, OperationId, TierName
from ops.model.operation import STEPS, ChangeKind, ChangeSpec, ChangeState, Operation, Step
from ops.planning.shares import over

CONTROLLER = "the controller"
AGAIN_SECONDS = 600.0
"""Between two attempts, when one has failed: time for a host to come back, and few enough to leave the history readable."""
STEP_SECONDS = 600.0
"""How long each step may take."""


def follow(draft: Draft) -> list[str]:
    """Post the step after one that has ended, or begin a change where a number's time is over; return what has to wait."""
    for ended in draft.results:
        _go_on(draft, draft.view.operations[ended].operation)
    due = {entry.tenant: entry.until for entry in over(draft.layers, draft.now) if entry.until is not None}
    for tenant, until in due.items():
        identity = change_of(tenant, until, draft.now)
        if identity in draft.changes or draft.posted or _own_under_way(draft):
            continue
        active = [change.id for change in draft.changes.values() if change.state is ChangeState.ACTIVE]
        if active:
            return [f"the time of {tenant}'s number is over; it is taken back after {active[0]}"]
        draft.tell(f"the time of {tenant}'s number is over: change {identity} takes it back")
        _post(draft, identity, Step.PREFLIGHT, ChangeSpec(kind=ChangeKind.EXPIRE, tier=TierName(tenant), until=until))
    return []


def change_of(tenant: str, until: float, now: float) -> ChangeId:
    """Name the change that takes back what was to hold until then: one for each attempt, whoever makes it."""
    ended = datetime.fromtimestamp(until, UTC).strftime("%Y%m%d-%H%M%S")
    return ChangeId(f"expire-{tenant}-{ended}-{1 + int((now - until) // AGAIN_SECONDS)}")


def _own_under_way(draft: Draft) -> bool:
    return any(seen.operation.by == CONTROLLER for identity, seen in draft.view.operations.items() if identity not in draft.results)


def _go_on(draft: Draft, done: Operation) -> None:
    """Post what comes after a step of the controller's own: the next one, or an abort after a failure."""
    if done.by != CONTROLLER or done.step is Step.ABORT:
        return
    steps = STEPS[done.spec.kind]
    if draft.results[done.id].ok:
        if done.step is not steps[-1]:
            _post(draft, done.change, steps[steps.index(done.step) + 1], done.spec)
    elif done.change not in draft.changes or draft.changes[done.change].state is ChangeState.ACTIVE:
        _post(draft, done.change, Step.ABORT, done.spec)


def _post(draft: Draft, change: ChangeId, step: Step, spec: ChangeSpec) -> None:
    identity = OperationId(f"{change}.{step}")
    draft.posted[identity] = Operation(
        id=identity, change=change, step=step, spec=spec, by=CONTROLLER, posted_at=draft.now, deadline_seconds=STEP_SECONDS
    )
