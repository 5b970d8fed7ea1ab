"""The instances of a burst, before any is launched: their number, the site's limit, and a plan with
them.
"""

from dataclasses import replace

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.wording import workers
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host, whole_quanta
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.shortage.in_place import joins_in_place


def burst_of(spec: ChangeSpec) -> int:
    """Return the slots of a burst. A per cent counts as 1, because `refuse` refuses it."""
    return spec.k if isinstance(spec.k, int) else 1


class BurstError(Exception):
    """The burst is impossible; the message says what is possible."""


def slots_after(spec: ChangeSpec, layers: Layers) -> int:
    """Return the slots on burst hosts that a tier has after a burst: the present ones and k
    more.
    """
    before = layers.present_burst(spec.tenant)
    return burst_of(spec) + (0 if before is None else before.extra)


def instances(spec: TierSpec, slots: int, capacity: Capacity) -> int:
    """Return how many instances of `capacity` hold `slots` slots of a tier.

    Raise BurstError if the tier's quantum is larger than an instance.
    """
    quantum = spec.quantum
    per_instance = whole_quanta(capacity.cpu, capacity.memory, quantum)
    if per_instance < 1:
        message = (
            f'tier "{spec.name}": its quantum ({quantum.cpu:g} cpu, {quantum.memory} MiB) is larger than an '
            f"instance ({capacity.cpu:g} cpu, {capacity.memory} MiB); choose larger ec2.instance_types and "
            "ec2.capacity in the site file"
        )
        raise BurstError(message)
    return -(-max(0, slots) // per_instance)


def refuse_too_many(spec: TierSpec, slots: int, count: int, running: int, most: int) -> None:
    """Raise BurstError if `count` more instances, beside those that run, are more than `most`."""
    if running + count > most:
        message = (
            f"{workers(slots)} of {spec.name} on EC2 need {count} more instances, {running} run already, and "
            f"ec2.max_instances is {most}; ask for fewer workers, leave EC2 first (`sluice leave`, or "
            "leave_ec2), or raise ec2.max_instances in the site file"
        )
        raise BurstError(message)


def slots_to_place(spec: ChangeSpec, layers: Layers, running: int, *, in_place: bool) -> int:
    """Return how many slots a burst needs room for on burst hosts.

    In place, the `running` workers of the burst stay. A handover needs room for all slots: the next
    incarnation is prepared beside the present one.
    """
    return slots_after(spec, layers) - (running if in_place else 0)


def launched(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster with the hosts that a burst would launch.

    Return the cluster unchanged if the tier, or the capacity of an instance, is unknown or too
    small.
    """
    tier, capacity = cluster.tiers.get(spec.tier) if spec.tier is not None else None, cluster.rules.instance
    if tier is None or capacity is None:
        return cluster
    slots = () if tier.placement is None else tier.placement.slots
    needed = slots_to_place(
        spec,
        cluster.rules.layers,
        sum(name in cluster.hosts and cluster.hosts[name].zone == BURST_ZONE for name in slots),
        in_place=joins_in_place(tier, target(tier.spec.name, cluster.rules), cluster),
    )
    missing = needed - cluster.free_burst_slots(tier.spec.quantum)
    try:
        count = instances(tier.spec, missing, capacity)
    except BurstError:
        return cluster
    names = [HostName(f"{BURST_ZONE}-new-{number}") for number in range(1, count + 1)]
    hosts = (Host(name, BURST_ZONE, (), capacity) for name in names)
    return cluster.with_hosts(
        {**cluster.hosts, **{host.name: replace(host, only=cluster.rules.only_on(host)) for host in hosts}}
    )
