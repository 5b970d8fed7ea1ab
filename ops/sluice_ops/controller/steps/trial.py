"""Trial: whether a tier does as well under its new code as before; if not, the change ends here and the tier goes back by itself."""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.steps.abort import undo
from sluice_ops.model.change import Operation
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import TRIAL_SECONDS, Flowed

ENOUGH = 20
"""Fewer records say nothing of a share."""
MORE = 0.05
"""So much larger a share may go to quarantine than before: bad records do not come evenly."""


def trial(draft: Draft, operation: Operation) -> Outcome:
    """See how the incarnation does that this change has handed its tier to."""
    change = draft.changes[operation.change]
    tier = change.spec.tier
    if tier is None or tier not in change.receipts:
        return Done("nothing was handed over")
    old, new = (Incarnation(change.receipts[tier][which]) for which in ("old", "new"))
    if draft.owners[tier].paused:
        return Waiting(f"{tier} is paused: how it does is seen when it runs")
    seen = _ended(draft, tier, new)
    said = health.report(draft, tier, new)
    if seen is None:
        flowed = None if said is None else said.flowed
        if flowed is None or (flowed.seconds < TRIAL_SECONDS and not flowed.restarts):
            return Waiting(f"seeing for {TRIAL_SECONDS:.0f} s how {tier}/{new} does")
        before = health.report(draft, tier, old)
        seen = fault(None if before is None else before.flowed, flowed)
        if seen is None:
            few = "; these are too few to say much" if flowed.records_in < ENOUGH else ""
            return Done(
                f"{tier}/{new} did well for {flowed.seconds:.0f} s: {flowed.records_in} records in, {flowed.records_out} out, "
                f"{flowed.quarantined} to quarantine{few}"
            )
    undo(draft, change.id, "its trial")
    back = draft.wanted[tier].release
    then = (
        "there is no release to go back to, so it goes on"
        if back is None
        else f"it goes back to {back} by itself"
    )
    again = f"`sluice replay {tier} --quarantine`"
    aside = f"; what was set aside wrongly is taken up again by {again}, of which a table that adds up may count a part twice: decision 21"
    bad = said is not None and said.flowed is not None and said.flowed.quarantined
    return Failed(
        f"{tier} does not do well on release {change.spec.release}: {seen}; {then}. Mend the code, publish and upgrade again"
        f"{aside if bad else ''}"
    )


def _ended(draft: Draft, tier: TierName, new: Incarnation) -> str | None:
    """Say how the new incarnation ended; None while it lives and owns its tier."""
    end = health.death(draft, tier, new)
    if end is None and draft.owners[tier].owner == new:
        return None
    said = health.report(draft, tier, new)
    return f"incarnation {new} {said.error if said is not None and said.error else 'ended' if end is None else end.reason}"


def fault(before: Flowed | None, after: Flowed) -> str | None:
    """Say what is wrong with what has flowed under the new code, held against the old; None when nothing is. Pure."""
    if after.restarts:
        return f"its query failed and was begun again, {after.restarts} times in {after.seconds:.0f} s: {after.error or 'its log tells why'}"
    slow = _slowness(before, after)
    if slow is not None or before is None or after.records_in < ENOUGH:
        return slow
    if before.records_out and not after.records_out:
        return f"nothing has come out of {after.records_in} records, and before, {before.records_out} out of {before.records_in}"
    usual, now = _share(before), _share(after)
    if now > usual + MORE:
        return f"{after.quarantined} of {after.records_in} records went to quarantine ({now:.0%}), and before, {usual:.0%}"
    return None


def _slowness(before: Flowed | None, after: Flowed) -> str | None:
    """Say how much less is done than before while records wait; None where it is not."""
    usual = _usual(before, after)
    if usual < ENOUGH or not after.waiting:
        return None
    if not after.records_in:
        return f"none of {after.waiting} records that wait was done in {after.seconds:.0f} s"
    if before is not None and after.records_in < usual / 2 < after.waiting:
        return f"{after.records_in} records were done in {after.seconds:.0f} s, {usual:.0f} in such a time before, and {after.waiting} wait"
    return None


def _usual(before: Flowed | None, after: Flowed) -> float:
    """Return how many records would have been done in this time before; without a word of that, as many as wait."""
    if before is None or not before.seconds:
        return after.waiting
    return before.records_in / before.seconds * after.seconds


def _share(flowed: Flowed) -> float:
    return flowed.quarantined / flowed.records_in if flowed.records_in else 0.0
