"""Questions of a burst: how many instances a tier needs, whether they come in time, and which tiers
use which host.

The CLI and Airflow's runbooks ask them before they launch or terminate instances.
"""

from collections.abc import Iterable

from sluice_ops.channel import Channel
from sluice_ops.cloud.instance import Instance
from sluice_ops.cloud.reaper import is_launching, is_used
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostFacts, HostRecord, HostState
from sluice_ops.model.change import ChangeRecord, ChangeSpec
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, TierWanted
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.load import FRESH_SECONDS, TierLoad
from sluice_ops.model.release import Release, is_light_in
from sluice_ops.model.resources import Quantum
from sluice_ops.model.scaler import Memory, Readings, ScalerRecord, TierMemory
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import TierSpec, is_light
from sluice_ops.planning.changes.break_even import BreakEven, boot_seconds, break_even, change_seconds
from sluice_ops.planning.changes.burst import BurstError, instances, refuse_too_many, slots_to_place
from sluice_ops.planning.placement.cluster import BURST_ZONE, whole_quanta
from sluice_ops.planning.placement.pace import pace
from sluice_ops.site.ec2_config import Ec2Config


def instances_needed(
    channel: Channel, spec: ChangeSpec, change: str, running: Iterable[Instance], config: Ec2Config
) -> int:
    """Return how many instances a burst launches, when `running` instances run.

    Instances that an earlier try of `change` launched count as not there. Raise BurstError if the
    tier is unknown, or needs more instances than the site allows.
    """
    tier = channel.read(paths.tier(spec.tenant), TierSpec)
    if tier is None:
        published_tiers = ", ".join(channel.children("/tiers")) or "none is published yet"
        message = f'there is no tier "{spec.tenant}"; known tiers: {published_tiers}'
        raise BurstError(message)
    if _is_light(channel, tier.value):
        raise BurstError(is_light(tier.value))
    layers = channel.read(paths.LAYERS, Layers)
    slots = slots_to_place(
        spec,
        Layers() if layers is None else layers.value,
        _running(channel, tier.value.name),
        in_place=_resizes_in_place(channel, tier.value.name),
    )
    own = {instance.host for instance in running if instance.token == change}
    others = sum(instance.token != change for instance in running)
    free = slots_free(channel, tier.value.quantum, own)
    count = instances(tier.value, slots - free, config.capacity)
    refuse_too_many(tier.value, slots, count, others, config.max_instances)
    return count


def _is_light(channel: Channel, spec: TierSpec) -> bool:
    """Return whether a tier is light in the release of its next incarnation."""
    wanted = channel.read(paths.wanted(spec.name), TierWanted)
    name = (None if wanted is None else wanted.value.release) or spec.release
    release = None if name is None else channel.read(paths.release(name), Release)
    return spec.light and is_light_in(
        {} if release is None else {release.value.name: release.value}, name, spec.name
    )


def comes_in_time(
    channel: Channel, name: TierName, count: int, receipts: Iterable[InstanceReceipt], now: float
) -> BreakEven:
    """Compare a burst of a published tier by `count` instances with waiting until its lag is clear.

    `receipts` are those of all instances.
    """
    owner = channel.read(paths.owner(name), OwnerRecord)
    records = [path for each in channel.children("/changes") if (path := paths.change(each)) != paths.LOCK]
    changes = [read.value for read in channel.read_many(records, ChangeRecord) if read is not None]
    number = None if owner is None else owner.value.owner
    load = None if number is None else channel.read(paths.load(name, number), TierLoad)
    is_fresh = load is not None and abs(now - load.value.at) <= FRESH_SECONDS
    return break_even(
        name,
        load.value if load is not None and is_fresh else None,
        readings_of(channel, name),
        boot_seconds(receipts) if count else 0.0,
        change_seconds(pace(changes), in_place=_resizes_in_place(channel, name)),
    )


def readings_of(channel: Channel, tier: TierName) -> Readings | None:
    """Return the scaler's figures of a tier; None: it has none."""
    memory = channel.read(paths.SCALER_MEMORY, Memory)
    return None if memory is None else memory.value.tiers.get(tier, TierMemory()).readings


def _resizes_in_place(channel: Channel, tier: TierName) -> bool:
    """Return whether a tier gets workers in place, as the controller has recorded it.

    A controller of an older version records nothing: its tiers are handed over.
    """
    record = channel.read(paths.SCALER, ScalerRecord)
    decision = None if record is None else record.value.decisions.get(tier)
    return decision is not None and decision.in_place


def _running(channel: Channel, tier: TierName) -> int:
    """Return how many workers a tier has on live burst hosts."""
    owner = channel.read(paths.owner(tier), OwnerRecord)
    if owner is None or owner.value.owner is None:
        return 0
    incarnation = channel.read(paths.incarnation(tier, owner.value.owner), IncarnationSpec)
    slots = () if incarnation is None else incarnation.value.placement.slots
    names = sorted({*slots})
    facts = channel.read_many([paths.host(name) for name in names], HostFacts)
    burst_hosts = {
        name
        for name, read in zip(names, facts, strict=True)
        if read is not None and read.value.zone == BURST_ZONE and channel.exists(paths.live(name))
    }
    return sum(name in burst_hosts for name in slots)


def slots_free(channel: Channel, quantum: Quantum, but: set[HostName]) -> int:
    """Return how many more slots of a quantum the burst hosts hold, except the hosts `but`."""
    names = [HostName(name) for name in channel.children("/hosts") if name not in but]
    free = 0
    for name, facts in zip(
        names, channel.read_many([paths.host(name) for name in names], HostFacts), strict=True
    ):
        if facts is None or facts.value.zone != BURST_ZONE or not channel.exists(paths.live(name)):
            continue
        record = channel.read(paths.host_record(name), HostRecord)
        assigned = channel.read(paths.assignment(name), Assignment)
        if record is not None and record.value.state is not HostState.UP:
            continue
        held = [] if assigned is None else [unit.quantum for unit in assigned.value.units]
        free += whole_quanta(
            facts.value.cpu - sum(each.cpu for each in held),
            facts.value.memory - sum(each.memory for each in held),
            quantum,
        )
    return free


def after_leave(
    channel: Channel, spec: ChangeSpec, running: Iterable[Instance], now: float
) -> tuple[list[Instance], dict[Instance, list[str]]]:
    """Return the instances that a leave terminates, and those that it could not free, each with its
    tiers.

    If the leave is of one tier, instances with other units stay, and those of a burst that is under
    way.
    """
    users, instances = tiers_by_host(channel), [*running]
    free = [
        each
        for each in instances
        if each.host not in users
        and (spec.tier is None or not (is_used(channel, each.host) or is_launching(channel, each, now)))
    ]
    kept = {
        each: users[each.host]
        for each in instances
        if each.host in users and (spec.tier is None or (spec.k is None and spec.tier in users[each.host]))
    }
    return free, kept


def tiers_by_host(channel: Channel) -> dict[HostName, list[str]]:
    """Return for each host the tiers whose owner has a driver or a worker there.

    Terminating the host would interrupt these tiers.
    """
    tiers: dict[HostName, list[str]] = {}
    for tier in channel.children("/tiers"):
        owner = channel.read(paths.owner(tier), OwnerRecord)
        if owner is None or owner.value.owner is None or owner.value.stopped:
            continue
        incarnation = channel.read(paths.incarnation(tier, owner.value.owner), IncarnationSpec)
        for host in () if incarnation is None else sorted(incarnation.value.placement.hosts):
            tiers.setdefault(host, []).append(tier)
    return tiers
