"""Changes that wait for another person: the only place where a change is held back for approval.

`preflight` asks here before every change begins, so no requester can leave the approval out. A
burst asks here before its instances are launched, with the step `approval`.
"""

from math import inf

from sluice_ops.controller.outcome import Failed, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.approval import Asked, person_of
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.planning.approval import Facts, beyond, reasons


def waiting(draft: Draft, identity: ChangeId) -> ChangeRecord | None:
    """Return the record of a change that waits for approval; None if it does not wait."""
    record = draft.changes.get(identity)
    return record if record is not None and record.state is ChangeState.WAITING else None


def answered(draft: Draft, change: ChangeRecord) -> Waiting | Failed | None:
    """Read the answer to a waiting change; None: it is approved, and may begin."""
    asked = _asked(change)
    if asked.approved_by:
        return None
    answer = draft.view.answers.get(change.id)
    if answer is None and draft.age(change.started_at) > asked.within_seconds:
        return Failed(
            f"nobody approved it within {asked.limit}, so it ended as refused, and "
            f"{asked.nothing} ({asked.why}); ask again, and tell the other person"
        )
    if answer is None:
        return Waiting(sentence(change))
    if not answer.approved:
        return Failed(f"{answer.by} refused it, and {asked.nothing}: {answer.why}")
    if asked.person and person_of(answer.by) == asked.person:
        return Failed(
            f"{answer.by} asked for the change and approved it, so it ended as refused, and "
            f"{asked.nothing}; another person has to approve it: ask again"
        )
    waited = draft.age(change.started_at)
    approved = asked.model_copy(update={"approved_by": answer.by, "waited_seconds": waited})
    draft.update_change(change.id, asked=approved)
    return None


def sentence(change: ChangeRecord) -> str:
    """Say what a change waits for, and how another person answers."""
    asked = _asked(change)
    return (
        f"waits for the approval of another person: {asked.why}. To approve: `sluice approve {change.id}`; "
        f'to refuse: `sluice approve {change.id} --refuse --why "…"`. Without an answer within '
        f"{asked.limit}, it ends as refused"
    )


def asks(draft: Draft, operation: Operation, facts: Facts, does: str) -> Asked | None:
    """Return what a planned change has to ask; None if it may begin without approval.

    `does` describes the plan. The controller's own changes repair the pipeline and settle numbers
    that somebody was allowed to set, so they never ask.
    """
    rule = draft.rules.approval
    why = {} if operation.by == CONTROLLER else reasons(facts, rule)
    if rule is None or not why:
        return None
    return Asked(
        reasons=why,
        plan=does,
        tiers=facts.tiers,
        hosts=facts.hosts,
        person=operation.person or person_of(operation.by),
        before_launch=operation.step is Step.APPROVAL,
        within_seconds=rule.within_seconds,
    )


def outgrown(change: ChangeRecord, wanted: Asked | None) -> Failed | None:
    """Refuse an approved change whose plan has grown since; None if the approval covers it."""
    asked = _asked(change)
    if wanted is None:
        return None
    more = beyond(_facts(asked), _facts(wanted))
    new = "; ".join(why for key, why in wanted.reasons.items() if key not in asked.reasons)
    grown = "; ".join(part for part in (more and f"it would also touch {more}", new) if part)
    return (
        Failed(
            f"the plan has grown since {asked.approved_by} approved it: {grown}; nothing was changed; "
            "ask again"
        )
        if grown
        else None
    )


def extra_seconds(draft: Draft, operation: Operation) -> float:
    """Return the seconds by which approval extends a step's deadline; infinite while it is open.

    Only the step that asked has waited: later steps are posted with their own deadlines.
    """
    change = draft.changes.get(operation.change)
    if change is None or change.asked is None:
        return 0.0
    if operation.step is not (Step.APPROVAL if change.asked.before_launch else Step.PREFLIGHT):
        return 0.0
    is_open = change.state is ChangeState.WAITING and not change.asked.approved_by
    return inf if is_open else change.asked.waited_seconds


def _asked(change: ChangeRecord) -> Asked:
    if change.asked is None:
        message = f"change {change.id} waits for approval and has not asked"
        raise ValueError(message)
    return change.asked


def _facts(asked: Asked) -> Facts:
    return Facts((), asked.tiers, asked.hosts, 0.0)
