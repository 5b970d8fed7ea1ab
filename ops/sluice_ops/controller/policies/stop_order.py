"""Pauses, resumes and stops go nearest the pipeline's end first, one tier or worker at a time, each confirmed before the next.

Workers that a tier lets go are told together: none of them is to work again.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, shrink_in_place
from sluice_ops.model.ids import TierName, UnitId
from sluice_ops.model.incarnation import Phase
from sluice_ops.model.wording import listed


def turn(draft: Draft, tier: TierName) -> TierName | None:
    """Return the tier nearer to the end that `tier` has to wait for; None when it is its turn."""
    for nearer in draft.end_first():
        name = nearer.spec.name
        if name == tier:
            return None
        if _is_changing(draft, name):
            return name
    return None


def _is_changing(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier is between what it was and what is wanted of it: paused, resumed or stopped, and not confirmed."""
    wanted, record = draft.wanted[tier], draft.owners[tier]
    if draft.owner_spec(tier) is None:
        # A stop counts until its last incarnation has ended; a tier that is not running at all holds nobody up.
        return record.stopped and bool(draft.unretired(tier))
    if not wanted.running:
        return True
    if record.owner is None or health.gone(draft, tier, record.owner):
        return False
    if record.paused or wanted.paused:
        return record.paused is not wanted.paused or not health.confirmed(draft, tier)
    # a worker that does not wake holds nobody up
    return not _fenced_as_wanted(draft, tier) or (bool(record.paused_workers) and not _is_kept(draft, tier))


def pause_or_resume(draft: Draft, tier: TierName) -> str | None:
    """Bring the fence to what is wanted when it is this tier's turn; return what it waits for."""
    wanted, record = draft.wanted[tier], draft.owners[tier]
    if record.paused is wanted.paused:
        return None
    word = "paused" if wanted.paused else "resumed"
    if record.phase is Phase.CUT:
        return f"{tier} is {word} once its hand-over is through"
    before = turn(draft, tier)
    if before is not None:
        return f"{tier} is {word} after {before}, which is nearer to the pipeline's end"
    draft.update_owner(tier, paused=wanted.paused)
    draft.log(f"{tier}: {'stop where nothing is half done, keep the slots' if wanted.paused else 'go on'}")
    return None


def pause_workers(draft: Draft, tier: TierName) -> str | None:
    """Have the next worker paused when it is its turn, or all of them woken that are not to be paused; return what is waited for."""
    record, wants = draft.owners[tier], _wanted_workers(draft, tier)
    waking = [worker for worker in record.paused_workers if worker not in wants]
    pausing = [worker for worker in wants if worker not in record.paused_workers]
    if record.paused or not (waking or pausing):
        return None
    if record.phase is not Phase.STEADY:
        return f"workers of {tier} are paused or woken once its hand-over is through"
    before = turn(draft, tier)
    if before is not None:
        return f"workers of {tier} are paused or woken after {before}, which is nearer to the pipeline's end"
    if waking:
        draft.update_owner(
            tier, paused_workers=tuple(worker for worker in record.paused_workers if worker in wants)
        )
        draft.log(f"{tier}: {', '.join(waking)} {'works' if len(waking) == 1 else 'work'} again")
    elif _is_kept(draft, tier):
        going = [worker for worker in shrink_in_place.leaving(draft, tier) if worker in pausing]
        told = going or pausing[:1]
        draft.update_owner(tier, paused_workers=(*record.paused_workers, *told))
        draft.log(f"{tier}: {listed(told)} to do the last task, and {'go' if going else 'be kept'}")
    return None


def workers_settled(draft: Draft, tier: TierName) -> bool:
    """Tell whether exactly those workers of a tier that runs are paused that are to be."""
    return _fenced_as_wanted(draft, tier) and _is_kept(draft, tier)


def _fenced_as_wanted(draft: Draft, tier: TierName) -> bool:
    return set(_wanted_workers(draft, tier)) == set(draft.owners[tier].paused_workers)


def _wanted_workers(draft: Draft, tier: TierName) -> list[UnitId]:
    """Name the workers that are to have no tasks: who is to be paused, who is to go, and who went and has no slot any more."""
    there, record = draft.workers(tier), draft.owners[tier]
    paused = (worker for worker in draft.wanted[tier].paused_workers if worker in there)
    gone = (worker for worker in record.paused_workers if worker not in there)
    return list(dict.fromkeys((*paused, *shrink_in_place.leaving(draft, tier), *gone)))


def _is_kept(draft: Draft, tier: TierName) -> bool:
    """Tell whether the owner says that the workers are as its fence has it; of those that are lost, or have no slot, it knows nothing."""
    living = draft.living_workers(tier)
    return shrink_in_place.at_rest(draft, tier) & living == living.intersection(
        draft.owners[tier].paused_workers
    )
