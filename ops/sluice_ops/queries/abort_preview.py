"""What an abort would undo: the abort is carried out in a draft that is never written."""

from collections.abc import Iterator

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import rollback
from sluice_ops.controller.steps.abort import predicted_seconds, undo
from sluice_ops.model.change import ChangeRecord
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.snapshot.stamps import stamps
from sluice_ops.snapshot.view import TierView, View


def preview(change: ChangeRecord, view: View, now: float) -> tuple[list[str], float | None]:
    """Return what the abort of an active change would undo, and how long it would take.

    The list has a sentence for each tier and host that the change has begun to change. The duration
    is in seconds; None if no abort has been timed at this site.
    """
    known_seconds = {at: max(0.0, now - at) for at in stamps(view)}
    inputs = PassInputs(now=now, lost=frozenset(), rules=Rules(), known_seconds=known_seconds)
    draft = Draft(view, inputs)
    undo(draft, change.id, cli_user())
    sentences = [event.removesuffix(" (aborted)") for event in draft.events]
    for name in sorted(view.tiers):
        sentences += _of_tier(change, view.tiers[name], draft)
    return sentences, predicted_seconds(draft, change)


def _of_tier(change: ChangeRecord, tier: TierView, draft: Draft) -> Iterator[str]:
    """Describe what resumes in a tier, what rolls back, and what stays."""
    name, owner, after = tier.spec.name, tier.owner.owner, draft.wanted[tier.spec.name]
    if tier.wanted.paused and not after.paused:
        yield f"{name}: resumes"
    if resumed := [worker for worker in tier.wanted.paused_workers if worker not in after.paused_workers]:
        yield f"{name}: {listed(resumed)} {'resumes' if len(resumed) == 1 else 'resume'}"
    in_place = next((move for move in change.plan.moves if move.tier == name and move.in_place), None)
    if in_place is None and owner is not None and change.incarnations.get(name) == owner:
        back = rollback.rollback_target(draft, name)
        then = (
            "which goes on"
            if back is None
            else f"and rolls back to {back}: a gap of about {draft.pace.gap:g} s"
        )
        yield f"{name}: was handed over to incarnation {owner}, {then}"
    if in_place is not None and in_place.released and name in change.receipts and owner in tier.incarnations:
        gone = name in change.incarnations
        result = "have left for good" if gone else "that were to leave get tasks again"
        yield f"{name}: {workers(in_place.released)} {result}"
