"""Minimums first: which tiers release workers for a tier that lacks some of its minimum. Pure.

The controller (`settling`) calls this module if neither free room nor batch's slots are enough.
"""

from collections.abc import Iterable, Mapping

from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow, moved
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place
from sluice_ops.planning.shortage.fitting import (
    batch_minimum,
    fewest_slots_in_change,
    largest_accepted,
    requests_for_minimums,
)
from sluice_ops.planning.shortage.in_place import kept_for_others, why_handed_over
from sluice_ops.planning.shortage.lending import giving_back, keepable


def giving(needy: TierName, able: Iterable[TierName], cluster: Cluster) -> dict[TierName, int]:
    """Return with how many workers some of the tiers `able` continue, to make room for `needy`.

    Spares go first. If one tier is enough, it is the tier that releases the fewest workers.
    Otherwise several tiers release workers, and none of them more than it must. Realtime tiers,
    which have a gap then, and tiers nearer the pipeline's end keep their workers first.

    Return nothing if `needy` finds room as soon as batch gives back what it can, or if it finds no
    room in any case.
    """
    requests = [request for request in requests_for_minimums(cluster) if request.tenant == needy]
    after = _without_batch(needy, cluster)
    if not requests or _fits(requests, {}, after):
        return {}
    tiers = _most_valuable_first(able, cluster)
    return _giving(requests, _without_spares(tiers, cluster), after, cluster) or _giving(
        requests, _fewest_of(tiers, cluster), after, cluster
    )


def _without_spares(tiers: Iterable[TierNow], cluster: Cluster) -> dict[TierName, int]:
    """Return with how many workers tiers continue that release spares only."""
    aims = {tier.spec.name: target(tier.spec.name, cluster.rules) for tier in tiers}
    return {
        name: max(k, aims[name].at_work)
        for name, k in _fewest_of(tiers, cluster).items()
        if max(k, aims[name].at_work) < len(_placement(name, cluster).slots)
    }


def _fewest_of(tiers: Iterable[TierNow], cluster: Cluster) -> dict[TierName, int]:
    return {tier.spec.name: k for tier in tiers if (k := _fewest(tier, cluster)) is not None}


def _giving(
    requests: list[Request], fewest: Mapping[TierName, int], after: Cluster, cluster: Cluster
) -> dict[TierName, int]:
    """Return with how many workers tiers continue, each with at least its `fewest`.

    Return nothing if the requests find no room even then. `after` is the cluster without the slots
    that batch gives back.
    """
    if not _fits(requests, fewest, after):
        return {}
    has = {name: len(_placement(name, cluster).slots) for name in fewest}
    # A tier with more than its share gets no more than its share.
    most_after = {name: min(has[name] - 1, target(name, cluster.rules).own) for name in fewest}
    enough_alone = {
        name: k
        for name in fewest
        if (k := _keeps(name, most_after[name], fewest[name], {}, requests, after)) is not None
    }
    if enough_alone:
        giver = min(reversed(enough_alone), key=lambda name: has[name] - enough_alone[name])
        return {giver: enough_alone[giver]}
    kept = dict(fewest)
    for name, least in fewest.items():
        without = {**kept, name: has[name]}
        kept[name] = (
            has[name]
            if _fits(requests, without, after)
            else _keeps(name, most_after[name], least, kept, requests, after) or least
        )
    return {name: k for name, k in kept.items() if k < has[name]}


def _most_valuable_first(names: Iterable[TierName], cluster: Cluster) -> list[TierNow]:
    tiers = [cluster.tiers[name] for name in names]
    return sorted(
        tiers, key=lambda tier: (tier.spec.mode is not Mode.REALTIME, tier.spec.distance, tier.spec.name)
    )


def _without_batch(needy: TierName, cluster: Cluster) -> Cluster:
    """Return the cluster after batch gave back all slots above its minimum."""
    staying = keepable(cluster, (target(needy, cluster.rules).to,))
    return giving_back(cluster, staying[: batch_minimum(cluster)])


def _fewest(tier: TierNow, cluster: Cluster) -> int | None:
    """Return the fewest workers with which a tier can continue in place; None if it can release
    none.
    """
    now, aim = tier.placement, target(tier.spec.name, cluster.rules)
    if now is None or tier.failed:
        return None
    fewest = fewest_slots_in_change(tier.spec, aim, now, cluster.rules)
    numbers = range(fewest, len(now.slots))
    return next((k for k in numbers if kept_for_others(tier, aim, cluster, k) is not None), None)


def _keeps(  # noqa: PLR0913, PLR0917 - one attempt with its bounds
    name: TierName,
    top: int,
    least: int,
    others: Mapping[TierName, int],
    requests: list[Request],
    cluster: Cluster,
) -> int | None:
    """Return the most workers, from `least` to `top`, with which a tier makes enough room.

    `others` continue with the given workers. Return None if not even `least` makes enough room.
    """
    tier, now, aim = cluster.tiers[name], _placement(name, cluster), target(name, cluster.rules)

    def attempt(more: int) -> None:
        k = least + more
        if not _fits(requests, {**others, name: k}, cluster):
            raise RefusedError(name)
        if k < len(now.slots) and (why := why_handed_over(tier, aim, now.first(k), cluster)) is not None:
            raise RefusedError(why)

    try:
        return least + largest_accepted(top - least, attempt)[0]
    except RefusedError:
        return None


def _fits(requests: list[Request], kept: Mapping[TierName, int], cluster: Cluster) -> bool:
    """Return whether all requests find room if the tiers in `kept` continue with so many
    workers.
    """
    hosts = cluster.hosts
    for name, k in kept.items():
        now = _placement(name, cluster)
        hosts = moved(hosts, cluster.tiers[name].spec, now, now.first(k))
    try:
        place(requests, hosts)
    except RefusedError:
        return False
    return True


def _placement(name: TierName, cluster: Cluster) -> Placement:
    now = cluster.tiers[name].placement
    if now is None:
        message = f"{name} does not run"
        raise RefusedError(message)
    return now
