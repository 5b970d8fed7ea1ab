"""How many instances a burst needs, whether the site allows them, and what they would be to a plan: known before any is launched."""

import math
from dataclasses import replace

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import HostName, Tenant
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host


def burst_of(spec: ChangeSpec) -> int:
    """Return how many slots a burst is of; what is no number is refused before."""
    return spec.k if isinstance(spec.k, int) else 1


class BurstError(Exception):
    """The burst cannot be had; the message says what can."""


def refuse_second(spec: TierSpec, layers: Layers) -> None:
    """Refuse a burst of a tier that has one: it would take the place of the first, and what was launched for it would stand idle."""
    if (there := sum(entry.extra for entry in layers.entries if entry.tenant == Tenant(spec.name))) > 0:
        message = f'tier "{spec.name}" has a burst of {there} already; leave EC2 first (leave_ec2), then burst with all that it is to have'
        raise BurstError(message)


def instances(spec: TierSpec, k: int, capacity: Capacity, running: int, most: int) -> int:
    """Return how many instances of `capacity` hold `k` more workers of a tier; `running` are there already, `most` are allowed."""
    quantum = spec.quantum
    each = _held(spec, capacity)
    if each < 1:
        message = (
            f'tier "{spec.name}": its quantum ({quantum.cpu:g} cpu, {quantum.memory} MiB) is larger than an instance '
            f"({capacity.cpu:g} cpu, {capacity.memory} MiB); choose a larger ec2.instance_type and ec2.capacity"
        )
        raise BurstError(message)
    count = math.ceil(k / each)
    if running + count > most:
        message = (
            f"{k} workers of {spec.name} need {count} instances, {running} run already, and ec2.max_instances is {most}; "
            f"ask for fewer, leave EC2 first (leave_ec2), or raise ec2.max_instances in the site file"
        )
        raise BurstError(message)
    return count


def launched(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster with the hosts that a burst would launch; as it is where that would be none."""
    tier, capacity = cluster.tiers.get(spec.tier) if spec.tier is not None else None, cluster.rules.instance
    each = 0 if tier is None or capacity is None else _held(tier.spec, capacity)
    if capacity is None or each < 1:
        return cluster
    names = [
        HostName(f"{BURST_ZONE}-new-{number}") for number in range(1, math.ceil(burst_of(spec) / each) + 1)
    ]
    hosts = (Host(name, BURST_ZONE, (), capacity) for name in names)
    return cluster.with_hosts(
        {**cluster.hosts, **{host.name: replace(host, only=cluster.rules.only_on(host)) for host in hosts}}
    )


def _held(spec: TierSpec, capacity: Capacity) -> int:
    """Return how many workers of a tier an instance holds."""
    return min(int(capacity.cpu // spec.quantum.cpu), capacity.memory // spec.quantum.memory)
