"""How an incarnation is: what its driver reports and what its host's agent sees, taken together."""

from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import HUNG_SINCE, UnitObserved, UnitState, driver_id
from sluice_ops.model.ids import HostName, Incarnation, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, State

ENDED = frozenset({State.STOPPED, State.FAILED, State.FENCED})
START_SECONDS = 300.0
"""A driver that has not come further than starting for this long, and waits for nothing, counts as dead: its start hangs."""
HEALTHY_SECONDS = 60.0
"""An owner that ran for this long has not failed in a row with the one before it."""


@dataclass(frozen=True)
class Death:
    """Why an incarnation runs no more, and for how long."""

    reason: str
    age: float
    """How long this controller has known it. Unit: seconds."""
    blameless: bool = False
    """Its host was lost: that is not the tier's failure."""


def report(draft: Draft, tier: TierName, number: Incarnation) -> IncarnationReport | None:
    """Return what a driver has said."""
    return draft.view.tiers[tier].reports.get(number)


def state(draft: Draft, tier: TierName, number: Incarnation) -> State:
    """Return the state that a driver reports; one that has said nothing yet is starting."""
    said = report(draft, tier, number)
    return State.STARTING if said is None else said.state


def seen(draft: Draft, host: HostName, unit: UnitId) -> UnitObserved | None:
    """Return what the agent of a host sees of a unit."""
    view = draft.host(host)
    if view is None or view.observed is None:
        return None
    return next((observed for observed in view.observed.units if observed.id == unit), None)


def death(draft: Draft, tier: TierName, number: Incarnation) -> Death | None:
    """Tell why the driver of an incarnation does nothing any more; None while it lives."""
    spec = draft.incarnations[tier].get(number)
    if spec is None or spec.retired:
        return Death("was taken away", 0.0, blameless=True)
    said = report(draft, tier, number)
    if said is not None and said.state in ENDED:
        why = {State.STOPPED: "stopped by itself", State.FAILED: "failed", State.FENCED: "was fenced off"}[
            said.state
        ]
        return Death(f"{why}: {said.error}" if said.error else why, draft.age(said.since))
    host = spec.placement.driver
    if draft.is_lost(host):
        return Death(f"was lost with host {host}", 0.0, blameless=True)
    observed = seen(draft, host, driver_id(tier, number))
    if observed is not None and observed.state is UnitState.EXITED:
        return Death(f"ended on {host}: {observed.exit or 'no reason known'}", draft.age(observed.since))
    waits = said is not None and said.away is not None
    if (
        not waits
        and state(draft, tier, number) is State.STARTING
        and (over := _starting(draft, spec, said, observed) - START_SECONDS) > 0
    ):
        return Death(f"was still starting on {host} after {START_SECONDS:.0f} s", over)
    return None


def _starting(
    draft: Draft, spec: IncarnationSpec, said: IncarnationReport | None, observed: UnitObserved | None
) -> float:
    """Return for how long it starts, counted from its last beginning: an agent that comes back starts its units anew."""
    host = draft.host(spec.placement.driver)
    if host is None or not host.live:
        return 0.0
    begun = (spec.created_at, *(each.since for each in (said, observed) if each is not None))
    return min(draft.age(stamp) for stamp in begun)


def gone(draft: Draft, tier: TierName, number: Incarnation) -> bool:
    """Tell whether an incarnation has ended, whatever the reason."""
    return death(draft, tier, number) is not None


def failures_after(draft: Draft, tier: TierName, number: Incarnation, end: Death) -> int:
    """Count the failures in a row once this owner has died."""
    spec = draft.incarnations[tier][number]
    before = spec.failures if spec.attempt >= draft.wanted[tier].attempt else 0
    if end.blameless:
        return before
    return 1 if _ran(draft, tier, number) - end.age >= HEALTHY_SECONDS else before + 1


def note_health(draft: Draft, tier: TierName, number: Incarnation) -> None:
    """Write down that an owner has run for long enough: what it followed on is forgotten, whoever leads when it dies."""
    spec = draft.incarnations[tier][number]
    if spec.failures and _ran(draft, tier, number) >= HEALTHY_SECONDS:
        draft.incarnations[tier][number] = spec.model_copy(update={"failures": 0})


def note_hang(draft: Draft, tier: TierName, number: Incarnation, end: Death) -> None:
    """Write down that an owner hung, for whoever verifies its hand-over when its unit is gone."""
    if HUNG_SINCE in end.reason:
        draft.incarnations[tier][number] = draft.incarnations[tier][number].model_copy(
            update={"hung": end.reason}
        )


def _ran(draft: Draft, tier: TierName, number: Incarnation) -> float:
    """Return for how long it is known that an incarnation has begun to run."""
    said = report(draft, tier, number)
    return (
        next((draft.age(at) for what, at in said.history if what is State.RUNNING), 0.0)
        if said is not None
        else 0.0
    )


def confirmed(draft: Draft, tier: TierName) -> bool:
    """Tell whether the owner does what the fence says: runs, or is paused; and then a standby that runs beside it too."""
    record = draft.owners[tier]
    if record.owner is None or draft.owner_spec(tier) is None:
        return False
    beside = record.standby if record.standby_runs else None
    if record.paused and beside is not None and state(draft, tier, beside) is not State.PAUSED:
        return False
    wants = State.PAUSED if record.paused else State.RUNNING
    return state(draft, tier, record.owner) is wants and not gone(draft, tier, record.owner)


def undisturbed(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier just runs, and nothing is being done to it: the controller's own changes are for such a tier only."""
    record = draft.owners[tier]
    return not record.paused and record.next is None and confirmed(draft, tier)
