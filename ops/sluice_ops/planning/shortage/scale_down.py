"""Fewer workers without a hand-over: a tier lets its last ones go where it runs (decision record 0041). Pure.

Called by `plan`, and by `minimums`.
"""

from sluice_ops.model.assignment import HostState
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.placement.cluster import Cluster, TierNow
from sluice_ops.planning.placement.drift import breaches, numbers
from sluice_ops.planning.placement.shares import Target
from sluice_ops.planning.shortage.fitting import least

STAYS = frozenset({HostState.UP, HostState.CORDONED})
"""What runs on such a host may stay."""


def kept_in_place(tier: TierNow, aim: Target, cluster: Cluster, left: int | None = None) -> Placement | None:
    """Return what a tier keeps that lets its last workers go; None where it cannot, or is to have no fewer than it has.

    `left`: how many workers it goes on with, where it makes room for another tier.
    """
    now = tier.placement
    if now is None:
        return None
    k = numbers(now, aim, cluster.hosts)[0] if left is None else left
    after = now.first(k)
    return after if 0 < k < len(now.slots) and why_handed_over(tier, aim, after, cluster) is None else None


def why_handed_over(tier: TierNow, aim: Target, after: Placement, cluster: Cluster) -> str | None:
    """Say why a tier cannot go on, where it runs, with its first workers alone."""
    name, hosts = tier.spec.name, cluster.hosts
    running = cluster.shape(name, tier.release)
    too_few = tier.spec.mode is Mode.REALTIME and len(after.slots) < least(tier.spec, cluster.rules)
    stay = all(
        host in hosts and hosts[host].state in STAYS and hosts[host].matches(aim.to) for host in after.hosts
    )
    why = {
        "its state lies with its workers": tier.spec.state
        or (running is not None and running.state is not None),
        "its standby is as large as itself": tier.spec.standby is not Standby.NONE,
        "it does not work with all of its workers": tier.paused or bool(tier.paused_workers),
        "some of its workers are a burst's": aim.extra > 0,
        "the others have too few threads": too_few,
        "not all of the others may stay where they are": not stay,
    }
    found = (reason for reason, holds in why.items() if holds)
    return next(found, None) or next(iter(breaches(name, after, aim, hosts)), None)
