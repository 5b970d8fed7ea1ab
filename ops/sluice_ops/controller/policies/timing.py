"""Starts and stops that somebody asked for: each is timed, beside what it was predicted to take. Called by `tiers`.

It is in the tier's incarnation: the writes of a tier go together, however many tiers are started at once (`portions`).
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.model.change import START, STOP, ChangeKind
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import Timed


def start_begins(draft: Draft, tier: TierName, number: Incarnation) -> None:
    """Note what the start is predicted to take."""
    _note(draft, tier, number, start=_begun(draft, tier, START))


def start_goes_on(draft: Draft, tier: TierName, old: Incarnation, number: Incarnation) -> None:
    """Have the next incarnation take a start on that the one before it has died in."""
    begun = draft.incarnations[tier][old].start
    if begun is not None and begun.seconds is None:
        _note(draft, tier, old, start=None)
        _note(draft, tier, number, start=begun)


def note_start(draft: Draft, tier: TierName, owner: Incarnation) -> None:
    """Note what the start took, once the tier does what is wanted of it."""
    spec = draft.incarnations[tier][owner]
    if spec.start is not None and spec.start.seconds is None and health.confirmed(draft, tier):
        _note(draft, tier, owner, start=_through(spec.start, draft.age(spec.start.at)))


def stop_begins(draft: Draft, tier: TierName) -> None:
    """Note what the stop of the owner is predicted to take, if it lives."""
    owner = draft.owners[tier].owner
    if owner in draft.incarnations[tier] and not health.gone(draft, tier, Incarnation(owner)):
        _note(draft, tier, Incarnation(owner), stop=_begun(draft, tier, STOP))


def note_stop(draft: Draft, tier: TierName) -> None:
    """Note what the stop took, counted from the tier's turn on."""
    owner = draft.owners[tier].owner
    spec = None if owner is None else draft.incarnations[tier].get(owner)
    if spec is not None and spec.stop is not None and spec.stop.seconds is None:
        _note(draft, tier, spec.incarnation, stop=_through(spec.stop, draft.age(draft.wanted[tier].at)))


def _begun(draft: Draft, tier: TierName, kind: ChangeKind) -> Timed:
    return Timed(by=draft.wanted[tier].by, at=draft.now, predicted_seconds=draft.pace.rest.get(kind))


def _through(timed: Timed, seconds: float) -> Timed:
    return timed.model_copy(update={"seconds": seconds})


def _note(draft: Draft, tier: TierName, number: Incarnation, **timed: Timed | None) -> None:
    draft.incarnations[tier][number] = draft.incarnations[tier][number].model_copy(update=timed)
