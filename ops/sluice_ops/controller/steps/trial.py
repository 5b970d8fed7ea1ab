"""The step trial: watch whether a tier does as well under its new release.

The tier then rolls back by itself.
"""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.steps.abort import undo
from sluice_ops.model.change import Operation
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import TRIAL_SECONDS, Flowed

MIN_RECORDS = 20
"""With fewer records, a share in quarantine means nothing."""
QUARANTINE_MARGIN = 0.05
"""A share in quarantine may exceed the earlier share by this much, as bad records come unevenly."""


def trial(draft: Draft, operation: Operation) -> Outcome:
    """Watch the incarnation to which this change has handed the tier over."""
    change = draft.changes[operation.change]
    tier = change.spec.tier
    if tier is None or tier not in change.receipts:
        return Done("nothing was handed over")
    old, new = (Incarnation(change.receipts[tier][role]) for role in ("old", "new"))
    if draft.owners[tier].paused:
        return Waiting(f"{tier} is paused; the trial begins when it runs")
    fault_found = _ended(draft, tier, new)
    report = health.report(draft, tier, new)
    if fault_found is None:
        flowed = None if report is None else report.flowed
        if flowed is None or (flowed.seconds < TRIAL_SECONDS and not flowed.restarts):
            return Waiting(
                f"{tier}: incarnation {new} is on trial for {TRIAL_SECONDS:.0f} s; "
                f"if it does worse than incarnation {old}, {tier} rolls back"
            )
        before = health.report(draft, tier, old)
        fault_found = fault(None if before is None else before.flowed, flowed)
        if fault_found is None:
            few = "; too few records to be sure" if flowed.records_in < MIN_RECORDS else ""
            return Done(
                f"{tier}/{new} did well for {flowed.seconds:.0f} s: "
                f"{flowed.records_in} records in, {flowed.records_out} out, {flowed.quarantined} to "
                f"quarantine{few}"
            )
    undo(draft, change.id, "its trial")
    back = draft.wanted[tier].release
    then = (
        "there is no earlier release, so the tier stays on this one"
        if back is None
        else f"it rolls back to {back} by itself"
    )
    command = f"`sluice replay {tier} --quarantine`"
    aside = (
        f"; to reprocess records that were quarantined wrongly: {command}; "
        "a table that adds up may count some twice (decision 21)"
    )
    has_quarantined = report is not None and report.flowed is not None and report.flowed.quarantined
    return Failed(
        f"{tier} does not do well on release {change.spec.release}: {fault_found}; {then}. "
        f"Correct the code, publish it and upgrade again{aside if has_quarantined else ''}"
    )


def _ended(draft: Draft, tier: TierName, new: Incarnation) -> str | None:
    """Say how the new incarnation ended; None while it lives and owns its tier."""
    end = health.death(draft, tier, new)
    if end is None and draft.owners[tier].owner == new:
        return None
    report = health.report(draft, tier, new)
    return (
        f"incarnation {new} "
        f"{report.error if report is not None and report.error else 'ended' if end is None else end.reason}"
    )


def fault(before: Flowed | None, after: Flowed) -> str | None:
    """Say what got worse under the new code, compared with the old; None if nothing did. Pure."""
    if after.restarts:
        often = "once" if after.restarts == 1 else f"{after.restarts} times"
        return (
            f"its query failed and restarted {often} in {after.seconds:.0f} s: {after.error or 'see its log'}"
        )
    slow = _slowness(before, after)
    if slow is not None or before is None or after.records_in < MIN_RECORDS:
        return slow
    if before.records_out and not after.records_out:
        return (
            f"no output from {after.records_in} records; "
            f"before, {before.records_out} out of {before.records_in}"
        )
    usual, now = _share(before), _share(after)
    if now > usual + QUARANTINE_MARGIN:
        return (
            f"{after.quarantined} of {after.records_in} records went to quarantine ({now:.0%}); "
            f"before, {usual:.0%}"
        )
    return None


def _slowness(before: Flowed | None, after: Flowed) -> str | None:
    """Say how much slower the new code is while records wait; None if it is not."""
    usual = _usual(before, after)
    if usual < MIN_RECORDS or not after.waiting:
        return None
    if not after.records_in:
        return f"none of {after.waiting} waiting records was processed in {after.seconds:.0f} s"
    if before is not None and after.records_in < usual / 2 < after.waiting:
        return (
            f"{after.records_in} records were processed in {after.seconds:.0f} s, before {usual:.0f} in "
            f"that time; {after.waiting} wait"
        )
    return None


def _usual(before: Flowed | None, after: Flowed) -> float:
    """Return how many records the old code would have processed in this time.

    Without a report of the old code, return how many records wait.
    """
    if before is None or not before.seconds:
        return after.waiting
    return before.records_in / before.seconds * after.seconds


def _share(flowed: Flowed) -> float:
    return flowed.quarantined / flowed.records_in if flowed.records_in else 0.0
