"""Operations: each posted step is carried out as far as it goes in this pass, journalled, and given its result once."""

from collections.abc import Callable

from sluice_ops.controller.outcome import Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import settling
from sluice_ops.controller.steps.abort import abort, undo
from sluice_ops.controller.steps.handover import cut, prepare
from sluice_ops.controller.steps.hosts import cordon, give_back, health, reboot, write_off
from sluice_ops.controller.steps.pausing import pause_or_resume
from sluice_ops.controller.steps.preflight import preflight
from sluice_ops.controller.steps.release import release
from sluice_ops.controller.steps.trial import trial
from sluice_ops.controller.steps.verify import verify
from sluice_ops.model.change import (
    CONTROLLER,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    Operation,
    Result,
    Step,
)
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import listed
from sluice_ops.operations.requests import GRACE_SECONDS
from sluice_ops.planning.changes.kinds import KINDS

_STEPS: dict[Step, Callable[[Draft, Operation], Outcome]] = {
    Step.PREFLIGHT: preflight,
    Step.CORDON: cordon,
    Step.PREPARE: prepare,
    Step.CUT: cut,
    Step.VERIFY: verify,
    Step.TRIAL: trial,
    Step.RELEASE: release,
    Step.REBOOT: reboot,
    Step.HEALTH: health,
    Step.RETURN: give_back,
    Step.PAUSE: pause_or_resume,
    Step.RESUME: pause_or_resume,
    Step.WRITE_OFF: write_off,
    Step.ABORT: abort,
}
ABANDONED_SECONDS = 3600.0
"""How long a change may be without a step, before its deadline: time for a person's approval, but a lost runbook must not lock everybody
out for ever."""


def advance(draft: Draft) -> list[str]:
    """Take every open operation one step further, aborts first; return what they wait for."""
    waits: list[str] = []
    _refuse_strange(draft)
    opened = [seen.operation for seen in draft.view.operations.values()]
    for operation in sorted(
        opened, key=lambda each: (each.step is not Step.ABORT, -draft.age(each.posted_at))
    ):
        if operation.id in draft.results:
            continue
        told = len(draft.events)
        outcome = _outcome(draft, operation)
        if draft.lock is not None and operation.change == draft.lock.change:
            told = 0  # what befell the tiers in this pass concerns whoever is changing them
        for event in draft.events[told:]:
            draft.journal(operation.id, event)
        draft.journal(operation.id, outcome.sentence)
        if isinstance(outcome, Waiting):
            waits.append(f"{operation.change} {operation.step}: {outcome.sentence}")
            continue
        draft.results[operation.id] = Result(
            ok=not isinstance(outcome, Failed),
            sentence=outcome.sentence,
            finished_at=draft.now,
            details=outcome.details,
        )
        if operation.change in draft.changes:
            took = {**draft.changes[operation.change].took, operation.step: draft.age(operation.posted_at)}
            draft.update_change(operation.change, stepped_at=draft.now, took=took)
    return [*waits, *settling.follow(draft), *_idle(draft)]


def _refuse_strange(draft: Draft) -> None:
    """Answer what this version cannot read, at once and by name: whoever waits would learn nothing until the deadline."""
    for identity in draft.view.strange:
        sentence = (
            f"the leading controller does not know operation {identity}: a newer version of Sluice has posted it, or it is damaged. "
            "Nothing was done; ask again when all controllers are of that version"
        )
        draft.results[identity] = Result(ok=False, sentence=sentence, finished_at=draft.now)


def _idle(draft: Draft) -> list[str]:
    """Look after the changes that no step is posted for: say so, and abort the ones that nobody goes on with."""
    posted = {seen.operation.change for seen in draft.view.operations.values()} | {
        own.change for own in draft.posted.values()
    }
    said: list[str] = []
    for change in list(draft.changes.values()):
        if change.state is not ChangeState.ACTIVE or change.id in posted:
            continue
        lost = _lost(draft, change)
        if lost is None:
            said.append(f"{change.id} waits for its next step")
        else:
            undo(draft, change.id, CONTROLLER)
            draft.log(f"change {change.id} is aborted: {lost}, and it held the lock")
    return said


def _lost(draft: Draft, change: ChangeRecord) -> str | None:
    """Say why nobody will go on with a change that no step is posted for; None while somebody may."""
    deadline = change.deadline_seconds
    if deadline is not None and draft.age(change.started_at) > deadline + GRACE_SECONDS:
        return f"its deadline passed {GRACE_SECONDS:.0f} s ago, no step is posted"
    return (
        f"no step was posted for {ABANDONED_SECONDS / 60:.0f} min"
        if draft.age(change.stepped_at) > ABANDONED_SECONDS
        else None
    )


def _outcome(draft: Draft, operation: Operation) -> Outcome:
    refused = _refused(draft, operation)
    if refused is not None:
        return Failed(refused)
    outcome = _STEPS[operation.step](draft, operation)
    if isinstance(outcome, Waiting) and draft.age(operation.posted_at) > operation.deadline_seconds:
        return Failed(
            f"{operation.step} was not through after {operation.deadline_seconds:.0f} s: {outcome.sentence}"
        )
    return outcome


def _refused(draft: Draft, operation: Operation) -> str | None:
    """Say why a step cannot be carried out at all."""
    if operation.step not in (*KINDS[operation.spec.kind].steps, Step.ABORT):
        return f"{operation.spec.kind} has no step {operation.step}; its steps are {', '.join(KINDS[operation.spec.kind].steps)}"
    if operation.step is Step.PREFLIGHT:
        return _cannot_begin(draft, operation.spec)
    return None if operation.step is Step.ABORT else _cannot_go_on(draft, operation)


def _cannot_begin(draft: Draft, spec: ChangeSpec) -> str | None:
    """Say why a change cannot begin for what cannot be read: a tier that it touches, or what a host has that it names or may need."""
    if touched := _touched(draft, spec):
        return _left_alone(draft, spec, touched)
    if spec.host in draft.view.unread_hosts:
        return draft.view.unknown
    if KINDS[spec.kind].moves and draft.view.unread_hosts:
        return f"a {spec.kind} takes room, and how much there is is not known: {draft.view.unknown}"
    return None


def _cannot_go_on(draft: Draft, operation: Operation) -> str | None:
    """Say why a change cannot be gone on with."""
    change = draft.changes.get(operation.change)
    if change is None:
        return f"change {operation.change} has not begun; its preflight comes first"
    if change.state is not ChangeState.ACTIVE:
        return f"change {operation.change} has ended: it is {change.state}; begin another one"
    unread = sorted(name for name in draft.view.unread if _concerns(change, name))
    if unread:
        return f"{listed(unread)} cannot be read any more"
    return draft.view.unknown if any(_is_on(change, name) for name in draft.view.unread_hosts) else None


def _touched(draft: Draft, spec: ChangeSpec) -> list[str]:
    """Name the tiers that cannot be read and that a change would do something to, or has to know of."""
    if KINDS[spec.kind].moves:
        return sorted(draft.view.unread)
    left = (unit for host in draft.view.hosts for unit in draft.view.left_on(host))
    named = {spec.tier, *(unit.tenant for unit in left if unit.id in spec.workers)}
    return sorted(name for name in draft.view.unread if name in named or _is_of_all(spec))


def _left_alone(draft: Draft, spec: ChangeSpec, touched: list[str]) -> str:
    """Say why a change that touches these tiers cannot begin, and what can."""
    if KINDS[spec.kind].moves:
        why = f"a {spec.kind} takes room, and how much of it {listed(touched)} needs is not known"
    else:
        why = f"this {spec.kind} is of {listed(touched)}"
    return f"{why}: {draft.view.left}. Hosts can be cordoned, returned and written off meanwhile, and other tiers paused and resumed by name"


def _is_on(change: ChangeRecord, host: HostName) -> bool:
    """Tell whether a change is about a host, or places something there."""
    return host == change.spec.host or any(host in move.after.hosts for move in change.plan.moves)


def _concerns(change: ChangeRecord, tier: str) -> bool:
    """Tell whether a change does something to a tier."""
    return _is_of_all(change.spec) or tier in {
        change.spec.tier,
        *change.incarnations,
        *(move.tier for move in change.plan.moves),
    }


def _is_of_all(spec: ChangeSpec) -> bool:
    """Tell whether a change is a pause or resume of all tiers."""
    return KINDS[spec.kind].is_of_all(spec)
