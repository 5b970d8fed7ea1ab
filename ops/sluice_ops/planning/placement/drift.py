"""Drift: how running tiers differ from a plan, and the target that repairs them with few moves.

Placement keeps a worker where it may stay. So the next incarnation of a drifted tier moves only the
workers that may not stay. `plan` calls this module.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.spread import Spread
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.placement.cluster import Hosts, RefusedError, TierNow
from sluice_ops.planning.placement.no_room import state_of
from sluice_ops.planning.placement.shares import Target, available_extra
from sluice_ops.planning.placement.solver import place_tier


def drift(tier: TierNow, aim: Target, hosts: Hosts) -> list[str]:
    """Return how a running tier differs from its target. Each text continues the tier's name.

    A tier that is light no more gets workers by an upgrade, and has not drifted.
    """
    now = tier.placement
    if now is None:
        return []
    name = tier.spec.name
    differences = [
        *_starved(name, now, hosts),
        *_on_overfull_hosts(now, hosts),
        *(() if tier.awaits_upgrade else _number(now, aim, hosts)),
        *_at_no_place(aim, hosts),
        *displaced(now, aim, hosts),
        *_pins_to_fill(tier, now, aim, hosts),
    ]
    differences += breaches(name, now, aim, hosts)
    even = evenly_spread(tier, aim, hosts)
    if even is not aim and even.spread is not None:
        fullest, most = Counter(now.slots).most_common(1)[0]
        differences.append(
            f"has {workers(most)} on {fullest}, but there is room to have at most {even.spread.host} on each "
            "host"
        )
    return differences


def breaches(name: str, placement: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return the rules `spread`, `separate` and `dedicated` that a placement breaks."""
    for kind, most in aim.spread or ():
        places = Counter(hosts[slot].within(kind) for slot in placement.slots if slot in hosts)
        over = [
            f"{count} in {kind} {place}"
            for place, count in sorted(places.items())
            if most is not None and count > most
        ]
        if over:
            yield f"has more than the allowed {workers(most)} in one {kind}: {listed(over)}"
    placement_hosts = [hosts[host] for host in sorted(placement.hosts) if host in hosts]
    for host in placement_hosts:
        shared = aim.separate.intersection(host.tiers)
        if shared:
            yield f"is on {host.name} with {listed(sorted(shared))}, from which it has to be separate"
    foreign = [
        f"{host.name} (to {listed(sorted(host.only))})"
        for host in placement_hosts
        if host.only is not None and name not in host.only
    ]
    if foreign:
        yield f"is on hosts that are dedicated to others: {listed(foreign)}"


def evenly_spread(tier: TierNow, aim: Target, hosts: Hosts) -> Target:
    """Return the target with the most even spread for which there is room beside running units.

    The spread is over the usable hosts at the tier's place.
    """
    now = Counter(tier.placement.slots if tier.placement else ())
    fullest = max(now.values(), default=0)
    usable_count = sum(host.usable and host.matches(aim.to) for host in hosts.values())
    # A tier stays at a place where no host takes new units.
    if fullest <= 1 or not usable_count or tier.awaits_upgrade:
        return aim
    spread = aim.spread or Spread()
    most_tight = fullest if spread.host is None else min(fullest, spread.host)
    pinned = (
        min(count, max(now[host], hosts[host].fits(tier.spec.quantum)))
        for host, count in usable_pins(tier.spec.name, aim, hosts).items()
    )
    for most in range(max(1, math.ceil(aim.own / usable_count), *pinned), most_tight):
        tighter = replace(aim, spread=spread.model_copy(update={"host": most}))
        try:
            place_tier(tier.spec, tighter, tier.placement, hosts)
        except RefusedError:
            continue
        return tighter
    return aim


def usable_pins(name: str, aim: Target, hosts: Hosts) -> dict[HostName, int]:
    """Return the pinned workers on each host that may take workers of the tier now."""
    return {
        host: count
        for host, count in aim.pinned.items()
        if host in hosts
        and hosts[host].usable
        and hosts[host].matches(aim.to)
        and hosts[host].admits(name, aim.separate)
    }


def lost_pins(name: str, now: Placement, after: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return the pinned workers that a tier would not have after a move, and has now."""
    for host, count in usable_pins(name, aim, hosts).items():
        if after.slots.count(host) < min(count, now.slots.count(host)):
            yield _pins(after, host, count)


def unmet_pins(name: str, now: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return the pinned workers that a tier lacks, each host with the reason."""
    for host, count in aim.pinned.items():
        if now.slots.count(host) < count:
            yield f"{_pins(now, host, count)}: {_why_unmet(name, host, aim, hosts)}"


def _why_unmet(name: str, host: HostName, aim: Target, hosts: Hosts) -> str:
    if host not in hosts:
        return "there is no such host"
    if not hosts[host].usable:
        return f"{host} {state_of(hosts[host])}"
    if not hosts[host].matches(aim.to):
        return f"{host} is not {'of the site' if aim.to is None else f'at {aim.to}'}"
    if not hosts[host].admits(name, aim.separate):
        return f"`dedicated` or `separate` keeps {name} off {host}"
    if sum(aim.pinned.values()) > aim.own:
        return f"{name} has {workers(aim.own)}, fewer than its pins"
    return f"{host} has no room beside the running units, or `spread` keeps {name} off it"


def _pins_to_fill(tier: TierNow, now: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return the pinned workers that a tier lacks, and gets if it is placed anew."""
    if tier.awaits_upgrade:
        return
    missing = {
        host: count
        for host, count in usable_pins(tier.spec.name, aim, hosts).items()
        if now.slots.count(host) < count and hosts[host].takes(tier.spec.quantum)
    }
    if not missing:
        return
    try:
        after, _ = place_tier(tier.spec, aim, now, hosts)
    except RefusedError:
        return
    for host, count in missing.items():
        if after.slots.count(host) > now.slots.count(host):
            yield _pins(now, host, count)


def _pins(placement: Placement, host: HostName, count: int) -> str:
    return f"has {placement.slots.count(host)} of {count} pinned workers on {host}"


def without_starving(hosts: Hosts) -> Hosts:
    """Return the hosts as a repair sees them: hosts with starved units take no units of a move."""
    starving = {
        name: replace(host, state=HostState.CORDONED)
        for name, host in hosts.items()
        if host.starves and host.usable
    }
    return {**hosts, **starving}


def _starved(name: str, now: Placement, hosts: Hosts) -> Iterable[str]:
    starving_hosts = [host for host in sorted(now.hosts) if host in hosts and name in hosts[host].starves]
    if starving_hosts:
        yield f"is starved of processor time on {listed(starving_hosts)}"


def _on_overfull_hosts(now: Placement, hosts: Hosts) -> Iterable[str]:
    overfull_hosts = [host for host in sorted(now.hosts) if host in hosts and hosts[host].overfull]
    if overfull_hosts:
        yield f"is on {listed(overfull_hosts)}, where units hold more than the capacity"


def right_numbers(now: Placement, aim: Target, hosts: Hosts) -> tuple[int, ...]:
    """Return the right numbers of workers, the preferred one first.

    While no burst host is up, the preferred number is the tier's own workers and the burst's
    workers that still run. The full number is right too, because the tier may keep workers that
    were placed elsewhere when the burst's host was lost.
    """
    if available_extra(aim, hosts) == aim.extra:
        return (aim.k,)
    return aim.own + min(by_place(now, aim, hosts)[1], aim.extra), aim.k


def by_place(placement: Placement, aim: Target, hosts: Hosts) -> tuple[int, int]:
    """Return the numbers of workers at the tier's place and at that of its burst.

    A host at both places counts for the tier's place as long as workers are missing there.
    """
    known = [hosts[name] for name in placement.slots if name in hosts]
    at_home = sum(host.matches(aim.to) for host in known)
    at_burst = sum(host.matches(aim.extra_to) for host in known) if aim.extra else 0
    both = sum(host.matches(aim.to) and host.matches(aim.extra_to) for host in known) if aim.extra else 0
    only_home = at_home - both
    to_home = min(both, max(0, aim.own - only_home))
    return only_home + to_home, at_burst - to_home


def lacks_only_spares(now: Placement, aim: Target, hosts: Hosts) -> bool:
    """Return whether a tier has all workers that work, but not all spares."""
    right = right_numbers(now, aim, hosts)[0]
    at_burst = sum(name in hosts and hosts[name].matches(aim.extra_to) for name in now.slots)
    has_burst = at_burst >= available_extra(aim, hosts)
    return has_burst and right - aim.spare <= len(now.slots) < right


def _number(now: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    right = right_numbers(now, aim, hosts)
    if len(now.slots) not in right and not lacks_only_spares(now, aim, hosts):
        yield f"has {workers(len(now.slots))}, but should have {right[0]}"


def _at_no_place(aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return that no host has the tier's place, even if it is away now."""
    if aim.to is not None and not any(host.matches(aim.to) for host in hosts.values()):
        yield f"has to be at {aim.to}, and there is no such host"


def displaced(now: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return the parts of a tier that are at a wrong place.

    A tier may be anywhere while no host at its place is up.
    """
    if not any(host.usable and host.matches(aim.to) for host in hosts.values()):
        return
    place = "its place, anywhere on the site's own hosts" if aim.to is None else aim.to
    away = [name for name in now.slots if name in hosts and not hosts[name].matches(aim.to)]
    if len(away) > aim.extra:
        yield f"has to be at {place}, and has workers on {listed(sorted(set(away)))}"
    if now.driver in hosts and not hosts[now.driver].matches(aim.to):
        yield f"has to be at {place}, and has its driver on {now.driver}"
