"""Slots of the tenant `batch` in a plan: the slots that it keeps, gives back, and is lent in
addition.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from sluice_ops.model.change import Move
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.resources import Quantum
from sluice_ops.planning.placement.cluster import Cluster, Host, Hosts, RefusedError, holding, with_both
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import more_slots, place
from sluice_ops.planning.shortage.fitting import batch_minimum, largest_accepted, requests_for_minimums

T = TypeVar("T")


def keepable(cluster: Cluster, places: Iterable[str | None]) -> tuple[HostName, ...]:
    """Return the slots that batch may keep, the least useful for others first.

    Slots away from `places`, where room is needed, come first, and slots on fuller hosts first.
    Slots on overfull hosts come last.
    """
    usable = [
        cluster.hosts[name] for name in cluster.batch if name in cluster.hosts and cluster.hosts[name].usable
    ]
    needed_places = [to for to in places if to is not None]
    usable.sort(
        key=lambda host: (
            host.overfull,
            any(host.matches(to) for to in needed_places),
            -host.load,
            host.name,
        )
    )
    return tuple(host.name for host in usable[: _share(cluster)])


def giving_back(cluster: Cluster, kept: tuple[HostName, ...]) -> Cluster:
    """Return the cluster after batch gave back all slots except `kept`."""
    hosts = dict(cluster.hosts)
    for name, count in (Counter((*cluster.batch, *cluster.returning)) - Counter(kept)).items():
        if name in hosts:
            hosts[name] = hosts[name].holding(cluster.rules.batch_quantum, -count)
    return cluster.with_hosts(hosts)


def slots_in_the_way(given_back: Iterable[HostName], hosts: Hosts, quantum: Quantum) -> tuple[HostName, ...]:
    """Return the batch slots among `given_back` that do not fit beside what `hosts` should hold.

    Batch can keep the other slots.
    """
    held, in_the_way = dict(hosts), []
    for name in given_back:
        if held[name].fits(quantum):
            held[name] = held[name].holding(quantum)
        else:
            in_the_way.append(name)
    return tuple(in_the_way)


def make_room(
    cluster: Cluster, to: str | None, attempt: Callable[[Cluster], tuple[T, Hosts]]
) -> tuple[T, tuple[HostName, ...]]:
    """Return the attempt's result and the batch slots that have to be given back for it.

    Batch gives back as few slots as possible, and keeps its minimum. `attempt` returns its result
    and the hosts afterwards. `to` is the place of the room. Raise RefusedError if the room is too
    small even then.
    """
    staying = keepable(cluster, (to,))
    least = min(len(staying), batch_minimum(cluster))
    more, (result, hosts) = largest_accepted(
        len(staying) - least,
        lambda more: attempt(giving_back(cluster, staying[: least + more])),
    )
    return result, slots_in_the_way(staying[least + more :], hosts, cluster.rules.batch_quantum)


def top_up(
    moves: Iterable[Move],
    names: Collection[TierName],
    kept: tuple[HostName, ...],
    least: int,
    cluster: Cluster,
) -> tuple[list[Move], tuple[HostName, ...]]:
    """Give the tiers `names` their missing slots as far as there is room beside all moves.

    Return the moves, and the slots that batch then keeps. For each slot of a tier, batch gives back
    as few of its own as possible, all on one host, and keeps `least` slots. While any tenant lacks
    some of its minimum, nothing changes.
    """
    topped_up = list(moves)
    if requests_for_minimums(cluster):
        return topped_up, kept
    hosts, quantum = hosts_during_moves(kept, topped_up, cluster), cluster.rules.batch_quantum
    for number, move in [(number, move) for number, move in enumerate(topped_up) if move.tier in names]:
        spec, aim = cluster.tiers[move.tier].spec, target(move.tier, cluster.rules)
        slots, joins = move.after.slots, not move.in_place or cluster.tiers[move.tier].takes_workers
        for _ in range(move.short if joins else 0):
            place_and_slots = _one_more(
                more_slots(spec, aim, 1, slots), hosts, kept, len(kept) - least, quantum
            )
            if place_and_slots is None:
                break
            name, back = place_and_slots
            hosts[name] = hosts[name].holding(quantum, -back).holding(spec.quantum, 1, move.tier)
            kept, slots = tuple((Counter(kept) - Counter({name: back})).elements()), (*slots, name)
        after = move.after.model_copy(update={"slots": slots})
        topped_up[number] = move.model_copy(
            update={"after": after, "short": move.short - (len(slots) - len(move.after.slots))}
        )
    return topped_up, kept


def _one_more(
    request: Request, hosts: Hosts, kept: tuple[HostName, ...], spare: int, quantum: Quantum
) -> tuple[HostName, int] | None:
    """Return the host for one more slot of a tier, and the slots that batch gives back on this
    host.

    Batch can give back `spare` slots. Return None if the slot finds no room.
    """
    kept_counts = Counter(kept)
    for back in range(min(spare, max(kept_counts.values(), default=0)) + 1):
        freed = (
            {
                name: hosts[name].holding(quantum, -back)
                for name, count in kept_counts.items()
                if count >= back
            }
            if back
            else {}
        )
        with suppress(RefusedError):
            (name,) = place([request], {**hosts, **freed}).where[request.tenant, request.part]
            return name, back
    return None


def hosts_during_moves(
    kept: tuple[HostName, ...], moves: Iterable[Move], cluster: Cluster
) -> dict[HostName, Host]:
    """Return the hosts with old and new incarnations of all handovers, with workers that join or
    are released, and with batch's `kept` slots.
    """
    hosts = dict(giving_back(cluster, kept).hosts)
    for move in moves:
        spec = cluster.tiers[move.tier].spec
        if not move.in_place:
            hosts = holding(hosts, spec, move.after)
        elif move.joining and move.before is not None:
            hosts = with_both(hosts, spec, move.before, move.after)
    return hosts


def lend(kept: tuple[HostName, ...], cluster: Cluster, notes: list[str]) -> tuple[HostName, ...]:
    """Return the hosts of all of batch's slots after a change.

    Batch gets additional slots last, and none from room for other minimums. If some of its share
    find no room, `notes` gets the reason.
    """
    missing = _share(cluster) - len(kept)
    if missing <= 0:
        return tuple(sorted(kept))
    others = [other for other in requests_for_minimums(cluster) if other.tenant != BATCH]

    def lent(count: int) -> tuple[HostName, ...]:
        request = Request(BATCH, count, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to)
        return place([request, *others], cluster.hosts).where[BATCH, "slots"]

    try:
        return tuple(sorted((*kept, *lent(missing))))
    except RefusedError as refused:
        why = str(refused)
    more: tuple[HostName, ...] = ()
    with suppress(RefusedError):
        _, more = largest_accepted(missing - 1, lent) if missing > 1 else (0, ())
    notes.append(f"{missing - len(more)} batch slot(s) wait until there is room: {why}")
    return tuple(sorted((*kept, *more)))


def _share(cluster: Cluster) -> int:
    return target(BATCH, cluster.rules).slots if BATCH in cluster.rules.shares else 0
