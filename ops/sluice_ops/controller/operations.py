"""Operations: each pass takes every posted step as far as possible.

The step's journal and its result are written to the channel. Start with `advance`. A step gets its
result exactly once.
"""

from collections.abc import Callable

from sluice_ops.controller.outcome import Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import approvals, settling
from sluice_ops.controller.steps.abort import abort, undo
from sluice_ops.controller.steps.canary import canary
from sluice_ops.controller.steps.decommission import decommission
from sluice_ops.controller.steps.game_day import inject, judge_fault
from sluice_ops.controller.steps.handover import cut, prepare
from sluice_ops.controller.steps.hosts import cordon, health, reboot, return_host, write_off
from sluice_ops.controller.steps.pausing import pause_or_resume
from sluice_ops.controller.steps.preflight import approval, preflight
from sluice_ops.controller.steps.release import release
from sluice_ops.controller.steps.trial import trial
from sluice_ops.controller.steps.verify import verify
from sluice_ops.model.change import (
    BEFORE_BEGIN,
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
    Step.APPROVAL: approval,
    Step.PREFLIGHT: preflight,
    Step.CORDON: cordon,
    Step.PREPARE: prepare,
    Step.CUT: cut,
    Step.VERIFY: verify,
    Step.TRIAL: trial,
    Step.RELEASE: release,
    Step.REBOOT: reboot,
    Step.HEALTH: health,
    Step.CANARY: canary,
    Step.RETURN: return_host,
    Step.PAUSE: pause_or_resume,
    Step.RESUME: pause_or_resume,
    Step.WRITE_OFF: write_off,
    Step.DECOMMISSION: decommission,
    Step.INJECT: inject,
    Step.JUDGE: judge_fault,
    Step.ABORT: abort,
}
ABANDONED_SECONDS = 3600.0
"""How long a change may be without a posted step before the controller aborts it.

This leaves time for a person's approval. A runbook that was abandoned must not hold the maintenance
lock for ever. The deadline of the change may end it earlier.
"""


def advance(draft: Draft) -> list[str]:
    """Take every open operation one step further, aborts first; return what they wait for."""
    waits: list[str] = []
    _fail_unreadable(draft)
    opened = [seen.operation for seen in draft.view.operations.values()]
    for operation in sorted(
        opened, key=lambda operation: (operation.step is not Step.ABORT, -draft.age(operation.posted_at))
    ):
        if operation.id in draft.results:
            continue
        first_event = len(draft.events)
        outcome = _outcome(draft, operation)
        if draft.lock is not None and operation.change == draft.lock.change:
            first_event = 0  # earlier events of this pass concern the tiers of the active change
        for event in draft.events[first_event:]:
            draft.journal(operation.id, event)
        draft.journal(operation.id, outcome.sentence)
        if isinstance(outcome, Waiting):
            waits.append(f"{operation.change} {operation.step}: {outcome.sentence}")
            continue
        if isinstance(outcome, Failed) and approvals.waiting(draft, operation.change) is not None:
            draft.end_change(operation.change, ChangeState.ABORTED)
        draft.results[operation.id] = Result(
            ok=not isinstance(outcome, Failed),
            sentence=outcome.sentence,
            finished_at=draft.now,
            details=outcome.details,
        )
        if operation.change in draft.changes:
            took = {**draft.changes[operation.change].took, operation.step: draft.age(operation.posted_at)}
            draft.update_change(operation.change, stepped_at=draft.now, took=took)
    return [*waits, *settling.post_steps(draft), *_without_step(draft)]


def _fail_unreadable(draft: Draft) -> None:
    """Fail operations that this version cannot read, so that nobody waits until the deadline."""
    for identity in draft.view.unread_operations:
        sentence = (
            f"operation {identity} was not done: the leading controller cannot read it. "
            "A newer version of Sluice posted it, or it is damaged. "
            "Ask again when all controllers have that version"
        )
        draft.results[identity] = Result(ok=False, sentence=sentence, finished_at=draft.now)


def _without_step(draft: Draft) -> list[str]:
    """Report the changes without a posted step, and abort those that nobody continues."""
    posted = {seen.operation.change for seen in draft.view.operations.values()} | {
        own.change for own in draft.posted.values()
    }
    waits: list[str] = []
    for change in list(draft.changes.values()):
        if change.state not in {ChangeState.ACTIVE, ChangeState.WAITING} or change.id in posted:
            continue
        abandoned = _abandoned(draft, change)
        if abandoned is None:
            waits.append(f"{change.id} waits for its next step")
        else:
            if change.state is ChangeState.WAITING:
                draft.end_change(change.id, ChangeState.ABORTED)
            else:
                undo(draft, change.id, CONTROLLER)
            draft.log(f"change {change.id} is aborted and its maintenance lock released: {abandoned}")
    return waits


def _abandoned(draft: Draft, change: ChangeRecord) -> str | None:
    """Return why a change without a posted step is aborted; None while its next step may come."""
    deadline = change.deadline_seconds
    if deadline is not None and draft.age(change.started_at) > deadline + GRACE_SECONDS:
        return f"its deadline passed more than {GRACE_SECONDS:.0f} s ago, and no step is posted"
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
    seconds = operation.deadline_seconds + approvals.extra_seconds(draft, operation)
    if isinstance(outcome, Waiting) and draft.age(operation.posted_at) > seconds:
        return Failed(
            f"{operation.step} did not end within {operation.deadline_seconds:.0f} s: {outcome.sentence}"
        )
    return outcome


def _refused(draft: Draft, operation: Operation) -> str | None:
    """Say why a step cannot be carried out; None if it can."""
    kind = KINDS[operation.spec.kind]
    if operation.step not in (*kind.steps, Step.ABORT, *((Step.APPROVAL,) if kind.launches else ())):
        return f"{operation.spec.kind} has no step {operation.step}; its steps are {', '.join(kind.steps)}"
    if operation.step in BEFORE_BEGIN:
        return _cannot_begin(draft, operation.spec)
    return None if operation.step is Step.ABORT else _cannot_continue(draft, operation)


def _cannot_begin(draft: Draft, spec: ChangeSpec) -> str | None:
    """Say why a change cannot begin because of unreadable nodes; None if it can.

    A change cannot begin if it touches an unreadable tier, or if it names or may need a host with
    unreadable capacity.
    """
    if touched := _unread_tiers_of(draft, spec):
        return _refused_for_tiers(draft, spec, touched)
    if not draft.view.unread_hosts.keys().isdisjoint(spec.named_hosts):
        return draft.view.unread_hosts_sentence
    if KINDS[spec.kind].moves and draft.view.unread_hosts:
        return f"a {spec.kind} needs room, and the free room is unknown: {draft.view.unread_hosts_sentence}"
    return None


def _cannot_continue(draft: Draft, operation: Operation) -> str | None:
    """Say why a change cannot continue; None if it can."""
    change = draft.changes.get(operation.change)
    if change is None:
        return f"change {operation.change} has not begun; post its preflight first"
    if change.state is not ChangeState.ACTIVE:
        return f"change {operation.change} is {change.state} already; begin a new change"
    unread = sorted(name for name in draft.view.unread if _concerns(change, name))
    if unread:
        return f"{listed(unread)} can no longer be read"
    return (
        draft.view.unread_hosts_sentence
        if any(_is_on_host(change, name) for name in draft.view.unread_hosts)
        else None
    )


def _unread_tiers_of(draft: Draft, spec: ChangeSpec) -> list[str]:
    """Name the unreadable tiers that a change would affect or has to take into account."""
    if KINDS[spec.kind].moves:
        return sorted(draft.view.unread)
    left = (unit for host in draft.view.hosts for unit in draft.view.units_of_unread_tiers(host))
    named = {*spec.named_tiers, *(unit.tenant for unit in left if unit.id in spec.workers)}
    return sorted(name for name in draft.view.unread if name in named or _is_of_all(spec))


def _refused_for_tiers(draft: Draft, spec: ChangeSpec, touched: list[str]) -> str:
    """Say why a change that touches unreadable tiers cannot begin, and what is possible now."""
    if KINDS[spec.kind].moves:
        why = f"a {spec.kind} needs room, and the room of {listed(touched)} is unknown"
    else:
        why = f"this {spec.kind} concerns {listed(touched)}"
    return (
        f"{why}: {draft.view.unread_tiers_sentence}. Meanwhile you can cordon, return and write off hosts, "
        "and pause and resume other tiers by name"
    )


def _is_on_host(change: ChangeRecord, host: HostName) -> bool:
    """Tell whether a change is about a host, or places units there."""
    return host in change.spec.named_hosts or any(host in move.after.hosts for move in change.plan.moves)


def _concerns(change: ChangeRecord, tier: str) -> bool:
    """Tell whether a change affects a tier."""
    return _is_of_all(change.spec) or tier in {
        *change.spec.named_tiers,
        *change.incarnations,
        *change.canaries,
        *(move.tier for move in change.plan.moves),
    }


def _is_of_all(spec: ChangeSpec) -> bool:
    """Tell whether a change pauses or resumes all tiers."""
    return KINDS[spec.kind].is_of_all(spec)
