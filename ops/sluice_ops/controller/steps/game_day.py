"""The steps of a game day: have an agent inject a fault once, then judge what happened."""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.model.alert import Severity, kind_of
from sluice_ops.model.assignment import FaultOrder, UnitKind, UnitObserved, driver_id, slot_id
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Operation, Step
from sluice_ops.model.game_day import GameDayReceipt, UnitBefore
from sluice_ops.model.ids import BATCH, HostName, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, State
from sluice_ops.model.tier import Standby
from sluice_ops.model.wording import listed, page
from sluice_ops.operations.requests import operation_id
from sluice_ops.planning.alerts.catalogue import BY_NAME
from sluice_ops.planning.changes.faults import FAULTS, Fault, Seen, Unmeasured, Victim, Waits, judge
from sluice_ops.snapshot.view import HostView

LOST_RECORDS = "records-lost"
"""The kind of the alert that tells of lost records."""
ANSWER_SECONDS = 10.0
"""An agent that has not injected a fault after so long may be of an older version."""
_BATCH_SLOTS = f"{UnitKind.SLOT}-{BATCH}-"
"""The beginning of the names of batch's slots, which come and go with its jobs."""


def why_not_well(draft: Draft, spec: ChangeSpec) -> str | None:
    """Return why no fault is injected now, with the next step; None if the platform is well."""
    tier = TierName(spec.tier or "")
    critical = [key for key in draft.view.open_alerts if _is_critical(key)]
    if critical:
        return f"a critical alert lasts: {listed(critical)}; answer it first: `sluice alert list`"
    throttled = [(name, owner.held_for) for name, owner in draft.owners.items() if owner.held_for is not None]
    if throttled:
        name, slow = throttled[0]
        return f"{name} is throttled, because {slow} lags; wait until it has caught up: `sluice status`"
    owning = draft.owner_spec(tier)
    if owning is None or not health.undisturbed(draft, tier):
        return f"tier {tier} does not run steadily; `sluice status` shows what it waits for"
    if owning.failures:
        return (
            f"tier {tier} failed a moment ago, and another death may count against it; "
            f"wait {health.HEALTHY_SECONDS:.0f} s"
        )
    return _why_not_judged(draft, tier, FAULTS[spec.fault or ""], owning)


def _why_not_judged(draft: Draft, tier: TierName, fault: Fault, owning: IncarnationSpec) -> str | None:
    """Return why nobody could inject the fault or measure what follows."""
    report = health.report(draft, tier, owning.incarnation)
    if report is None or not report.measured or report.pressure is not None:
        return f"{tier} lags, or has not measured its lag yet, so a gap would not show; wait: `sluice status`"
    standby = draft.owners[tier].standby
    if draft.view.tiers[tier].spec.standby is Standby.WARM and (
        standby is None or health.state(draft, tier, standby) is not State.READY
    ):
        return f"the warm standby of {tier} is not ready; wait until `sluice status` shows it as ready"
    name, _ = _target(tier, fault, owning)
    host = draft.host(name)
    if host is None or not host.live or host.observed is None:
        return f"the agent of {name} does not answer, so it cannot inject a fault; `sluice hosts` shows it"
    return None


def inject(draft: Draft, operation: Operation) -> Outcome:
    """Have the agent of the tier's host inject the fault, and wait until it has."""
    change = draft.changes[operation.change]
    tier = TierName(change.spec.tier or "")
    fault = FAULTS.get(change.spec.fault or "")
    if fault is None:
        return Failed(_unknown(change))
    receipt = receipt_of(change)
    if receipt is not None:
        return _order(draft, operation, fault, receipt)
    owning = draft.owner_spec(tier)
    if owning is None or not health.undisturbed(draft, tier):
        return Failed(f"no fault was injected: {tier} does not run steadily any more; `sluice status`")
    _keep(draft, operation, tier, _before(draft, tier, fault, owning))
    return Waiting(f"{tier}: incarnation {owning.incarnation} runs before the fault")


def _order(draft: Draft, operation: Operation, fault: Fault, receipt: GameDayReceipt) -> Outcome:
    """Order a fault whose target is written down, and wait for the agent's report."""
    host = draft.host(receipt.host)
    if host is None:
        return Failed(f"host {receipt.host} left the channel; run the game day again")
    done = None if host.observed is None else host.observed.fault
    if done is None or done.id != operation.id:
        order = FaultOrder(id=operation.id, freezes=fault.freezes, unit=receipt.unit)
        draft.assignments[host.name] = draft.assignments[host.name].model_copy(update={"fault": order})
        late = draft.age(operation.posted_at) > ANSWER_SECONDS
        hint = "; is it of an older version, which injects nothing?" if late else ""
        return Waiting(f"the agent of {host.name} is asked to inject the fault{hint}")
    withdraw(draft, draft.changes[operation.change])
    if done.error:
        return Failed(f"no fault was injected on {host.name}: {done.error}; run the game day again")
    return Done(f"injected on {host.name}: {fault.does.format(tier=operation.spec.tier)}")


def judge_fault(draft: Draft, operation: Operation) -> Outcome:
    """Compare what happened with what is promised, and end the change if all is kept."""
    change = draft.changes[operation.change]
    tier = TierName(change.spec.tier or "")
    fault = FAULTS.get(change.spec.fault or "")
    before = receipt_of(change)
    withdraw(draft, change)
    if fault is None:
        return Failed(_unknown(change))
    if before is None:
        return Failed("no fault was injected, so nothing can be judged; run the game day again")
    seen = _seen(draft, change, tier, before, draft.age(operation.posted_at))
    verdict = judge(fault, fault.limit(draft.view.tiers[tier].spec), before, seen)
    match verdict:
        case Waits():
            return Waiting(f"{tier}: {verdict.sentence}")
        case Unmeasured():
            return Failed(f"{fault.name} of {tier} could not be judged: {verdict.sentence}")
    gap = seen.silent_seconds if fault.victim is Victim.DRIVER else None
    _keep(draft, operation, tier, before.model_copy(update={"promises": verdict, "gap_seconds": gap}))
    sentences = "; ".join(promise.sentence for promise in verdict)
    details = {"promises": [promise.model_dump(mode="json") for promise in verdict]}
    if all(promise.kept for promise in verdict):
        draft.end_change(operation.change, ChangeState.DONE)
        return Done(f"{fault.name} of {tier}: {sentences}", details)
    return Failed(
        f"{fault.name} of {tier}: {sentences}. See {page('Faults')}: {fault.row}. "
        f"`sluice logs {tier}` and `sluice status` show why",
        details,
    )


def receipt_of(change: ChangeRecord) -> GameDayReceipt | None:
    """Return what the fault of a game day hit; None before it was ordered."""
    raw = change.receipts.get(TierName(change.spec.tier or ""))
    return None if raw is None else GameDayReceipt.model_validate(raw, extra="allow")


def withdraw(draft: Draft, change: ChangeRecord) -> None:
    """Take the order for a fault back: an agent that comes back later must not inject it."""
    receipt = receipt_of(change)
    assignment = None if receipt is None else draft.assignments.get(receipt.host)
    if receipt is None or assignment is None or assignment.fault is None:
        return
    if assignment.fault.id == operation_id(change.id, Step.INJECT):
        draft.assignments[receipt.host] = assignment.model_copy(update={"fault": None})


def _unknown(change: ChangeRecord) -> str:
    return f"the leading controller is of a version without the fault {change.spec.fault}; upgrade it"


def _keep(draft: Draft, operation: Operation, tier: TierName, receipt: GameDayReceipt) -> None:
    draft.update_change(operation.change, receipts={tier: receipt.model_dump(mode="json")})


def _target(tier: TierName, fault: Fault, owning: IncarnationSpec) -> tuple[HostName, UnitId | None]:
    """Return the host and the unit that a fault hits; None: the host's agent."""
    if fault.victim is Victim.WORKER:
        return owning.placement.slots[0], slot_id(tier, owning.incarnation, 0)
    unit = driver_id(tier, owning.incarnation) if fault.victim is Victim.DRIVER else None
    return owning.placement.driver, unit


def _before(draft: Draft, tier: TierName, fault: Fault, owning: IncarnationSpec) -> GameDayReceipt:
    host, unit = _target(tier, fault, owning)
    units = {
        name: each
        for name, each in _units_of(draft.host(host)).items()
        if name == unit or (unit is None and not name.startswith(_BATCH_SLOTS))
    }
    return GameDayReceipt(
        fault=fault.name,
        host=host,
        unit=unit,
        incarnation=owning.incarnation,
        units={name: UnitBefore(pid=each.pid, restarts=each.restarts) for name, each in units.items()},
    )


def _seen(draft: Draft, change: ChangeRecord, tier: TierName, before: GameDayReceipt, age: float) -> Seen:
    owner = draft.owners[tier].owner
    host = draft.host(before.host)
    observed = None if host is None or not host.live else host.observed
    done = None if observed is None else observed.fault
    silences = [
        report.silent_seconds
        for number, report in draft.view.tiers[tier].reports.items()
        if number > before.incarnation and report.silent_seconds is not None
    ]
    return Seen(
        owner=owner if health.confirmed(draft, tier) else None,
        silent_seconds=max(silences, default=None),
        units=_units_of(host),
        injected_at=done.at if done is not None and done.id == operation_id(change.id, Step.INJECT) else None,
        agent_started=None if observed is None else observed.agent_started,
        age=age,
        loses=any(kind_of(key) == LOST_RECORDS for key in draft.view.open_alerts),
    )


def _units_of(host: HostView | None) -> dict[UnitId, UnitObserved]:
    return {} if host is None or host.observed is None else {unit.id: unit for unit in host.observed.units}


def _is_critical(key: str) -> bool:
    kind = BY_NAME.get(kind_of(key))
    return kind is not None and kind.severity is Severity.CRITICAL
