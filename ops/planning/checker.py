"""A second look at a plan, by other means than made it: nothing runs that this has not passed.

It walks through the plan as it will be carried out and looks at every point at what the hosts hold.
"""

from ops.model.operation import Move, Plan
from ops.planning.cluster import Cluster, Hosts, holding, overfull
from ops.planning.placement import fits
from ops.planning.shares import target


def violations(plan: Plan, cluster: Cluster) -> list[str]:
    """Name everything that the plan would break; `cluster` has the layers and host states that the change leads to."""
    found = [problem for move in plan.moves for problem in _move_problems(move, cluster)]
    hosts: Hosts = cluster.hosts
    through: list[Move] = []
    for move in plan.moves:
        spec = cluster.tiers[move.tier].spec
        if not fits(spec, move.after, hosts):
            for done in through:
                if done.before is not None:
                    hosts = holding(hosts, cluster.tiers[done.tier].spec, done.before, -1)
            through = []
        hosts = holding(hosts, spec, move.after)
        through.append(move)
        found.extend(f"while {move.tier} is prepared: {problem}" for problem in overfull(hosts))
    order = [cluster.tiers[move.tier].spec.distance for move in plan.moves]
    if order != sorted(order):
        found.append("the tiers are not moved nearest the pipeline's end first")
    return found


def _move_problems(move: Move, cluster: Cluster) -> list[str]:
    aim = target(move.tier, cluster.rules)
    found: list[str] = []
    if len(move.after.slots) != aim.k:
        found.append(f"{move.tier} would have {len(move.after.slots)} slots instead of {aim.k}")
    for name in sorted(move.after.hosts):
        host = cluster.hosts.get(name)
        if host is None or not host.usable:
            found.append(f"{move.tier} would be on {name}, which is {'unknown' if host is None else host.state}")
    if aim.to is not None and any(host.usable and host.matches(aim.to) for host in cluster.hosts.values()):
        astray = [name for name in move.after.slots if name in cluster.hosts and not cluster.hosts[name].matches(aim.to)]
        if len(astray) > aim.extra:
            found.append(f"{move.tier} has to be at {aim.to} and would be on {', '.join(sorted(set(astray)))}")
    return found
