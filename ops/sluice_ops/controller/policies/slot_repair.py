"""Slot repair: slots that were lost with their host, or died on a host out of use, start elsewhere.

They keep their label. Spark gives the application an executor on a new worker of its label at once,
so neither the driver nor the incarnation changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import batch, health, resize_in_place
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.assignment import HostState, UnitState, slot_id
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import IncarnationSpec
from sluice_ops.model.resources import Quantum
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import more_slots, place
from sluice_ops.planning.shortage.fitting import (
    fewest_slots,
    place_lost,
    requests_for_minimums,
    why_no_room_together,
)
from sluice_ops.snapshot.view import TierView


def replace_lost_slots(draft: Draft, tier: TierView) -> str | None:
    """Move the lost slots of owner and next incarnation; return why some could not be moved."""
    name = tier.spec.name
    record = draft.owners[name]
    for spec in draft.unretired(name):
        lost = {} if draft.usable_hosts().issuperset(spec.placement.slots) else dict(_lost(draft, spec))
        if not lost or spec.incarnation not in {record.owner, record.next}:
            continue
        held = draft.braked.intersection(lost.values())
        if held:
            return (
                f"runs without its slots on {listed(sorted(held))}: "
                "many hosts were lost at once, so nothing is moved"
            )
        why = _replace(draft, tier, spec, lost)
        if why is not None:
            return why
    return None


def _replace(draft: Draft, tier: TierView, spec: IncarnationSpec, lost: Mapping[int, HostName]) -> str | None:
    """Move as many lost slots as there is room for; return why the others could not be moved."""
    name, slots = tier.spec.name, list(spec.placement.slots)
    try:
        alive = [host for number, host in enumerate(slots) if number not in lost]
        hosts = place_lost(tier.spec, len(lost), alive, cluster_of_draft(draft))
    except RefusedError as refused:
        return f"runs without its slots on {listed(sorted(set(lost.values())))}: {refused}"
    moved = dict(zip(lost, hosts, strict=False))
    if moved:
        moves = [f"slot {number} from {slots[number]} to {host}" for number, host in moved.items()]
        draft.log(f"{name}: incarnation {spec.incarnation} moves {listed(moves)}")
        for number, host in moved.items():
            slots[number] = host
        draft.move_slots(name, spec.incarnation, tuple(slots))
    lost_hosts = [host for number, host in lost.items() if number not in moved]
    if not lost_hosts:
        return None

    kept_hosts = [host for number, host in enumerate(slots) if number in moved or number not in lost]
    aim = target(name, draft.rules)
    asked = more_slots(tier.spec, aim, len(lost_hosts), kept_hosts)
    fewest = replace(
        asked, count=min(len(lost_hosts), fewest_slots(tier.spec, draft.rules) - len(kept_hosts))
    )

    def attempt(request: Request, after: Cluster) -> tuple[list[tuple[HostName, Quantum]], Hosts]:
        others = requests_for_minimums(after, name) if request is asked else ()
        placed = place([request, *others], after.hosts)
        return [(host, request.quantum) for host in placed.where[request.tenant, request.part]], placed.hosts

    waits = batch.make_room_for(draft, name, aim.to, partial(attempt, asked))
    # The tier takes what it lacks of its minimum even if others lack some of theirs.
    if waits is None and fewest.count > 0:
        waits = batch.make_room_for(draft, name, aim.to, partial(attempt, fewest))
    if waits is None:
        draft.shortage.needy.append(name)
    why = (
        f"waits for {waits}"
        if waits is not None
        else why_no_room_together([asked], cluster_of_draft(draft).hosts)
    )
    return (
        f"runs without its slots on {listed(sorted(set(lost_hosts)))}: "
        f"{why or 'the room is kept for tiers below their minimum'}"
    )


def _lost(draft: Draft, spec: IncarnationSpec) -> Iterable[tuple[int, HostName]]:
    """Yield the lost slots with their hosts, without slots that the active change takes away."""
    going = resize_in_place.leaving(draft, spec.tier)
    for number, host in enumerate(spec.placement.slots):
        if slot_id(spec.tier, spec.incarnation, number) in going:
            continue
        if draft.is_lost(host):
            yield number, host
        elif draft.host_state(host) is not HostState.UP:
            observed = health.observed_unit(draft, host, slot_id(spec.tier, spec.incarnation, number))
            # An agent reports a slot that has died as starting again, with its last exit.
            if (
                observed is not None
                and observed.state in {UnitState.STARTING, UnitState.EXITED}
                and observed.exit is not None
            ):
                yield number, host
