"""Slots that were lost with their host, or died on a host that takes nothing new, go on elsewhere under the same label.

The application is given an executor for a new worker of its label at once, so neither the driver nor the incarnation has to change.
"""

from collections.abc import Iterable

from ops.controller import vitals
from ops.controller.capacity import cluster
from ops.controller.draft import Draft
from ops.controller.view import TierView
from ops.model.assignment import HostState, UnitState, slot_id
from ops.model.ids import HostName
from ops.model.incarnation import IncarnationSpec
from ops.model.sentence import listed
from ops.planning.cluster import RefusedError
from ops.planning.placement import Ask, place
from ops.planning.shares import target


def replace_lost_slots(draft: Draft, tier: TierView) -> str | None:
    """Move the lost slots of the owner and of the next incarnation; return why some could not be moved."""
    name = tier.spec.name
    record = draft.owners[name]
    for spec in draft.held(name):
        lost = {} if draft.sound().issuperset(spec.placement.slots) else dict(_lost(draft, spec))
        if not lost or spec.incarnation not in {record.owner, record.next}:
            continue
        held = draft.braked.intersection(lost.values())
        if held:
            return f"runs without its slots on {listed(sorted(held))}: too many hosts are lost at once, and nothing is moved"
        now = cluster(draft)
        try:
            placed = place([Ask(name, len(lost), tier.spec.quantum, target(name, now.rules).to)], now.hosts)
        except RefusedError as refused:
            return f"runs without its slots on {listed(sorted(set(lost.values())))}: {refused}"
        slots = list(spec.placement.slots)
        went = [f"slot {number} from {slots[number]} to {host}" for number, host in zip(lost, placed.where[name, "slots"], strict=True)]
        draft.tell(f"{name}: of incarnation {spec.incarnation} goes {listed(went)}")
        for number, host in zip(lost, placed.where[name, "slots"], strict=True):
            slots[number] = host
        draft.place(name, spec.incarnation, spec.placement.model_copy(update={"slots": tuple(slots)}))
    return None


def _lost(draft: Draft, spec: IncarnationSpec) -> Iterable[tuple[int, HostName]]:
    """Yield the slots that will not come back where they are."""
    for number, host in enumerate(spec.placement.slots):
        if draft.is_lost(host):
            yield number, host
        elif draft.state_of(host) is not HostState.UP:
            seen = vitals.seen(draft, host, slot_id(spec.tier, spec.incarnation, number))
            # An agent shows a slot that has died as starting again, with how it ended.
            if seen is not None and seen.state in {UnitState.STARTING, UnitState.EXITED} and seen.exit is not None:
                yield number, host
