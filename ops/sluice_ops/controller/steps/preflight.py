"""The step preflight: plan the change, check the plan, and take the maintenance lock.

A dry run only returns the plan. For a burst, the step approval asks before instances are launched.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import approvals
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.steps import game_day
from sluice_ops.model.approval import WAITED, Asked
from sluice_ops.model.change import (
    CONTROLLER,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    MaintenanceLock,
    Move,
    Operation,
    Plan,
    Step,
)
from sluice_ops.model.rolling import NOT_BEFORE
from sluice_ops.model.scaler import asked_by_scaler
from sluice_ops.model.source import SourceKind
from sluice_ops.model.trail import what_of
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning import rolling
from sluice_ops.planning.approval import facts_of, too_expensive
from sluice_ops.planning.changes.burst import launched
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError
from sluice_ops.snapshot.view import View


class _Planned(NamedTuple):
    """A plan that may be carried out once it is approved."""

    spec: ChangeSpec
    plan: Plan
    asked: Asked | None
    """The approval that it needs, or has from an earlier change of its run; None: none."""


def approval(draft: Draft, operation: Operation) -> Outcome:
    """Ask before instances are launched, as preflight asks; a change that need not ask has no
    record yet.

    An approved change stays `waiting`, without the lock, until its preflight begins it.
    """
    waits = approvals.waiting(draft, operation.change)
    if waits is not None:
        obstacle = approvals.answered(draft, waits)
        return _approved(draft, operation) if obstacle is None else obstacle
    if (begun := _begun_before(draft, operation)) is not None:
        return begun
    planned = _planned(draft, operation, None)
    if isinstance(planned, Failed):
        return planned
    asks = _asks(draft, operation, planned)
    return asks or Done("instances may be launched: no other person has to approve this")


def _approved(draft: Draft, operation: Operation) -> Outcome:
    """Return the permission to launch. Without a further step, the change ends at its deadline."""
    asked = draft.changes[operation.change].asked
    if asked is None or not asked.approved_by:
        message = f"change {operation.change} was not approved"
        raise ValueError(message)
    seconds = operation.deadline_seconds + asked.waited_seconds
    draft.update_change(operation.change, deadline_seconds=seconds)
    return Done(f"approved by {asked.approved_by}; instances may be launched", {WAITED: asked.waited_seconds})


def preflight(draft: Draft, operation: Operation) -> Outcome:
    """Plan a change and begin it, once it is approved; with `dry_run`, only return the plan."""
    holder = _holder(draft, operation)
    waits = None if operation.dry_run else approvals.waiting(draft, operation.change)
    obstacle: Outcome | None = None if waits is None else approvals.answered(draft, waits)
    if not operation.dry_run and obstacle is None:
        obstacle = _refuse_without_steps(operation.spec) or _wait_or_refuse(
            operation, holder, approved=waits is not None
        )
    if obstacle is not None:
        return obstacle
    waits = None if waits is None else draft.changes[operation.change]  # with the answer
    planned = _planned(draft, operation, None if waits is None else waits.spec)
    if isinstance(planned, Failed):
        return planned
    if operation.dry_run:
        return _told(planned, holder)
    if waits is None:
        obstacle = _begun_before(draft, operation) or _asks(draft, operation, planned)
    else:
        obstacle = approvals.outgrown(waits, planned.asked)
    obstacle = obstacle or _too_early(draft, operation)
    return obstacle or _begun(draft, operation, planned, planned.asked if waits is None else waits.asked)


def _too_early(draft: Draft, operation: Operation) -> Waiting | Failed | None:
    """Hold back a batch of a rolling reboot until it may begin; None: it may now.

    It is refused if it cannot begin before its deadline, and if an alert is open. Its run then
    looks again, and keeps the approval.
    """
    spec, window, view = operation.spec, draft.rules.reboot_window, draft.view
    if not KINDS[spec.kind].held_back:
        return None
    opens = None if window is None else window.opens(draft.now)
    earlier_events = () if spec.part_of is None else spec.part_of.earlier_events
    held = rolling.obstacle(view.alerts, view.alert_requests, earlier_events, opens, draft.now)
    if held is None:
        return None
    if isinstance(held, rolling.Stop):
        again, why = draft.now + rolling.LOOK_SECONDS, held.sentence
    else:
        again, why = held.until, held.reason
        if again - draft.now < (_seconds_left(draft, operation) or 0.0):
            return Waiting(f"the {spec.kind} waits: {why}")
    return Failed(f"not begun: {why}; nothing was changed", {NOT_BEFORE: again})


def _begun_before(draft: Draft, operation: Operation) -> Failed | None:
    """Refuse a change that has a record already; None if it has none."""
    if operation.change not in {*draft.changes, *draft.view.unread_changes}:
        return None
    earlier = draft.changes.get(operation.change)
    how = "its record cannot be read" if earlier is None else f"is {earlier.state}"
    return Failed(f"change {operation.change} has begun before and {how}; use another id")


def _planned(draft: Draft, operation: Operation, approved: ChangeSpec | None) -> _Planned | Failed:
    """Plan a change, exactly as `approved` if it was approved; return why it is impossible."""
    now = cluster_of_draft(draft)
    spec = _completed(draft, operation.spec, now) if approved is None else approved
    launches = KINDS[spec.kind].launches and (operation.dry_run or operation.step is Step.APPROVAL)
    if approved is None and (cost := too_expensive(spec, draft.rules.approval)):
        return Failed(cost)
    if launches:
        now = launched(spec, now)
    try:
        KINDS[spec.kind].refuse_late(operation.spec, draft.now)
        planned = plan(spec, now)
    except RefusedError as refused:
        return Failed(str(refused))
    if Step.INJECT in KINDS[spec.kind].steps and (why := game_day.why_not_well(draft, spec)) is not None:
        return Failed(f"no fault is injected: {why}")
    if (failed := refused_by_check(planned, spec, now)) is not None:
        return failed
    if launches:
        planned = planned.model_copy(
            update={"unpredicted": "the time until the agents of the new instances have registered"}
        )
    planned = planned.model_copy(update={"notes": (*planned.notes, *_sources_that_stay(spec, draft.view))})
    does = describe(planned)
    if launches and spec.launch is not None:
        does = f"{spec.launch.does}; then {does}"
    facts = facts_of(spec, planned, now, draft.view.open_alerts, draft.now)
    asked = approvals.asks(draft, operation, facts, does)
    return _Planned(spec, planned, asked)


def _sources_that_stay(spec: ChangeSpec, view: View) -> Iterator[str]:
    """Yield a note on each source of a host that the change empties: no change moves a source."""
    hosts = frozenset(spec.named_hosts) if KINDS[spec.kind].empties_host else frozenset()
    for source in view.sources.values():
        record = source.record
        if record.host in hosts and source.live:
            stays = f"source {record.name} of stream {record.stream} stays on {record.host}"
            yield (
                f"{stays}: start it on another machine under the same name, which takes it over"
                if record.kind is SourceKind.HTTP
                else f"{stays}, where its files are; it continues after a restart"
            )


def _asks(draft: Draft, operation: Operation, planned: _Planned) -> Waiting | None:
    """Have a planned change wait for approval, if it needs one: it has a record, and no
    maintenance lock.
    """
    if planned.asked is None or planned.asked.approved_by:
        return None
    record = _record(draft, operation, planned, ChangeState.WAITING, planned.asked)
    draft.changes[operation.change] = record
    return Waiting(approvals.sentence(record))


def _told(planned: _Planned, holder: str | None) -> Done:
    """Return the result of a dry run."""
    asked = None if planned.asked is None or planned.asked.approved_by else planned.asked
    notes = [] if holder is None else [f"not now: {holder}"]
    notes += [] if asked is None else [f"it would wait for the approval of another person: {asked.why}"]
    details: dict[str, Any] = {"plan": planned.plan.model_dump(mode="json")}
    if asked is not None:
        details["approval"] = asked.reasons
    more = f" ({'; '.join(notes)})" if notes else ""
    return Done(f"would do: {describe(planned.plan)}{more}", details)


def _begun(draft: Draft, operation: Operation, planned: _Planned, approved: Asked | None) -> Done:
    """Begin a change: its record is active, and it has the maintenance lock."""
    asked = None if approved is None else approved.model_copy(update={"began": True})
    record = _record(draft, operation, planned, ChangeState.ACTIVE, asked)
    seconds = _seconds_left(draft, operation)
    draft.changes[operation.change] = record.model_copy(update={"deadline_seconds": seconds})
    draft.lock = MaintenanceLock(change=operation.change, by=operation.by, since=draft.now)
    sentence, details = f"planned: {describe(planned.plan)}", {"plan": planned.plan.model_dump(mode="json")}
    if asked is None:
        return Done(sentence, details)
    waited = {} if asked.before_launch else {WAITED: asked.waited_seconds}
    return Done(f"approved by {asked.approved_by}; {sentence}", {**details, **waited})


def _record(
    draft: Draft, operation: Operation, planned: _Planned, state: ChangeState, asked: Asked | None
) -> ChangeRecord:
    return ChangeRecord(
        id=operation.change,
        spec=planned.spec,
        plan=planned.plan,
        state=state,
        by=operation.by,
        started_at=draft.now,
        stepped_at=draft.now,
        asked=asked,
    )


def _seconds_left(draft: Draft, operation: Operation) -> float | None:
    """Return the seconds left of the change's deadline; None for the controller's own.

    The first step is posted with the whole deadline, and may have waited for some of it. The time
    that it waited for approval does not count.
    """
    extra = approvals.extra_seconds(draft, operation)
    return (
        None
        if operation.by == CONTROLLER
        else max(0.0, operation.deadline_seconds + extra - draft.age(operation.posted_at))
    )


def _completed(draft: Draft, spec: ChangeSpec, now: Cluster) -> ChangeSpec:
    """Fill in the fields that the change leaves to preflight, once for all steps."""
    tier = None if spec.tier is None else draft.view.tiers.get(spec.tier)
    return KINDS[spec.kind].complete(spec, None if tier is None else tier.spec.release, now)


def refused_by_check(planned: Plan, spec: ChangeSpec, now: Cluster) -> Failed | None:
    """Return what the independent checker finds wrong with a plan; None if nothing."""
    found = violations(planned, spec, aftermath(spec, now))
    return (
        Failed(
            f"the independent check refused the plan, so no tier was moved: {'; '.join(found)}; "
            "this is a fault of Sluice: report this message"
        )
        if found
        else None
    )


def describe(planned: Plan) -> str:
    """Return a plan in one sentence."""
    moves = [_of_move(move) for move in planned.moves]
    if moves:
        gap = (
            f"with a gap of about {planned.predicted_gap_seconds:g} s"
            if planned.predicted_gap_seconds
            else "without a gap"
        )
        about = f"about {planned.predicted_seconds:.0f} s, " if planned.predicted_seconds else ""
        moves.append(f"{about}{gap}")
    return "; ".join((*moves, *planned.notes)) or "no tier has to move"


def _of_move(move: Move) -> str:
    if move.joining and move.in_place:
        gives = f" gives up {workers(move.released)}, then" if move.released else ""
        added = listed(move.after.slots[move.kept :])
        return f"{move.tier}{gives} gets {workers(move.joining)} in place, on {added}"
    if move.in_place:
        return (
            f"{move.tier} gives up {move.released} of its workers in place; "
            f"the others stay on {listed(move.after.slots)}"
        )
    return f"{move.tier} → {move.after.in_words}"


def _holder(draft: Draft, operation: Operation) -> str | None:
    """Describe the active change that has the lock; None if another change may begin.

    A lock of a change that has ended or is unknown does not count.
    """
    lock = draft.lock
    if lock is None or lock.change == operation.change or KINDS[operation.spec.kind].planned_only:
        return None
    change = draft.changes.get(lock.change)
    if change is None or change.state is not ChangeState.ACTIVE:
        return None
    since = datetime.fromtimestamp(lock.since, UTC).strftime("%H:%M:%S UTC")
    return (
        f"change {lock.change} ({what_of(change.spec)}, by {lock.by}) has held the maintenance lock since "
        f"{since}"
    )


def _refuse_without_steps(spec: ChangeSpec) -> Outcome | None:
    """Refuse kinds of change that have no steps."""
    if not KINDS[spec.kind].planned_only:
        return None
    return Failed(
        f"a {spec.kind} has no steps; run `sluice {spec.kind} {spec.tier}`, which only writes the request"
    )


def _wait_or_refuse(operation: Operation, holder: str | None, *, approved: bool) -> Outcome | None:
    """Let a shift, an approved change and a runbook of the scaler wait for the lock; refuse others.

    Nobody would ask again at the shift's hour, and nobody should have to approve a change twice.
    The scaler begins changes at home while instances of its burst boot.
    """
    kind = operation.spec.kind
    if holder is None:
        return None
    if approved or KINDS[kind].waits_for_lock or asked_by_scaler(operation.by):
        return Waiting(f"{holder}; the {kind} waits until this change has ended")
    return Failed(f"{holder}; wait until this change has ended, or undo it: sluice abort")
