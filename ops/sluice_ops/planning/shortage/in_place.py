"""Another number of workers without a handover.

A tier keeps its first workers, releases the others (decision 41), and gets the workers that it then
lacks (decision 65), also those of a burst (decision 70). `plan` and `minimums` call this module.
Pure.
"""

from dataclasses import dataclass, replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.placement.cluster import Cluster, Host, Hosts, TierNow, moved, with_both
from sluice_ops.planning.placement.drift import breaches, by_place, lost_pins, right_numbers
from sluice_ops.planning.placement.requests import EXTRA
from sluice_ops.planning.placement.shares import Target, available_extra
from sluice_ops.planning.placement.solver import more_slots, place
from sluice_ops.planning.shortage.fitting import fewest_slots, fewest_slots_in_change

STAYS = frozenset({HostState.UP, HostState.CORDONED})
"""The states of hosts on which units may stay."""


@dataclass(frozen=True)
class Resize:
    """What a tier does in place: it keeps its first workers, and gets so many more."""

    kept: Placement
    home: int
    """The further workers at the tier's place."""
    burst: int
    """The further workers at the place of its burst."""
    short: int
    """The workers of its share that the tier still lacks then."""
    back: tuple[HostName, ...] = ()
    """The hosts of released workers that could have stayed; further workers start there first."""

    @property
    def joining(self) -> int:
        return self.home + self.burst


def resize_of(tier: TierNow, aim: Target, share: Target, cluster: Cluster) -> Resize | None:
    """Return how a tier gets its right number of workers in place; None if it is handed over.

    `share` tells which workers stay, and `aim` how many the tier gets at its own place: fewer than
    its share if room is short.
    """
    now, hosts = tier.placement, cluster.hosts
    if now is None:
        return None
    resize = difference(now, aim, share, hosts)
    released = now.slots[len(resize.kept.slots) :]
    # A worker that could come back is lost: the tier gets it back without a release of others.
    is_lost = bool(resize.joining) and any(
        name in hosts and _may_be(hosts[name], share) and hosts[name].state not in STAYS for name in released
    )
    if is_lost or not (released or resize.joining) or (resize.joining and not tier.takes_workers):
        return None
    if why_handed_over(tier, share, resize.kept, cluster) is not None:
        return None
    meanwhile = fewest_slots_in_change(tier.spec, share, now, cluster.rules)
    return None if released and resize.joining and len(resize.kept.slots) < meanwhile else resize


def difference(now: Placement, aim: Target, share: Target, hosts: Hosts) -> Resize:
    """Return which of its first workers a tier keeps, and which it lacks then.

    `share` and `aim` are as in `resize_of`.
    """
    kept = now.first(_staying(now, share, hosts))
    at_home, at_burst = by_place(kept, share, hosts)
    home = max(0, aim.own - at_home)
    back = [name for name in now.slots[len(kept.slots) :] if name in hosts and _may_be(hosts[name], share)]
    return Resize(
        kept,
        home,
        max(0, available_extra(aim, hosts) - at_burst),
        share.own - at_home - home,
        tuple(name for name in back if hosts[name].usable),
    )


def resized(tier: TierNow, aim: Target, resize: Resize, hosts: Hosts) -> tuple[Placement, Hosts]:
    """Place the further workers; return the tier's placement, and the hosts with all workers.

    The hosts hold the released workers, too, except where further workers take their room. Raise
    RefusedError if there is no room.
    """
    now = tier.placement or resize.kept
    if not resize.joining:
        return resize.kept, hosts
    home = replace(more_slots(tier.spec, aim, resize.home, resize.kept.slots), keep=resize.back)
    burst = replace(home, count=resize.burst, to=aim.extra_to, part=EXTRA)
    where = place(
        [request for request in (home, burst) if request.count],
        moved(hosts, tier.spec, now, resize.kept),
    ).where
    added = [name for part in (home.part, burst.part) for name in where.get((tier.spec.name, part), ())]
    after = resize.kept.model_copy(update={"slots": (*resize.kept.slots, *added)})
    return after, with_both(hosts, tier.spec, now, after)


def lost_from_burst(now: Placement, share: Target, hosts: Hosts) -> int:
    """Return how many workers of its burst a tier has not on living hosts at the burst's place."""
    living = now.model_copy(
        update={"slots": tuple(name for name in now.slots if name in hosts and _stays(hosts[name], share))}
    )
    return max(0, share.extra - by_place(living, share, hosts)[1])


def kept_for_others(tier: TierNow, aim: Target, cluster: Cluster, workers: int) -> Placement | None:
    """Return what a tier keeps if it releases workers, to make room for another tier.

    Return None if the tier cannot release workers in place, or has no more than `workers`. A tier
    with a burst releases none: its last workers free no room at home.
    """
    now = tier.placement
    if now is None or aim.extra or not 0 < workers < len(now.slots):
        return None
    after = now.first(workers)
    return after if why_handed_over(tier, aim, after, cluster) is None else None


def joins_in_place(tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Return whether a running tier gets workers in place, and keeps all those that it has."""
    return (
        tier.placement is not None
        and tier.takes_workers
        and why_handed_over(tier, aim, tier.placement, cluster) is None
    )


def why_handed_over(tier: TierNow, aim: Target, after: Placement, cluster: Cluster) -> str | None:
    """Return why a tier cannot continue in place with these of its workers; None if it can."""
    name, hosts = tier.spec.name, cluster.hosts
    running = cluster.shape(name, tier.release)
    releases = tier.placement is not None and len(after.slots) < len(tier.placement.slots)
    is_realtime = tier.spec.mode is Mode.REALTIME
    too_few = releases and is_realtime and len(after.slots) < fewest_slots(tier.spec, cluster.rules)
    may_stay = (
        after.driver in hosts
        and hosts[after.driver].state in STAYS
        and hosts[after.driver].matches(aim.to)
        and all(name in hosts and _stays(hosts[name], aim) for name in after.slots)
    )
    obstacles = {
        "it keeps state in its workers": tier.spec.state
        or (running is not None and running.state is not None),
        "its standby has as many workers": tier.spec.standby is not Standby.NONE,
        "it, or one of its workers, is paused": tier.paused or bool(tier.paused_workers),
        "none of its first workers stays": not after.slots,
        "the other workers have too few threads": too_few,
        "not all of the other workers may stay on their hosts": not may_stay,
        "it would release a pinned worker": tier.placement is not None
        and any(lost_pins(name, tier.placement, after, aim, hosts)),
    }
    reasons = (reason for reason, is_present in obstacles.items() if is_present)
    return next(reasons, None) or next(iter(breaches(name, after, aim, hosts)), None)


def _may_be(host: Host, aim: Target) -> bool:
    """Return whether a worker may be on a host: at its tier's place, or at that of the burst."""
    return host.matches(aim.to) or (aim.extra > 0 and host.matches(aim.extra_to))


def _stays(host: Host, aim: Target) -> bool:
    return host.state in STAYS and _may_be(host, aim)


def _staying(now: Placement, aim: Target, hosts: Hosts) -> int:
    """Return how many of the first workers may stay, and are none too many at their place.

    While no host of the burst is up, workers that stand in for it elsewhere are too many.
    """
    numbers = right_numbers(now, aim, hosts)
    count = 0
    for name in now.slots[: numbers[0]]:
        first = now.first(count + 1)
        at_home, at_burst = by_place(first, aim, hosts)
        if name not in hosts or not _stays(hosts[name], aim) or at_home > aim.own or at_burst > aim.extra:
            break
        count += 1
    return count
