"""Slots of the tenant `batch` in a plan: which it keeps, what the hosts have when it gives back the others, and where it is lent more."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from sluice_ops.model.change import Move
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.resources import Quantum
from sluice_ops.planning.placement.cluster import Cluster, Host, Hosts, RefusedError, holding
from sluice_ops.planning.placement.requests import Ask
from sluice_ops.planning.placement.shares import limits, target
from sluice_ops.planning.placement.solver import more_slots, place
from sluice_ops.planning.shortage.fitting import lacking, most

T = TypeVar("T")


def keepable(cluster: Cluster, places: Iterable[str | None]) -> tuple[HostName, ...]:
    """Return the slots that batch may keep, those first that make the least room: away from where it is needed, and on full hosts.

    Those on hosts that hold more than they have come last.
    """
    fit = [
        cluster.hosts[name] for name in cluster.batch if name in cluster.hosts and cluster.hosts[name].usable
    ]
    sought = [to for to in places if to is not None]
    fit.sort(key=lambda host: (host.overfull, any(host.matches(to) for to in sought), -host.load, host.name))
    return tuple(host.name for host in fit[: _share(cluster)])


def giving_back(cluster: Cluster, kept: tuple[HostName, ...]) -> Cluster:
    """Return the cluster once batch has no slots but these."""
    hosts = dict(cluster.hosts)
    for name, count in (Counter((*cluster.batch, *cluster.returning)) - Counter(kept)).items():
        if name in hosts:
            hosts[name] = hosts[name].holding(cluster.rules.batch_quantum, -count)
    return cluster.with_hosts(hosts)


def hindering(given: Iterable[HostName], hosts: Hosts, quantum: Quantum) -> tuple[HostName, ...]:
    """Return those of the slots that batch is to give back which are in the way of what the hosts are to hold; the others are of no use."""
    held, found = dict(hosts), []
    for name in given:
        if held[name].fits(quantum):
            held[name] = held[name].holding(quantum)
        else:
            found.append(name)
    return tuple(found)


def make_room(
    cluster: Cluster, to: str | None, attempt: Callable[[Cluster], tuple[T, Hosts]]
) -> tuple[T, tuple[HostName, ...]]:
    """Have batch give back as few slots as make room for what is attempted at a place, and none below its minimum.

    Return what was found, and the slots; an attempt returns what the hosts then hold, too. RefusedError when it would not help.
    """
    staying = keepable(cluster, (to,))
    floor = min(len(staying), limits(BATCH, cluster.rules).minimum)
    more, (found, hosts) = most(
        len(staying) - floor, lambda more: attempt(giving_back(cluster, staying[: floor + more]))
    )
    return found, hindering(staying[floor + more :], hosts, cluster.rules.batch_quantum)


def top_up(
    moves: Iterable[Move],
    names: Collection[TierName],
    kept: tuple[HostName, ...],
    least: int,
    cluster: Cluster,
) -> tuple[list[Move], tuple[HostName, ...]]:
    """Give these tiers, as far as they are short, what there is room for beside all that moves; return what batch then keeps.

    For each slot batch gives back as few of its own as will do, all on one host, and none below its minimum. While a tenant lacks some of
    its minimum the room is left to that one.
    """
    found = list(moves)
    if lacking(cluster):
        return found, kept
    hosts, quantum = doubled(kept, found, cluster), cluster.rules.batch_quantum
    for number, move in [(number, move) for number, move in enumerate(found) if move.tier in names]:
        spec, aim = cluster.tiers[move.tier].spec, target(move.tier, cluster.rules)
        slots = move.after.slots
        for _ in range(move.short):
            one = _one_more(more_slots(spec, aim, 1, slots), hosts, kept, len(kept) - least, quantum)
            if one is None:
                break
            name, back = one
            hosts[name] = hosts[name].holding(quantum, -back).holding(spec.quantum, 1, move.tier)
            kept, slots = tuple((Counter(kept) - Counter({name: back})).elements()), (*slots, name)
        after = move.after.model_copy(update={"slots": slots})
        found[number] = move.model_copy(
            update={"after": after, "short": move.short - (len(slots) - len(move.after.slots))}
        )
    return found, kept


def _one_more(
    ask: Ask, hosts: Hosts, kept: tuple[HostName, ...], spare: int, quantum: Quantum
) -> tuple[HostName, int] | None:
    """Return where one more slot of a tier finds room, and how many slots batch gives back for it there; None where it finds none."""
    there = Counter(kept)
    for back in range(min(spare, max(there.values(), default=0)) + 1):
        less = (
            {name: hosts[name].holding(quantum, -back) for name, count in there.items() if count >= back}
            if back
            else {}
        )
        with suppress(RefusedError):
            (name,) = place([ask], {**hosts, **less}).where[ask.tenant, ask.part]
            return name, back
    return None


def doubled(kept: tuple[HostName, ...], moves: Iterable[Move], cluster: Cluster) -> dict[HostName, Host]:
    """Return the hosts when they hold all that is handed over twice, and batch's slots that it keeps."""
    hosts = dict(giving_back(cluster, kept).hosts)
    for move in (move for move in moves if not move.in_place):
        hosts = holding(hosts, cluster.tiers[move.tier].spec, move.after)
    return hosts


def lend(kept: tuple[HostName, ...], cluster: Cluster, notes: list[str]) -> tuple[HostName, ...]:
    """Say where all of batch's slots are to be: what it is lent more, it gets last, and not from what others lack of their minimum."""
    missing = _share(cluster) - len(kept)
    if missing <= 0:
        return tuple(sorted(kept))
    others = [other for other in lacking(cluster) if other.tenant != BATCH]

    def lent(count: int) -> tuple[HostName, ...]:
        ask = Ask(BATCH, count, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to)
        return place([ask, *others], cluster.hosts).where[BATCH, "slots"]

    try:
        return tuple(sorted((*kept, *lent(missing))))
    except RefusedError as refused:
        why = str(refused)
    more: tuple[HostName, ...] = ()
    with suppress(RefusedError):
        _, more = most(missing - 1, lent) if missing > 1 else (0, ())
    notes.append(f"{missing - len(more)} batch slot(s) wait until there is room: {why}")
    return tuple(sorted((*kept, *more)))


def _share(cluster: Cluster) -> int:
    return target(BATCH, cluster.rules).slots if BATCH in cluster.rules.shares else 0
