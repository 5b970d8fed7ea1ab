"""Times the starts and stops that somebody asked for, beside the predicted time.

Called by `tier_lifecycle`.

The times are in the tier's incarnation: all writes of a tier go into one request (`split_writes`).
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.model.change import START, STOP, ChangeKind
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import Timed


def start_begins(draft: Draft, tier: TierName, number: Incarnation) -> None:
    """Note the begin of a start and its predicted time."""
    _note(draft, tier, number, start=_started(draft, tier, START))


def carry_start_over(draft: Draft, tier: TierName, old: Incarnation, number: Incarnation) -> None:
    """Hand the timing of a start over, as the old incarnation died while starting."""
    start = draft.incarnations[tier][old].start
    if start is not None and start.seconds is None:
        _note(draft, tier, old, start=None)
        _note(draft, tier, number, start=start)


def note_start(draft: Draft, tier: TierName, owner: Incarnation) -> None:
    """Note how long the start took, once the tier runs or is paused as requested."""
    spec = draft.incarnations[tier][owner]
    if spec.start is not None and spec.start.seconds is None and health.confirmed(draft, tier):
        _note(draft, tier, owner, start=_finished(spec.start, draft.age(spec.start.at)))


def stop_begins(draft: Draft, tier: TierName) -> None:
    """Note the begin of the owner's stop and its predicted time, if the owner lives."""
    owner = draft.owners[tier].owner
    if owner in draft.incarnations[tier] and not health.has_ended(draft, tier, Incarnation(owner)):
        _note(draft, tier, Incarnation(owner), stop=_started(draft, tier, STOP))


def note_stop(draft: Draft, tier: TierName) -> None:
    """Note how long the stop took, counted from the tier's turn."""
    owner = draft.owners[tier].owner
    spec = None if owner is None else draft.incarnations[tier].get(owner)
    if spec is not None and spec.stop is not None and spec.stop.seconds is None:
        _note(draft, tier, spec.incarnation, stop=_finished(spec.stop, draft.age(draft.wanted[tier].at)))


def _started(draft: Draft, tier: TierName, kind: ChangeKind) -> Timed:
    return Timed(by=draft.wanted[tier].by, at=draft.now, predicted_seconds=draft.pace.rest.get(kind))


def _finished(timed: Timed, seconds: float) -> Timed:
    return timed.model_copy(update={"seconds": seconds})


def _note(draft: Draft, tier: TierName, number: Incarnation, **timed: Timed | None) -> None:
    draft.incarnations[tier][number] = draft.incarnations[tier][number].model_copy(update=timed)
