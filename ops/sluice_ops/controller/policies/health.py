"""The health of an incarnation, from its driver's reports and from its host's agent."""

from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import HUNG_SINCE, UnitObserved, UnitState, driver_id
from sluice_ops.model.ids import HostName, Incarnation, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, State

ENDED = frozenset({State.STOPPED, State.FAILED, State.FENCED})
START_SECONDS = 300.0
"""A driver that starts for longer, and waits for no service, counts as dead: it hangs."""
HEALTHY_SECONDS = 60.0
"""The failures in a row are forgotten once an owner has run for this long."""


@dataclass(frozen=True)
class Death:
    """Why an incarnation does not run any more, and since when."""

    reason: str
    age: float
    """How long this controller has known of the death. Unit: seconds."""
    blameless: bool = False
    """The death is no failure of the tier: its host was lost, it was taken away, or its driver was
    told to stop, as when the platform stops.
    """


def report(draft: Draft, tier: TierName, number: Incarnation) -> IncarnationReport | None:
    """Return the driver's report; None before the first one."""
    return draft.view.tiers[tier].reports.get(number)


def state(draft: Draft, tier: TierName, number: Incarnation) -> State:
    """Return the state that the driver reports; STARTING before the first report."""
    reported = report(draft, tier, number)
    return State.STARTING if reported is None else reported.state


def observed_unit(draft: Draft, host: HostName, unit: UnitId) -> UnitObserved | None:
    """Return a unit as its host's agent reports it; None if the agent does not report it."""
    view = draft.host(host)
    if view is None or view.observed is None:
        return None
    return next((observed for observed in view.observed.units if observed.id == unit), None)


def death(draft: Draft, tier: TierName, number: Incarnation) -> Death | None:
    """Return why an incarnation's driver does not run any more; None while the driver lives."""
    spec = draft.incarnations[tier].get(number)
    if spec is None or spec.retired:
        return Death("was taken away", 0.0, blameless=True)
    reported = report(draft, tier, number)
    if reported is not None and reported.state in ENDED:
        why = {State.STOPPED: "was told to stop", State.FAILED: "failed", State.FENCED: "was fenced off"}[
            reported.state
        ]
        return Death(
            f"{why}: {reported.error}" if reported.error else why,
            draft.age(reported.since),
            blameless=reported.state is State.STOPPED,
        )
    host = spec.placement.driver
    if draft.is_lost(host):
        return Death(f"was lost with host {host}", 0.0, blameless=True)
    observed = observed_unit(draft, host, driver_id(tier, number))
    if observed is not None and observed.state is UnitState.EXITED:
        return Death(f"ended on {host}: {observed.exit or 'no reason known'}", draft.age(observed.since))
    waits = reported is not None and reported.away is not None
    if (
        not waits
        and state(draft, tier, number) is State.STARTING
        and (over := _start_seconds(draft, spec, reported, observed) - START_SECONDS) > 0
    ):
        return Death(f"was still starting on {host} after {START_SECONDS:.0f} s", over)
    return None


def _start_seconds(
    draft: Draft, spec: IncarnationSpec, reported: IncarnationReport | None, observed: UnitObserved | None
) -> float:
    """Return how long the driver has been starting, since its last start. Unit: seconds.

    An agent that comes back starts its units again.
    """
    host = draft.host(spec.placement.driver)
    if host is None or not host.live:
        return 0.0
    starts = (spec.created_at, *(source.since for source in (reported, observed) if source is not None))
    return min(draft.age(stamp) for stamp in starts)


def has_ended(draft: Draft, tier: TierName, number: Incarnation) -> bool:
    """Tell whether an incarnation has ended, whatever the reason."""
    return death(draft, tier, number) is not None


def failures_after(draft: Draft, tier: TierName, number: Incarnation, end: Death) -> int:
    """Return the number of failures in a row after the death `end` of this owner."""
    spec = draft.incarnations[tier][number]
    before = spec.failures if spec.attempt >= draft.wanted[tier].attempt else 0
    if end.blameless:
        return before
    return 1 if _seconds_running(draft, tier, number) - end.age >= HEALTHY_SECONDS else before + 1


def note_health(draft: Draft, tier: TierName, number: Incarnation) -> None:
    """Reset the failures of an owner that has run long enough, also for the next leader."""
    spec = draft.incarnations[tier][number]
    if spec.failures and _seconds_running(draft, tier, number) >= HEALTHY_SECONDS:
        draft.incarnations[tier][number] = spec.model_copy(update={"failures": 0})


def note_hang(draft: Draft, tier: TierName, number: Incarnation, end: Death) -> None:
    """Note that an owner hung; `verify` needs it when the owner's unit is gone."""
    if HUNG_SINCE in end.reason:
        draft.incarnations[tier][number] = draft.incarnations[tier][number].model_copy(
            update={"hung": end.reason}
        )


def _seconds_running(draft: Draft, tier: TierName, number: Incarnation) -> float:
    """Return how long ago this controller saw that the incarnation had begun to run.

    Unit: seconds.
    """
    reported = report(draft, tier, number)
    return (
        next((draft.age(at) for reached, at in reported.history if reached is State.RUNNING), 0.0)
        if reported is not None
        else 0.0
    )


def confirmed(draft: Draft, tier: TierName) -> bool:
    """Tell whether the owner is in the state that the owner record asks for: running, or paused.

    If the tier is paused, a hot standby has to be paused too.
    """
    record = draft.owners[tier]
    if record.owner is None or draft.owner_spec(tier) is None:
        return False
    beside = record.standby if record.standby_runs else None
    if record.paused and beside is not None and state(draft, tier, beside) is not State.PAUSED:
        return False
    wants = State.PAUSED if record.paused else State.RUNNING
    return state(draft, tier, record.owner) is wants and not has_ended(draft, tier, record.owner)


def undisturbed(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier runs and is not being changed.

    Only then may the controller change it by itself.
    """
    record = draft.owners[tier]
    return not record.paused and record.next is None and confirmed(draft, tier)
