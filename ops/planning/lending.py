"""Slots of the tenant `batch` in a plan: which it keeps, what the hosts have when it gives back the others, and where it is lent more."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from ops.model.ids import BATCH, HostName, TierName
from ops.model.operation import Move
from ops.planning.ask import Ask
from ops.planning.cluster import Cluster, Host, RefusedError, holding
from ops.planning.placement import place
from ops.planning.shares import target
from ops.planning.shortage import lacking, most


def keepable(cluster: Cluster, places: Iterable[str | None]) -> tuple[HostName, ...]:
    """Return the slots that batch may keep, those first that make the least room: away from where it is needed, and on full hosts.

    Those on hosts that hold more than they have come last.
    """
    fit = [cluster.hosts[name] for name in cluster.batch if name in cluster.hosts and cluster.hosts[name].usable]
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


def yielding(
    kept: tuple[HostName, ...], least: int, short: Iterable[Move], moves: Iterable[Move], cluster: Cluster
) -> tuple[HostName, ...]:
    """Return what batch keeps beside these moves: it holds on to none above its minimum where one that is short could have a slot more."""
    hosts = giving_back(cluster, ()).hosts
    for move in moves:
        hosts = holding(hosts, cluster.tiers[move.tier].spec, move.after)
    of_use = {name for move in short for name in kept if _could_have(move.tier, hosts[name], cluster)}
    others = [name for name in kept if name not in of_use]
    return (*others, *[name for name in kept if name in of_use][: max(0, least - len(others))])


def _could_have(tier: TierName, host: Host, cluster: Cluster) -> bool:
    """Tell whether a slot of a tier may be on a host, and would have room there; how far apart its slots have to be is not asked."""
    to = target(tier, cluster.rules).to
    there = host.matches(to) or not any(each.usable and each.matches(to) for each in cluster.hosts.values())
    return there and host.takes(cluster.tiers[tier].spec.quantum) and host.admits(tier)


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
