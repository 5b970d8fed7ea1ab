"""Measures how long tiers wait for slots that `batch` gives back, from the demand until the room is
free.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.batch_queue import taken_for
from sluice_ops.model.assignment import slot_id
from sluice_ops.model.batch import KEPT_RECLAIMS, Reclaim, Reclaims
from sluice_ops.model.ids import BATCH, HostName, UnitId

FIRST_LOOK_SECONDS = 10.0
"""Within this time, a new leader has looked at everything that was there before."""


@dataclass(frozen=True)
class ReclaimRuling:
    """The slots that go back, and the last ones that did."""

    reclaims: Reclaims

    def apply(self, draft: Draft) -> None:
        """Write the measurements."""
        draft.batch_reclaims = self.reclaims


def measured(draft: Draft) -> ReclaimRuling:
    """Measure, once the slots of `batch` are decided.

    A slot that batch gets again, or that is lost with its host, is not measured.
    """
    before = draft.view.batch_reclaims
    kept = {(slot_id(BATCH, 0, number), host) for number, host in draft.batch.items()}
    going = {(each.slot, each.host): each for each in before.going}
    for slot, host in _assigned(draft):
        if (slot, host) not in kept and (slot, host) not in going:
            going[slot, host] = Reclaim(
                slot=slot,
                host=host,
                at=_demanded_at(draft),
                by=taken_for(draft) or "the share of batch",
                limit=draft.rules.reclaim_seconds,
            )
    running = {(unit, host) for host, unit in draft.observed_batch}
    still, ended = [], []
    for key, each in going.items():
        if key in kept or draft.is_lost(each.host):
            continue
        if key in running or not draft.view.hosts[each.host].live:
            still.append(each)
        else:
            ended.append(each.model_copy(update={"seconds": round(_seconds(draft, each.at), 1)}))
    if not ended and tuple(still) == before.going:
        return ReclaimRuling(before)
    return ReclaimRuling(Reclaims(going=tuple(still), ended=(*before.ended, *ended)[-KEPT_RECLAIMS:]))


def _assigned(draft: Draft) -> Iterator[tuple[UnitId, HostName]]:
    """Yield the slots that `batch` had before this pass."""
    for name, host in draft.view.hosts.items():
        for unit in host.assignment.batch:
            yield unit, name


def _demanded_at(draft: Draft) -> float:
    """Return when the change began that needs the room; now if a tier needs it."""
    if draft.shortage.promised:
        return draft.now
    moving = [change.started_at for change in draft.active_changes() if change.plan.moves]
    return min(moving, default=draft.now)


def _seconds(draft: Draft, at: float) -> float:
    """Return the time since a demand.

    A leader that may have missed the demand trusts the wall clock if this shows more.
    """
    age = draft.age(at)
    has_seen_demand = age < draft.inputs.led_seconds - FIRST_LOOK_SECONDS
    return age if has_seen_demand else max(age, draft.now - at)
