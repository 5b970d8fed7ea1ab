"""Slots of the tenant `batch` in a plan: which it keeps, what the hosts have when it gives back the others, and where it is lent more."""

from collections import Counter
from collections.abc import Iterable

from ops.model.ids import BATCH, HostName
from ops.planning.ask import Ask
from ops.planning.cluster import Cluster, RefusedError
from ops.planning.placement import place
from ops.planning.shares import target
from ops.planning.shortage import lacking


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


def lend(kept: tuple[HostName, ...], cluster: Cluster, notes: list[str]) -> tuple[HostName, ...]:
    """Say where all of batch's slots are to be: what it is lent more, it gets last, and not from what others lack of their minimum."""
    missing = _share(cluster) - len(kept)
    if missing <= 0:
        return tuple(sorted(kept))
    ask = Ask(BATCH, missing, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to)
    others = [other for other in lacking(cluster) if other.tenant != BATCH]
    try:
        placed = place([ask, *others], cluster.hosts)
    except RefusedError as refused:
        notes.append(f"{missing} batch slot(s) wait until there is room: {refused}")
        return tuple(sorted(kept))
    return tuple(sorted((*kept, *placed.where[BATCH, "slots"])))


def _share(cluster: Cluster) -> int:
    return target(BATCH, cluster.rules).slots if BATCH in cluster.rules.shares else 0
