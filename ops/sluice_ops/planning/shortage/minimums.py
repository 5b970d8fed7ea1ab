"""Minimums come before what others have beyond theirs: who gives up workers for a tier that lacks some of its own. Pure.

Called by the controller when neither free room nor batch's is enough for such a tier (`settling`).
"""

from collections.abc import Iterable, Mapping

from sluice_ops.model.ids import BATCH, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow, moved
from sluice_ops.planning.placement.requests import Ask
from sluice_ops.planning.placement.shares import limits, target
from sluice_ops.planning.placement.solver import place
from sluice_ops.planning.shortage.fitting import floor, lacking, most
from sluice_ops.planning.shortage.lending import giving_back, keepable
from sluice_ops.planning.shortage.scale_down import why_handed_over


def giving(needy: TierName, able: Iterable[TierName], cluster: Cluster) -> dict[TierName, int]:
    """Say who of these is to go on with how many workers, so that another finds room for what it lacks of its minimum.

    That is one tier, where one will do: the one that gives up the fewest. Else it is several, of which none gives up more than it must. A
    realtime tier, which is without output for a moment, and one nearer the pipeline's end keep theirs first. Nobody, where the other has
    room once batch gives back what it can, or has none in any case.
    """
    asks = [ask for ask in lacking(cluster) if ask.tenant == needy]
    after = _without_batch(needy, cluster)
    fewest = {
        tier.spec.name: k
        for tier in _dearest_first(able, cluster)
        if (k := _fewest(tier, cluster)) is not None
    }
    if not asks or _fits(asks, {}, after) or not _fits(asks, fewest, after):
        return {}
    has = {name: len(_placement(name, cluster).slots) for name in fewest}
    fewer = {
        name: min(has[name] - 1, target(name, cluster.rules).slots) for name in fewest
    }  # who has more than its share comes to that
    alone = {
        name: k
        for name in fewest
        if (k := _keeps(name, fewer[name], fewest[name], {}, asks, after)) is not None
    }
    if alone:
        giver = min(reversed(alone), key=lambda name: has[name] - alone[name])
        return {giver: alone[giver]}
    kept = dict(fewest)
    for name, least in fewest.items():
        without = {**kept, name: has[name]}
        kept[name] = (
            has[name]
            if _fits(asks, without, after)
            else _keeps(name, fewer[name], least, kept, asks, after) or least
        )
    return {name: k for name, k in kept.items() if k < has[name]}


def _dearest_first(names: Iterable[TierName], cluster: Cluster) -> list[TierNow]:
    tiers = [cluster.tiers[name] for name in names]
    return sorted(
        tiers, key=lambda tier: (tier.spec.mode is not Mode.REALTIME, tier.spec.distance, tier.spec.name)
    )


def _without_batch(needy: TierName, cluster: Cluster) -> Cluster:
    """Return the cluster once batch has its minimum only."""
    staying = keepable(cluster, (target(needy, cluster.rules).to,))
    return giving_back(cluster, staying[: limits(BATCH, cluster.rules).minimum])


def _fewest(tier: TierNow, cluster: Cluster) -> int | None:
    """Return with how few workers a tier can go on where it runs; None where it can give up none."""
    now, aim = tier.placement, target(tier.spec.name, cluster.rules)
    if now is None or tier.failed:
        return None
    k = floor(tier.spec, aim, now, cluster.rules)
    return k if 0 < k < len(now.slots) and why_handed_over(tier, aim, now.first(k), cluster) is None else None


def _keeps(  # noqa: PLR0913, PLR0917 - what is tried
    name: TierName, top: int, least: int, others: Mapping[TierName, int], asks: list[Ask], cluster: Cluster
) -> int | None:
    """Return the most workers with which a tier can go on beside others; None where not even the fewest make room."""
    tier, now, aim = cluster.tiers[name], _placement(name, cluster), target(name, cluster.rules)

    def attempt(more: int) -> None:
        k = least + more
        if not _fits(asks, {**others, name: k}, cluster):
            raise RefusedError(name)
        if k < len(now.slots) and (why := why_handed_over(tier, aim, now.first(k), cluster)) is not None:
            raise RefusedError(why)

    try:
        return least + most(top - least, attempt)[0]
    except RefusedError:
        return None


def _fits(asks: list[Ask], kept: Mapping[TierName, int], cluster: Cluster) -> bool:
    """Tell whether there is room for all of this once tiers go on with so many workers."""
    hosts = cluster.hosts
    for name, k in kept.items():
        now = _placement(name, cluster)
        hosts = moved(hosts, cluster.tiers[name].spec, now, now.first(k))
    try:
        place(asks, hosts)
    except RefusedError:
        return False
    return True


def _placement(name: TierName, cluster: Cluster) -> Placement:
    now = cluster.tiers[name].placement
    if now is None:
        message = f"{name} does not run"
        raise RefusedError(message)
    return now
