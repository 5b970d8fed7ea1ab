"""The slots of the tenant `batch`: lent up to its share, taken back for tiers and drains."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.assignment import HostState, slot_number
from sluice_ops.model.batch import task_seconds
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place
from sluice_ops.planning.shortage.fitting import largest_accepted, requests_for_minimums
from sluice_ops.planning.shortage.lending import make_room

KEEPS_SLOTS = frozenset({HostState.UP, HostState.CORDONED})
"""States of a host in which `batch` keeps its slots."""

Attempt = Callable[[Cluster], tuple[Iterable[tuple[HostName, Quantum]], Hosts]]
"""Places units in a cluster: returns each unit with its host, and what the hosts then hold."""


@dataclass(frozen=True)
class BatchRuling:
    """The slots that `batch` has from now on."""

    slots: Mapping[int, HostName]
    events: tuple[str, ...] = ()

    def apply(self, draft: Draft) -> None:
        """Give `batch` exactly these slots."""
        draft.lend(self.slots)
        draft.log(*self.events)


def slots_to_keep(draft: Draft) -> BatchRuling:
    """Decide which slots `batch` keeps.

    The others are taken back before any tier looks for room.
    """
    now = {slot_number(unit): host for host, held in draft.assignments.items() for unit in held.batch}
    kept = {
        number: host
        for number, host in sorted(now.items())
        if draft.host_state(host) in KEEPS_SLOTS or host in draft.braked
    }
    for change in draft.active_changes():
        if change.plan.moves:
            usable = {number: host for number, host in kept.items() if host in draft.usable_hosts()}
            planned = _slots_on(change.plan.batch_kept, usable)
            kept = {
                number: host for number, host in kept.items() if number in planned or number not in usable
            }
    if not draft.view.unread_hosts:  # otherwise a share in per cent would be too small
        kept = dict(list(kept.items())[: _share(draft)])
    return BatchRuling(kept, _given_back(now, kept))


def slots_to_lend(draft: Draft) -> BatchRuling:
    """Lend slots up to the share, unless a tier is short of room or a change moves tiers."""
    missing = _share(draft) - len(draft.batch)
    if missing <= 0 or draft.shortage or draft.posted or any(c.plan.moves for c in draft.active_changes()):
        return BatchRuling(draft.batch)
    now = cluster_of_draft(draft)
    quantum, to = now.rules.batch_quantum, target(BATCH, now.rules).to
    room = sum(host.fits(quantum) for host in now.hosts.values() if host.usable and host.matches(to))
    others = [ask for ask in requests_for_minimums(now) if ask.tenant != BATCH]
    try:
        _, placed = largest_accepted(
            max(0, min(missing, room) - 1),
            lambda more: place([Request(BATCH, 1 + more, quantum, to), *others], now.hosts),
        )
    except RefusedError:
        return BatchRuling(draft.batch)
    lent = placed.where[BATCH, "slots"]
    free_numbers = (number for number in count() if number not in draft.batch)
    slots = {**draft.batch, **dict(zip(islice(free_numbers, len(lent)), lent, strict=True))}
    return BatchRuling(slots, (f"batch is lent {len(lent)} slot(s) on {listed(sorted(set(lent)))}",))


def make_room_for(draft: Draft, tier: TierName, to: str | None, attempt: Attempt) -> str | None:
    """Take back as few slots of `batch` as `attempt` needs to place units of a tier.

    Return what the tier waits for; None if slots of batch would not help. The tier waits until the
    tasks in these slots are done, or the agent ends them. Later tiers of the pass do not count on
    this room.
    """
    now = _with_promised(draft, cluster_of_draft(draft))
    try:
        units, hosts = make_room(now, to, attempt)
    except RefusedError:
        return None
    draft.shortage.promised[tier] = tuple(units)
    before, gives = dict(draft.batch), _slots_on(hosts, draft.batch)
    draft.lend({number: host for number, host in before.items() if number not in gives})
    draft.log(*_given_back(before, draft.batch))
    return awaited(cluster_of_draft(draft))


def _with_promised(draft: Draft, now: Cluster) -> Cluster:
    """Return the cluster as if the tiers with promised room ran there already."""
    hosts, tiers = dict(now.hosts), dict(now.tiers)
    for name, units in draft.shortage.promised.items():
        tiers[name] = replace(tiers[name], wanted=False)
        for host, quantum in units:
            hosts[host] = hosts[host].holding(quantum, 1, name)
    return replace(now, hosts=hosts, tiers=tiers)


def awaited(now: Cluster) -> str:
    """Say which slots `batch` has still to give back."""
    where = listed(sorted(set(now.returning)))
    seconds = f"{task_seconds(now.rules.reclaim_seconds):g} s"
    return f"{len(now.returning)} slot(s) of batch on {where}, whose tasks may run for {seconds} more"


def _share(draft: Draft) -> int:
    """Return how many slots `batch` may hold now."""
    return target(BATCH, draft.rules).slots if BATCH in draft.rules.shares else 0


def _slots_on(hosts: tuple[HostName, ...], slots: Mapping[int, HostName]) -> dict[int, HostName]:
    """Choose slots on these hosts: as many on a host as its name occurs in `hosts`."""
    left = Counter(hosts)
    chosen: dict[int, HostName] = {}
    for number, host in slots.items():
        if left[host] > 0:
            left[host] -= 1
            chosen[number] = host
    return chosen


def _given_back(before: Mapping[int, HostName], after: Mapping[int, HostName]) -> tuple[str, ...]:
    gone = [host for number, host in before.items() if number not in after]
    return (f"batch gives back {len(gone)} slot(s) on {listed(sorted(set(gone)))}",) if gone else ()
