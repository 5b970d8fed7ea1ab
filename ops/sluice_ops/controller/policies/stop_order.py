"""The order of pauses, resumes and stops: one at a time, nearest the pipeline's end first.

Each is confirmed before the next begins. Workers that leave a tier are an exception: all of them
are paused together, as none works again.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, resize_in_place
from sluice_ops.model.ids import TierName, UnitId
from sluice_ops.model.incarnation import Phase
from sluice_ops.model.wording import listed


def tier_before(draft: Draft, tier: TierName) -> TierName | None:
    """Return the tier that has to change before `tier`; None if it is the tier's turn."""
    for nearer in draft.end_first():
        name = nearer.spec.name
        if name == tier:
            return None
        if _is_changing(draft, name):
            return name
    return None


def _is_changing(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier is being paused, resumed or stopped, and this is not confirmed yet."""
    wanted, record = draft.wanted[tier], draft.owners[tier]
    if draft.owner_spec(tier) is None:
        # A stop counts until the last incarnation has ended. A tier that does not run blocks no
        # other.
        return record.stopped and bool(draft.unretired(tier))
    if not wanted.running:
        return True
    if record.owner is None or health.has_ended(draft, tier, record.owner):
        return False
    if record.paused or wanted.paused:
        return record.paused is not wanted.paused or not health.confirmed(draft, tier)
    # a worker that does not resume blocks no other tier
    return not _recorded_as_wanted(draft, tier) or (
        bool(record.paused_workers) and not _is_confirmed(draft, tier)
    )


def pause_or_resume(draft: Draft, tier: TierName) -> str | None:
    """Pause or resume a tier when it is its turn; return what the tier waits for."""
    wanted, record = draft.wanted[tier], draft.owners[tier]
    if record.paused is wanted.paused:
        return None
    word = "paused" if wanted.paused else "resumed"
    if record.phase is Phase.CUT:
        return f"{tier} is {word} after its handover"
    before = tier_before(draft, tier)
    if before is not None:
        return f"{tier} is {word} after {before}, which is nearer the pipeline's end"
    draft.update_owner(tier, paused=wanted.paused)
    draft.log(f"{tier}: {'pauses after a commit and keeps its slots' if wanted.paused else 'resumes'}")
    return None


def pause_workers(draft: Draft, tier: TierName) -> str | None:
    """Resume all workers that are not to be paused, or else pause the next one when it is its turn.

    Return what the tier waits for.
    """
    record, wants = draft.owners[tier], _wanted_workers(draft, tier)
    resuming = [worker for worker in record.paused_workers if worker not in wants]
    pausing = [worker for worker in wants if worker not in record.paused_workers]
    if record.paused or not (resuming or pausing):
        return None
    if record.phase is not Phase.STEADY:
        return f"workers of {tier} are paused or resumed after its handover"
    before = tier_before(draft, tier)
    if before is not None:
        return f"workers of {tier} are paused or resumed after {before}, which is nearer the pipeline's end"
    if resuming:
        draft.update_owner(
            tier, paused_workers=tuple(worker for worker in record.paused_workers if worker in wants)
        )
        draft.log(f"{tier}: {', '.join(resuming)} {'resumes' if len(resuming) == 1 else 'resume'}")
    elif _is_confirmed(draft, tier):
        going = [worker for worker in resize_in_place.leaving(draft, tier) if worker in pausing]
        paused = going or pausing[:1]
        draft.update_owner(tier, paused_workers=(*record.paused_workers, *paused))
        verb = "lose" if going else "keep"
        then = (
            f"finishes its last task and {verb}s its slot"
            if len(paused) == 1
            else f"finish their last tasks and {verb} their slots"
        )
        draft.log(f"{tier}: {listed(paused)} {then}")
    return None


def workers_settled(draft: Draft, tier: TierName) -> bool:
    """Tell whether exactly the workers that have to be paused are paused, as the owner reports."""
    return _recorded_as_wanted(draft, tier) and _is_confirmed(draft, tier)


def _recorded_as_wanted(draft: Draft, tier: TierName) -> bool:
    return set(_wanted_workers(draft, tier)) == set(draft.owners[tier].paused_workers)


def _wanted_workers(draft: Draft, tier: TierName) -> list[UnitId]:
    """Name the workers without tasks: paused, leaving, and those that left already."""
    present, record = draft.workers(tier), draft.owners[tier]
    paused = (worker for worker in draft.wanted[tier].paused_workers if worker in present)
    gone = (worker for worker in record.paused_workers if worker not in present)
    return list(dict.fromkeys((*paused, *resize_in_place.leaving(draft, tier), *gone)))


def _is_confirmed(draft: Draft, tier: TierName) -> bool:
    """Tell whether the owner reports the workers as its owner record has them.

    The owner does not report workers that are lost or have no slot.
    """
    living = draft.living_workers(tier)
    return resize_in_place.resting(draft, tier) & living == living.intersection(
        draft.owners[tier].paused_workers
    )
