"""The step abort: a tier that is not handed over stays with its owner, and the change ends."""

from sluice_ops.controller.outcome import Done, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, resize_in_place, rollback, stop_order
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.steps import game_day
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import (
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    Operation,
    Plan,
    Result,
    Step,
)
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec
from sluice_ops.model.status import TierState
from sluice_ops.model.wording import listed, workers
from sluice_ops.operations.requests import operation_id
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.kinds.leave import burst_hosts, must_leave
from sluice_ops.planning.placement.shares import target


def abort(draft: Draft, operation: Operation) -> Outcome:
    """Undo what is not finished, then wait until the tiers of the change are as requested."""
    change = draft.changes.get(operation.change)
    if change is None and operation.change in draft.view.unread_changes:
        _end_others(draft, operation)
        return Done(
            f"change {operation.change} cannot be read: its prepared incarnations are dropped, its host "
            "keeps its present state"
        )
    if change is None:
        # Its preflight may be open, or come later: the ended change makes it fail.
        draft.changes[operation.change] = ChangeRecord(
            id=operation.change,
            spec=operation.spec,
            plan=Plan(),
            state=ChangeState.ABORTED,
            by=operation.by,
            started_at=draft.now,
            ended_at=draft.now,
        )
        _end_others(draft, operation)
        return Done(f"nothing to undo: change {operation.change} never began, and cannot begin now")
    if change.state is ChangeState.DONE:
        return Done(f"nothing to undo: change {change.id} had ended")
    if change.state is ChangeState.WAITING:
        draft.end_change(change.id, ChangeState.ABORTED)
        _end_others(draft, operation)
        return Done(
            f"nothing to undo: change {change.id} had not begun; it does not wait for approval any more"
        )
    if change.state is ChangeState.ACTIVE:
        undo(draft, change.id, operation.by)
        draft.update_change(change.id, abort_predicted_seconds=predicted_seconds(draft, change))
        _end_others(draft, operation)
    waits = [
        tier for tier in draft.view.tiers if _is_about(draft, change, tier) and not _is_well(draft, tier)
    ]
    if waits:
        return Waiting(f"undone; waiting until {', '.join(waits)} run{'s' if len(waits) == 1 else ''}")
    return Done(f"change {change.id} is aborted: {_where(draft, change.id)}")


def undo(draft: Draft, identity: ChangeId, by: str) -> None:
    """Undo what a change has not finished, and end the change as aborted."""
    change = draft.changes[identity]
    resize_in_place.take_back(draft, identity)
    for tier, number in (*change.incarnations.items(), *change.canaries.items()):
        if tier not in draft.owners:
            continue  # the tier cannot be read
        record = draft.owners[tier]
        if record.next == number:
            draft.drop_next(tier)
            draft.log(
                f"{tier}: incarnation {number} is dropped, incarnation {record.owner} goes on (aborted)"
            )
        for spec in draft.unretired(tier):
            if spec.incarnation < (draft.owners[tier].owner or 0):
                draft.retire(tier, spec.incarnation)
    for host in change.spec.named_hosts:
        _give_back(draft, change, host)
    if Step.PAUSE in KINDS[change.spec.kind].steps:
        _resume(draft, change, by)
    if Step.INJECT in KINDS[change.spec.kind].steps:
        game_day.withdraw(draft, change)
    draft.end_change(identity, ChangeState.ABORTED)


def _give_back(draft: Draft, change: ChangeRecord, host: HostName) -> None:
    """Let a host of the change be used as before, and withdraw its reboot."""
    record = draft.records.get(host)
    if host in draft.decommissioned:
        draft.log(f"{host} stays decommissioned: its records are removed when its agent has ended")
    elif _is_unsound(draft, change, host):
        draft.set_host_state(host, HostState.CORDONED, operation_id(change.id, Step.HEALTH))
        draft.log(f"{host} stays cordoned, because it is not sound after its reboot: sluice return {host}")
    elif _is_unproved(draft, change, host):
        draft.set_host_state(host, HostState.CORDONED, change.id)
        draft.log(f"{host} is cordoned, because no worker has processed records there: sluice return {host}")
    elif record is not None and record.by == change.id and record.state is not HostState.UP:
        draft.set_host_state(host, HostState.UP, change.id)
        draft.log(f"{host} may be used again (aborted)")
    elif record is not None and record.state in {HostState.DRAINING, HostState.REBOOTING}:
        draft.set_host_state(host, HostState.CORDONED, record.by)
        draft.log(f"{host} stays cordoned, as it was before the change (aborted)")
    if host in draft.assignments and draft.assignments[host].reboot == operation_id(change.id, Step.REBOOT):
        # a silent agent would otherwise reboot the host later, when the host is in use again
        draft.assignments[host] = draft.assignments[host].model_copy(update={"reboot": None})


def _is_unsound(draft: Draft, change: ChangeRecord, host: HostName) -> bool:
    """Tell whether a host has rebooted for the change, and the check after it found it bad."""
    view = draft.host(host)
    return (
        _has_rebooted(draft, change, host)
        and view is not None
        and view.observed is not None
        and bool(view.observed.findings)
    )


def _is_unproved(draft: Draft, change: ChangeRecord, host: HostName) -> bool:
    """Tell whether a worker was to prove a host, and did not; other hosts are used as before."""
    kind, record = KINDS[change.spec.kind], draft.records.get(host)
    if Step.REBOOT in kind.steps:
        return host not in change.proofs and _has_rebooted(draft, change, host)
    return kind.proves_host and record is not None and record.state is HostState.UP


def _has_rebooted(draft: Draft, change: ChangeRecord, host: HostName) -> bool:
    """Tell whether the agent of a host reports the reboot of the change."""
    view = draft.host(host)
    observed = None if view is None else view.observed
    return observed is not None and observed.rebooted == operation_id(change.id, Step.REBOOT)


def predicted_seconds(draft: Draft, change: ChangeRecord) -> float | None:
    """Predict the seconds until the tiers of an aborted change run again, from earlier changes."""
    back = sum(
        tier in draft.owners and rollback.rollback_target(draft, tier) is not None
        for tier in change.incarnations
    )
    return draft.pace.seconds(back, back) if back else draft.pace.abort


def _resume(draft: Draft, change: ChangeRecord, by: str) -> None:
    """Resume what the change has paused."""
    whole = _whole_tiers(draft, change)
    for tier in draft.view.tiers:
        wanted = draft.wanted[tier]
        own_workers = set(wanted.paused_workers) & set(change.spec.workers)
        since = draft.age(wanted.at) <= draft.age(change.started_at)
        if wanted.paused and wanted.by == change.by and since and tier in whole:
            draft.wanted[tier] = wanted.model_copy(update={"paused": False, "by": by, "at": draft.now})
        elif own_workers:
            kept = tuple(worker for worker in wanted.paused_workers if worker not in own_workers)
            draft.wanted[tier] = wanted.model_copy(update={"paused_workers": kept, "by": by, "at": draft.now})


def _whole_tiers(draft: Draft, change: ChangeRecord) -> frozenset[TierName]:
    """Return the tiers that a pause or resume concerns as a whole."""
    specs = [tier.spec for tier in draft.view.tiers.values()]
    return KINDS[change.spec.kind].whole_tiers(change.spec, specs)


def _is_about(draft: Draft, change: ChangeRecord, tier: TierName) -> bool:
    """Tell whether a change may have touched a tier. An abort does not wait for other tiers."""
    if {Step.PAUSE, Step.RESUME} & {*KINDS[change.spec.kind].steps}:
        return tier in _whole_tiers(draft, change) or not set(change.spec.workers).isdisjoint(
            draft.workers(tier)
        )
    return tier in {**change.incarnations, **change.receipts, **change.canaries}


def _end_others(draft: Draft, operation: Operation) -> None:
    """Fail the open steps of the aborted change."""
    for identity, other in draft.view.operations.items():
        if other.operation.change == operation.change and other.operation.step is not Step.ABORT:
            sentence = f"change {operation.change} was aborted by {operation.by}"
            draft.journal(identity, sentence)
            draft.results[identity] = Result(ok=False, sentence=sentence, finished_at=draft.now)


def _is_well(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier is as requested, or as well as possible without this change."""
    if not draft.wanted[tier].running or draft.statuses[tier].state in {TierState.FAILED, TierState.WAITING}:
        return True
    goes_back = rollback.rollback_target(draft, tier) is not None
    works = draft.owners[tier].paused or stop_order.workers_settled(draft, tier)
    return (
        not goes_back
        and draft.owners[tier].paused is draft.wanted[tier].paused
        and health.confirmed(draft, tier)
        and works
    )


def _where(draft: Draft, identity: ChangeId) -> str:
    change = draft.changes[identity]
    if Step.INJECT in KINDS[change.spec.kind].steps:
        return "no agent has an order for a fault any more"
    known = {tier: number for tier, number in change.incarnations.items() if tier in draft.owners}
    if KINDS[change.spec.kind].sets_tier and known:
        running = (draft.incarnations[tier].get(draft.owners[tier].owner or Incarnation(0)) for tier in known)
        return "; ".join(
            f"{spec.tier} {_how(change.spec, spec)}, as incarnation {spec.incarnation}"
            for spec in running
            if spec is not None
        )
    in_place = {
        move.tier: len(move.after.slots) - move.joining for move in change.plan.moves if move.in_place
    }
    moved = [
        f"{tier} keeps {workers(in_place[tier])}"
        if tier in in_place
        else f"{tier} stays with incarnation {number}, which had taken over{_left_on_ec2(draft, tier)}"
        for tier, number in known.items()
        if draft.owners[tier].owner == number
    ]
    return "; ".join(moved) or "every tier has its owner from before the change"


def _left_on_ec2(draft: Draft, tier: TierName) -> str:
    """Say what a tier keeps on EC2 without a burst, and how it leaves."""
    owning, cluster = draft.owner_spec(tier), cluster_of_draft(draft)
    if owning is None or not must_leave(owning.placement, target(tier, cluster.rules), cluster.hosts):
        return ""
    hosts = listed(burst_hosts(owning.placement, cluster.hosts))
    return f", and keeps units on {hosts} without a burst: take them off with `sluice leave --tier {tier}`"


def _how(spec: ChangeSpec, running: IncarnationSpec) -> str:
    return (
        f"runs release {running.release}"
        if spec.release
        else f"has its state in {running.partitions} partitions"
    )
