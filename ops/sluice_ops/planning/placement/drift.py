"""How what runs differs from what a plan would make of it, and the aim that repairs it with as few moves as can be. Called by `plan`.

Placement keeps a worker where it may stay, so the next incarnation of a tier that has drifted moves only those that may not.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.spread import Spread
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Hosts, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target, had
from sluice_ops.planning.placement.solver import place_tier


def drift(tier: TierNow, aim: Target, hosts: Hosts) -> list[str]:
    """Say of a tier that runs what is not as it is to be; each sentence goes on from its name."""
    now = tier.placement
    if now is None:
        return []
    name = tier.spec.name
    said = [
        *_starved(name, now, hosts),
        *_crowded(now, hosts),
        *_number(now, aim, hosts),
        *_astray(now, aim, hosts),
    ]
    said += breaches(name, now, aim, hosts)
    even = evened(tier, aim, hosts)
    if even is not aim and even.spread is not None:
        fullest, most = Counter(now.slots).most_common(1)[0]
        said.append(
            f"has {most} workers on {fullest}, and there is room to have {even.spread.host} on each host at most"
        )
    return said


def breaches(name: str, placement: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Say which of the rules that always hold a placement breaks."""
    for kind, most in aim.spread or ():
        places = Counter(hosts[slot].within(kind) for slot in placement.slots if slot in hosts)
        over = [
            f"{count} in {kind} {place}"
            for place, count in sorted(places.items())
            if most is not None and count > most
        ]
        if over:
            yield f"has more workers than the {most} that may be in one {kind}: {listed(over)}"
    there = [hosts[host] for host in sorted(placement.hosts) if host in hosts]
    for host in there:
        shared = aim.separate.intersection(host.tiers)
        if shared:
            yield f"is on {host.name} with {listed(sorted(shared))}, from which it has to be separate"
    foreign = [
        f"{host.name} (to {listed(sorted(host.only))})"
        for host in there
        if host.only is not None and name not in host.only
    ]
    if foreign:
        yield f"is on hosts that are dedicated to others: {listed(foreign)}"


def evened(tier: TierNow, aim: Target, hosts: Hosts) -> Target:
    """Return the aim with the most even spread over the hosts of its place for which there is room beside what runs."""
    fullest = max(Counter(tier.placement.slots if tier.placement else ()).values(), default=0)
    there = sum(host.usable and host.matches(aim.to) for host in hosts.values())
    if fullest <= 1 or not there:  # what runs at a place where nothing new may come stays there
        return aim
    for most in range(max(1, math.ceil(aim.slots / there)), fullest):
        tighter = replace(aim, spread=(aim.spread or Spread()).model_copy(update={"host": most}))
        try:
            place_tier(tier.spec, tighter, tier.placement, hosts)
        except RefusedError:
            continue
        return tighter
    return aim


def without_starving(hosts: Hosts) -> Hosts:
    """Return the hosts as a repair sees them: where something is starved nothing new goes, and what moves does not stay."""
    starving = {
        name: replace(host, state=HostState.CORDONED)
        for name, host in hosts.items()
        if host.starves and host.usable
    }
    return {**hosts, **starving}


def _starved(name: str, now: Placement, hosts: Hosts) -> Iterable[str]:
    there = [host for host in sorted(now.hosts) if host in hosts and name in hosts[host].starves]
    if there:
        yield f"is starved of processor time on {listed(there)}"


def _crowded(now: Placement, hosts: Hosts) -> Iterable[str]:
    there = [host for host in sorted(now.hosts) if host in hosts and hosts[host].overfull]
    if there:
        yield f"is on {listed(there)}, where more is held than there is"


def numbers(now: Placement, aim: Target, hosts: Hosts) -> tuple[int, ...]:
    """Return the numbers of workers that are right, the one that was asked for first.

    While a burst cannot be had, that is the tier's own workers and those of the burst that are still there; and it need not give up one
    that was put elsewhere when the burst's host was lost.
    """
    if had(aim, hosts) == aim.extra:
        return (aim.k,)
    left = sum(
        name in hosts and hosts[name].matches(aim.extra_to) and not hosts[name].matches(aim.to)
        for name in now.slots
    )
    return aim.slots + min(left, aim.extra), aim.k


def _number(now: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    right = numbers(now, aim, hosts)
    if len(now.slots) not in right:
        yield f"has {len(now.slots)} workers, and is to have {right[0]}"


def _astray(now: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Say what is not where it has to be; where no host can serve that place, it may be anywhere."""
    if not any(host.usable and host.matches(aim.to) for host in hosts.values()):
        return
    place = "its place, anywhere on the site's own hosts" if aim.to is None else aim.to
    astray = [name for name in now.slots if name in hosts and not hosts[name].matches(aim.to)]
    if len(astray) > aim.extra:
        yield f"has to be at {place}, and has workers on {listed(sorted(set(astray)))}"
    if now.driver in hosts and not hosts[now.driver].matches(aim.to):
        yield f"has to be at {place}, and has its driver on {now.driver}"
