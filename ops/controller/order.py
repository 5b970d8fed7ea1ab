"""Pauses, resumes and stops go through the tiers nearest the pipeline's end first, one at a time, each confirmed before the next."""

from ops.controller import vitals
from ops.controller.draft import Draft
from ops.model.ids import TierName
from ops.model.incarnation import Phase


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
    if draft.owning(tier) is None:
        # A stop counts until its last incarnation has ended; a tier that is not running at all holds nobody up.
        return record.stopped and bool(draft.held(tier))
    if not wanted.running:
        return True
    if record.owner is None or vitals.gone(draft, tier, record.owner):
        return False
    return record.paused is not wanted.paused or (record.paused and not vitals.confirmed(draft, tier))


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
    draft.own(tier, paused=wanted.paused)
    draft.tell(f"{tier}: {'stop where nothing is half done, keep the slots' if wanted.paused else 'go on'}")
    return None
