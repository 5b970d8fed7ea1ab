"""A second look at a plan, by other means than made it: nothing runs that this has not passed.

It walks through the plan as it will be carried out and looks at every point at what the hosts hold.
"""

from collections import Counter

from ops.model.ids import BATCH, HostName
from ops.model.operation import Move, Plan
from ops.planning.cluster import Cluster, Hosts, holding, overfull
from ops.planning.placement import fits
from ops.planning.shares import limits, target


def violations(plan: Plan, cluster: Cluster) -> list[str]:
    """Name everything that the plan would break; `cluster` has the layers and host states that the change leads to."""
    found = [problem for move in plan.moves for problem in _move_problems(move, cluster)]
    hosts: Hosts = _without_returned(plan, cluster)
    before = hosts
    through: list[Move] = []
    for move in plan.moves:
        spec = cluster.tiers[move.tier].spec
        if not fits(spec, move.after, hosts) or _together(move, holding(hosts, spec, move.after), cluster):
            for done in through:
                if done.before is not None:
                    hosts = holding(hosts, cluster.tiers[done.tier].spec, done.before, -1)
            through = []
        hosts = holding(hosts, spec, move.after)
        through.append(move)
        found.extend(
            f"while {move.tier} is prepared: {problem}" for problem in [*overfull(hosts, before), *_together(move, hosts, cluster)]
        )
    found += _batch_problems(plan, cluster)
    order = [cluster.tiers[move.tier].spec.distance for move in plan.moves]
    if order != sorted(order):
        found.append("the tiers are not moved nearest the pipeline's end first")
    return found


def _without_returned(plan: Plan, cluster: Cluster) -> Hosts:
    """Take away what batch holds and does not keep: no move begins before it is back."""
    hosts = dict(cluster.hosts)
    for name, count in (_given(plan, cluster) + Counter(cluster.returning)).items():
        if name in hosts:
            hosts[name] = hosts[name].holding(cluster.rules.batch_quantum, -count)
    return hosts


def _given(plan: Plan, cluster: Cluster) -> Counter[HostName]:
    return Counter(cluster.batch) - Counter(plan.batch_kept)


def _batch_problems(plan: Plan, cluster: Cluster) -> list[str]:
    share = target(BATCH, cluster.rules).slots if BATCH in cluster.rules.shares else 0
    minimum = limits(BATCH, cluster.rules).minimum if share else 0
    found: list[str] = []
    if Counter(plan.batch_kept) - Counter(cluster.batch):
        found.append("batch would keep slots that it does not have")
    if max(len(plan.batch_slots), len(plan.batch_kept)) > share:
        found.append(f"batch would have {max(len(plan.batch_slots), len(plan.batch_kept))} slots, and its share is {share}")
    usable = sum(name in cluster.hosts and cluster.hosts[name].usable for name in cluster.batch)
    lent = Counter(plan.batch_slots) - Counter(plan.batch_kept)
    found += [f"batch would be on {name}, which is dedicated to others" for name in sorted(lent) if _is_for_others(BATCH, name, cluster)]
    if len(plan.batch_kept) < min(minimum, usable):
        found.append(f"batch would keep {len(plan.batch_kept)} slots, below its minimum of {minimum}")
    short = [move.tier for move in plan.moves if move.short]
    if short and len(plan.batch_kept) > minimum:
        found.append(f"{', '.join(short)} would be short while batch keeps more than its minimum of {minimum}")
    return found


def _move_problems(move: Move, cluster: Cluster) -> list[str]:
    aim = target(move.tier, cluster.rules)
    found: list[str] = []
    if len(move.after.slots) + move.short != aim.k:
        short = f" ({move.short} fewer are said)" if move.short else ""
        found.append(f"{move.tier} would have {len(move.after.slots)} slots instead of {aim.k}{short}")
    found += _budget_problems(move, cluster)
    minimum = min(aim.slots, limits(move.tier, cluster.rules).minimum)
    if move.short and aim.slots - move.short < minimum:
        found.append(f"{move.tier} would have {aim.slots - move.short} slots, below its minimum of {minimum}")
    for name in sorted(move.after.hosts):
        host = cluster.hosts.get(name)
        if host is None or not host.usable:
            found.append(f"{move.tier} would be on {name}, which is {'unknown' if host is None else host.state}")
        elif _is_for_others(move.tier, name, cluster):
            found.append(f"{move.tier} would be on {name}, which is dedicated to others")
    found += _crowds(move, cluster)
    if aim.to is not None and any(host.usable and host.matches(aim.to) for host in cluster.hosts.values()):
        astray = [name for name in move.after.slots if name in cluster.hosts and not cluster.hosts[name].matches(aim.to)]
        if len(astray) > aim.extra:
            found.append(f"{move.tier} has to be at {aim.to} and would be on {', '.join(sorted(set(astray)))}")
    return found


def _is_for_others(tenant: str, name: HostName, cluster: Cluster) -> bool:
    host = cluster.hosts.get(name)
    places = [tenants for place, tenants in cluster.rules.dedicated.items() if host is not None and host.matches(place)]
    return bool(places) and not any(tenant in tenants for tenants in places)


def _together(move: Move, hosts: Hosts, cluster: Cluster) -> list[str]:
    """Name the hosts that the tier would share with one from which it has to be separate."""
    found = []
    for group in cluster.rules.separate:
        for name in sorted(move.after.hosts & hosts.keys()) if move.tier in group else ():
            others = (group & set(hosts[name].tiers)) - {move.tier}
            if others:
                found.append(f"{name} would hold {move.tier} beside {', '.join(sorted(others))}, from which it has to be separate")
    return found


def _crowds(move: Move, cluster: Cluster) -> list[str]:
    """Name the places that would hold more of the tier's workers than they may."""
    found = []
    for kind, most in cluster.rules.spread.get(move.tier) or ():
        places = Counter(cluster.hosts[name].within(kind) for name in move.after.slots if name in cluster.hosts)
        found += [
            f"{move.tier} would have {count} workers in {kind} {place}, and may have {most}"
            for place, count in sorted(places.items())
            if most is not None and count > most
        ]
    return found


def _budget_problems(move: Move, cluster: Cluster) -> list[str]:
    allowed, before = cluster.rules.budget.get(move.tier), 0 if move.before is None else len(move.before.slots)
    if allowed is None or move.short <= allowed or len(move.after.slots) >= before:
        return []
    return [f"{move.tier} would be {move.short} slots short of its share, and its budget lets {allowed} be away"]
