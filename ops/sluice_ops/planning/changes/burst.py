"""The instances of a burst, before any is launched: their number, the site's limit, and a plan with
them.
"""

import math
from dataclasses import replace

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import HostName, Tenant
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host


def burst_of(spec: ChangeSpec) -> int:
    """Return the slots of a burst. A per cent counts as 1, because `refuse` refuses it."""
    return spec.k if isinstance(spec.k, int) else 1


class BurstError(Exception):
    """The burst is impossible; the message says what is possible."""


def refuse_second(spec: TierSpec, layers: Layers) -> None:
    """Raise BurstError if the tier already has a burst.

    A second burst would replace the first one, whose instances would stand idle.
    """
    if (slots := sum(entry.extra for entry in layers.entries if entry.tenant == Tenant(spec.name))) > 0:
        message = (
            f'tier "{spec.name}" already has a burst of {slots} workers; leave EC2 first (`sluice leave`, or '
            "leave_ec2), then burst with all workers at once"
        )
        raise BurstError(message)


def instances(spec: TierSpec, k: int, capacity: Capacity, running: int, most: int) -> int:
    """Return how many more instances of `capacity` hold `k` more workers of a tier.

    `running` instances exist already, and `most` are allowed. Raise BurstError if the tier's
    quantum is larger than an instance, or if too many instances would run.
    """
    quantum = spec.quantum
    workers_per_instance = _held(spec, capacity)
    if workers_per_instance < 1:
        message = (
            f'tier "{spec.name}": its quantum ({quantum.cpu:g} cpu, {quantum.memory} MiB) is larger than an '
            f"instance ({capacity.cpu:g} cpu, {capacity.memory} MiB); choose larger ec2.instance_types and "
            "ec2.capacity in the site file"
        )
        raise BurstError(message)
    count = math.ceil(k / workers_per_instance)
    if running + count > most:
        message = (
            f"{k} workers of {spec.name} need {count} instances, {running} run already, and "
            f"ec2.max_instances is {most}; ask for fewer workers, leave EC2 first (`sluice leave`, or "
            "leave_ec2), or raise ec2.max_instances in the site file"
        )
        raise BurstError(message)
    return count


def launched(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster with the hosts that a burst would launch.

    Return the cluster unchanged if the tier, or the capacity of an instance, is unknown or too
    small.
    """
    tier, capacity = cluster.tiers.get(spec.tier) if spec.tier is not None else None, cluster.rules.instance
    workers_per_instance = 0 if tier is None or capacity is None else _held(tier.spec, capacity)
    if capacity is None or workers_per_instance < 1:
        return cluster
    count = math.ceil(burst_of(spec) / workers_per_instance)
    names = [HostName(f"{BURST_ZONE}-new-{number}") for number in range(1, count + 1)]
    hosts = (Host(name, BURST_ZONE, (), capacity) for name in names)
    return cluster.with_hosts(
        {**cluster.hosts, **{host.name: replace(host, only=cluster.rules.only_on(host)) for host in hosts}}
    )


def _held(spec: TierSpec, capacity: Capacity) -> int:
    """Return how many workers of a tier one instance holds."""
    return min(int(capacity.cpu // spec.quantum.cpu), capacity.memory // spec.quantum.memory)
