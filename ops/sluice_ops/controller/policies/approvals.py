"""Changes that wait for another person: the only place where a change is held back for approval.

`preflight` asks here before every change begins, so no requester can leave the approval out. A
burst asks here before its instances are launched, with the step `approval`.
"""

from math import inf

from sluice_ops.controller.outcome import Failed, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.approval import Asked, person_of
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeSpec, ChangeState, Operation, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.wording import listed
from sluice_ops.planning.approval import Facts, beyond, reasons
from sluice_ops.planning.changes.kinds import KINDS


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
    that somebody was allowed to set, so they never ask. An answer to one change of a run holds for
    all: what the others ask is approved already.
    """
    rule, run = draft.rules.approval, operation.spec.part_of
    why = {} if operation.by == CONTROLLER else reasons(facts, rule)
    if rule is None or not why or _goes_back(draft, operation.spec):
        return None
    every = () if run is None else (run.hosts or run.tiers)
    asked = Asked(
        reasons=why,
        plan=f"{does}; the answer holds for the whole run: {listed(every)}" if every else does,
        tiers=facts.tiers,
        hosts=facts.hosts,
        person=operation.person or person_of(operation.by),
        before_launch=operation.step is Step.APPROVAL,
        within_seconds=rule.within_seconds,
    )
    approved = (change.asked for change in _of_run(draft, operation.spec) if change.asked is not None)
    by = next((earlier.approved_by for earlier in approved if _covers(earlier, asked)), "")
    return asked.model_copy(update={"approved_by": by})


def _of_run(draft: Draft, spec: ChangeSpec) -> list[ChangeRecord]:
    """Return the known changes of the run to which a change belongs."""
    run = None if spec.part_of is None else spec.part_of.run
    return [
        change
        for change in draft.changes.values()
        if run is not None and change.spec.part_of is not None and change.spec.part_of.run == run
    ]


def _goes_back(draft: Draft, spec: ChangeSpec) -> bool:
    """Tell whether a change takes back what its run did to its tiers, which needs no approval."""
    specs = [tier.spec for tier in draft.view.tiers.values()]
    ended = (change.spec for change in _of_run(draft, spec) if change.state is ChangeState.DONE)
    done = {tier for each in ended for tier in KINDS[each.kind].whole_tiers(each, specs)}
    return bool(spec.named_tiers) and done.issuperset(spec.named_tiers)


def _covers(earlier: Asked, asked: Asked) -> bool:
    """Tell whether the approval of an earlier change of a run holds for another one.

    The tiers that a batch of hosts moves follow from its hosts.
    """
    wanted = asked.model_copy(update={"tiers": ()}) if asked.hosts else asked
    is_another = bool(earlier.approved_by) and person_of(earlier.approved_by) != asked.person
    return is_another and not _growth(earlier, wanted)


def outgrown(change: ChangeRecord, wanted: Asked | None) -> Failed | None:
    """Refuse an approved change whose plan has grown since; None if the approval covers it."""
    asked = _asked(change)
    grown = "" if wanted is None else _growth(asked, wanted)
    return (
        Failed(
            f"the plan has grown since {asked.approved_by} approved it: {grown}; nothing was changed; "
            "ask again"
        )
        if grown
        else None
    )


def _growth(asked: Asked, wanted: Asked) -> str:
    """Return what a change asks now that was not asked before; empty: nothing."""
    more = beyond(_facts(asked), _facts(wanted))
    new = "; ".join(why for key, why in wanted.reasons.items() if key not in asked.reasons)
    return "; ".join(part for part in (more and f"it would also touch {more}", new) if part)


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
