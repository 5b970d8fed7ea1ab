"""What the hosts that remain hold, after others have left for good. Pure."""

from collections.abc import Collection
from dataclasses import replace

from sluice_ops.model.ids import BATCH, HostName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host, Rules
from sluice_ops.planning.placement.requests import DRIVER, Request
from sluice_ops.planning.placement.shares import capacity_totals, limits, target
from sluice_ops.planning.placement.solver import more_slots
from sluice_ops.planning.shortage.fitting import fewest_slots, why_no_room_together


def why_too_small(leaving: Collection[HostName], cluster: Cluster) -> str | None:
    """Return why the guaranteed minimums do not fit on the hosts that remain; None if they do.

    Everything is placed anew on the empty hosts that are up. A minimum in per cent is a part of
    the hosts that remain. A tier that was stopped needs nothing.
    """
    remaining = {name: host for name, host in cluster.hosts.items() if name not in leaving}
    rules = _rules_for(remaining.values(), cluster)
    up = {
        name: replace(host, used_cpu=0.0, used_memory=0, tiers=())
        for name, host in remaining.items()
        if host.usable
    }
    requests = _minimums(cluster, rules)
    why = why_no_room_together(requests, up)
    if why is None:
        return None
    own = [host for _, host in sorted(up.items()) if host.zone != BURST_ZONE]
    away = [f"{name} is {host.state}" for name, host in sorted(remaining.items()) if not host.usable]
    parts = [
        f"{'batch' if request.tenant == BATCH else request.tenant} {request.count}"
        for request in requests
        if request.part != DRIVER and request.count
    ]
    cpu = sum(request.quantum.cpu * request.count for request in requests)
    memory = sum(request.quantum.memory * request.count for request in requests)
    return (
        f"without {listed(sorted(leaving))}, the guaranteed minimums do not fit: with drivers they need "
        f"{cpu:g} cpu and {memory} MiB ({', '.join(parts)} workers), and "
        f"{listed(host.name for host in own) or 'no host'} "
        f"{'has' if len(own) == 1 else 'have'} {sum(host.capacity.cpu for host in own):g} cpu and "
        f"{sum(host.capacity.memory for host in own)} MiB"
        f"{f' ({listed(away)})' if away else ''}: {why}"
    )


def _rules_for(hosts: Collection[Host], cluster: Cluster) -> Rules:
    """Return the rules with these hosts as the whole cluster."""
    quanta: dict[str, Quantum] = {name: tier.spec.quantum for name, tier in cluster.tiers.items()}
    rooms = [(host.capacity.cpu, host.capacity.memory) for host in hosts if host.zone != BURST_ZONE]
    totals = capacity_totals(rooms, {**quanta, BATCH: cluster.rules.batch_quantum})
    return replace(cluster.rules, capacity_totals=totals)


def _minimums(cluster: Cluster, rules: Rules) -> list[Request]:
    """Return requests for the minimum of each tenant, and for the drivers."""
    requests = []
    for name, tier in sorted(cluster.tiers.items()):
        if not tier.wanted:
            continue
        aim = target(name, rules)
        requests.append(more_slots(tier.spec, aim, min(aim.slots, fewest_slots(tier.spec, rules))))
        requests.append(Request(name, 1, tier.spec.driver, aim.to, (), DRIVER, separate=aim.separate))
    if minimum := limits(BATCH, rules).minimum if BATCH in rules.shares else 0:
        requests.append(Request(BATCH, minimum, rules.batch_quantum, target(BATCH, rules).to))
    return requests
