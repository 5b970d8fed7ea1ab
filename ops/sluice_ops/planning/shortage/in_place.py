"""Another number of workers without a handover.

A tier releases its last workers in place (decision 41), or gets more (decision 65).
`plan` and `minimums` call this module. Pure.
"""

from sluice_ops.model.assignment import HostState
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.placement.cluster import Cluster, Hosts, TierNow
from sluice_ops.planning.placement.drift import breaches, right_numbers
from sluice_ops.planning.placement.shares import Target
from sluice_ops.planning.placement.solver import more_slots, place
from sluice_ops.planning.shortage.fitting import fewest_slots

STAYS = frozenset({HostState.UP, HostState.CORDONED})
"""The states of hosts on which units may stay."""


def kept_in_place(
    tier: TierNow, aim: Target, cluster: Cluster, workers: int | None = None
) -> Placement | None:
    """Return what a tier keeps if it releases its last workers in place.

    `workers` are the workers to keep, if the tier makes room for another tier; None: its target.
    Return None if the tier cannot release workers in place, or should have no fewer workers.
    """
    now = tier.placement
    if now is None:
        return None
    k = right_numbers(now, aim, cluster.hosts)[0] if workers is None else workers
    after = now.first(k)
    return after if 0 < k < len(now.slots) and why_handed_over(tier, aim, after, cluster) is None else None


def more_in_place(
    tier: TierNow, aim: Target, hosts: Hosts, cluster: Cluster
) -> tuple[Placement, Hosts] | None:
    """Add the workers that a tier lacks; return its placement, and what the hosts then hold.

    Return None if the tier lacks none, or has to be handed over. Raise RefusedError if there is no
    room.
    """
    now = tier.placement
    if now is None:
        return None
    more = right_numbers(now, aim, cluster.hosts)[0] - len(now.slots)
    if more <= 0 or not joins_in_place(tier, aim, cluster):
        return None
    request = more_slots(tier.spec, aim, more, now.slots)
    placed = place([request], hosts)
    added = placed.where[request.tenant, request.part]
    return now.model_copy(update={"slots": (*now.slots, *added)}), placed.hosts


def joins_in_place(tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Return whether a running tier gets workers in place.

    A realtime tier is handed over: the tasks of its query stay with the workers that it began with.
    """
    return (
        tier.placement is not None
        and tier.spec.mode is not Mode.REALTIME
        and tier.takes_workers
        and why_handed_over(tier, aim, tier.placement, cluster) is None
    )


def why_handed_over(tier: TierNow, aim: Target, after: Placement, cluster: Cluster) -> str | None:
    """Return why a tier cannot continue in place with these of its workers; None if it can."""
    name, hosts = tier.spec.name, cluster.hosts
    running = cluster.shape(name, tier.release)
    too_few = tier.spec.mode is Mode.REALTIME and len(after.slots) < fewest_slots(tier.spec, cluster.rules)
    may_stay = all(
        host in hosts and hosts[host].state in STAYS and hosts[host].matches(aim.to) for host in after.hosts
    )
    obstacles = {
        "it keeps state in its workers": tier.spec.state
        or (running is not None and running.state is not None),
        "its standby has as many workers": tier.spec.standby is not Standby.NONE,
        "it, or one of its workers, is paused": tier.paused or bool(tier.paused_workers),
        "some of its workers belong to a burst": aim.extra > 0,
        "the other workers have too few threads": too_few,
        "not all of the other workers may stay on their hosts": not may_stay,
    }
    reasons = (reason for reason, is_present in obstacles.items() if is_present)
    return next(reasons, None) or next(iter(breaches(name, after, aim, hosts)), None)
