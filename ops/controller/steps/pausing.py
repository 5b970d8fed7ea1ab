"""Pause and resume: say what is wanted of the tiers; their lives follow one at a time, nearest the end first."""

from ops.controller import vitals
from ops.controller.draft import Draft
from ops.controller.steps.ending import end
from ops.controller.steps.outcome import Done, Failed, Outcome, Waiting
from ops.model.ids import TierName
from ops.model.operation import ChangeState, Operation, Step


def pause_or_resume(draft: Draft, operation: Operation) -> Outcome:
    """Have the tiers paused or resumed, each confirmed by its driver."""
    paused = operation.step is Step.PAUSE
    tiers = _tiers(draft, operation)
    for tier in tiers:
        wanted = draft.wanted[tier]
        if wanted.paused is not paused:
            draft.wanted[tier] = wanted.model_copy(update={"paused": paused, "by": operation.by, "at": draft.now})
    open_tiers = [tier for tier in tiers if not _is_so(draft, tier, paused=paused)]
    word = "paused" if paused else "running"
    if not open_tiers:
        end(draft, operation.change, ChangeState.DONE)
        return Done(f"{word}: {', '.join(tiers) or 'no tier is wanted'}")
    stuck = [tier for tier in open_tiers if draft.statuses[tier].state == "failed"]
    if stuck:
        return Failed(f"{stuck[0]} cannot be {word}: it {draft.statuses[stuck[0]].sentence}")
    so = [tier for tier in tiers if tier not in open_tiers]
    already = f"; {word} already: {', '.join(so)}" if so else ""
    return Waiting(f"waiting until {open_tiers[0]} is {word}{already}")


def _tiers(draft: Draft, operation: Operation) -> list[TierName]:
    wanted = [tier.spec.name for tier in draft.end_first() if draft.wanted[tier.spec.name].running]
    return [tier for tier in wanted if operation.spec.tier in {None, tier}]


def _is_so(draft: Draft, tier: TierName, *, paused: bool) -> bool:
    return draft.owners[tier].paused is paused and vitals.confirmed(draft, tier)
