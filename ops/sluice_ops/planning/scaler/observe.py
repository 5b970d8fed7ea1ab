"""What the scaler observes of a cluster, from the loads that drivers report."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sluice_ops.model.change import SCALER
from sluice_ops.model.ids import BATCH, HostName, Tenant, TierName
from sluice_ops.model.load import TierLoad
from sluice_ops.model.scaler import Memory, TierMemory, asked_by_scaler
from sluice_ops.model.share import Layer, LayerEntry, Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host, Rules, TierNow, whole_quanta
from sluice_ops.planning.placement.requests import Places
from sluice_ops.planning.placement.shares import limits, most_beside_others, target
from sluice_ops.planning.scaler.signals import Bounds, Observation, Signals
from sluice_ops.planning.shortage.fitting import batch_minimum
from sluice_ops.planning.shortage.in_place import joins_in_place
from sluice_ops.planning.shortage.lending import giving_back, keepable

SATURATED_SECONDS = 2.0
"""A realtime tier whose oldest record has waited for longer is busy all the time."""


def observe(  # noqa: PLR0913 - the parts of an observation
    cluster: Cluster,
    loads: Mapping[TierName, TierLoad],
    memory: Memory,
    *,
    starved: Collection[TierName],
    busy: Collection[HostName],
    modest: Collection[TierName],
    changing: Collection[TierName],
    now: float,
    boot: float | None = None,
) -> Observation:
    """Return the observation of this moment; `loads` are fresh.

    `busy` are the hosts whose processors have no time left. `modest` are the tiers whose workers
    need little processor time: they wait for something else, so busy processors do not limit them.
    `boot` is the time in which an instance of EC2 starts; None: not known yet.
    """
    tiers = cluster.tiers.values()
    return Observation(
        now=now,
        signals={
            name: _signals(
                load,
                memory.tiers.get(name, TierMemory()),
                starved=name in starved or _lacks_processor_time(cluster.tiers[name], cluster, busy),
                modest=name in modest,
                holds=cluster.tiers[name].spec.holds,
            )
            for name, load in loads.items()
            if name in cluster.tiers and cluster.tiers[name].placement is not None
        },
        bounds={tier.spec.name: _bounds(tier, cluster) for tier in tiers if _is_sized(tier)},
        inputs=_writers(tier.spec for tier in tiers),
        change_seconds=cluster.pace.seconds(1, 1),
        wake_seconds=cluster.pace.wake_spare,
        join_seconds=cluster.pace.seconds(0, 0, to_grow=1),
        boot_seconds=boot or 0.0,
        changing=frozenset(changing),
    )


def _is_sized(tier: TierNow) -> bool:
    """Return whether the scaler sets a tier's number: not if its driver does the work, now or after
    its upgrade.
    """
    return not (tier.spec.light or tier.awaits_upgrade)


def busy_parts(observation: Observation, memory: Memory) -> dict[TierName, float]:
    """Return the part of the time that each tier's workers are busy, smoothed.

    Tiers with workers of unknown capacity are left out.
    """
    parts: dict[TierName, float] = {}
    for name, signals in observation.signals.items():
        readings = memory.tiers.get(name, TierMemory()).readings
        if readings is not None and readings.per_worker and signals.workers:
            useful = min(1.0, readings.rate_done / (signals.workers * readings.per_worker))
            parts[name] = min(1.0, signals.fixed + useful)
    return parts


def _signals(load: TierLoad, memory: TierMemory, *, starved: bool, modest: bool, holds: bool) -> Signals:
    return Signals(
        rate_in=load.rate_in,
        rate_done=load.rate_done,
        rate_out=load.rate_out,
        busy=_busy(load, memory) if load.busy is None else load.busy,
        workers=load.workers,
        lag=load.lag,
        lag_seconds=load.lag_seconds,
        starved=starved and not modest,
        modest=modest,
        throttled=load.throttled,
        holds=holds,
        fixed=load.fixed,
    )


def _busy(load: TierLoad, memory: TierMemory) -> float:
    """Return how busy the workers of a tier without such a clock are; 0 if that is not known yet.

    With records that wait, they are busy all the time, and the rate is their capacity. At other
    times, the rate is compared with the capacity that was seen then. So is that of a throttled
    tier: its records wait for the slowest tier after it.
    """
    if load.lag_seconds > SATURATED_SECONDS and not load.throttled:
        return 1.0
    per_worker = None if memory.readings is None else memory.readings.per_worker
    capacity = load.workers * (per_worker or 0.0)
    return min(1.0, load.rate_done / capacity) if capacity else 0.0


def _lacks_processor_time(tier: TierNow, cluster: Cluster, busy: Collection[HostName]) -> bool:
    """Return whether more workers of a tier would only take processor time from each other.

    So it is if the tier's hosts are busy, and each host with room for one more worker, too.
    """
    if tier.placement is None or any(host not in busy for host in tier.placement.slots):
        return False
    possible = _possible_hosts(tier, cluster)
    return all(host.name in busy for host in possible if host.fits(tier.spec.quantum))


def _bounds(tier: TierNow, cluster: Cluster) -> Bounds:
    name, rules = tier.spec.name, cluster.rules
    held, aim, burst = limits(name, rules), target(name, rules), rules.layers.present_burst(name)
    above = [
        entry
        for entry in rules.layers.entries
        if entry.tenant == Tenant(name) and entry.layer > Layer.AUTOSCALER and entry.target is not None
    ]
    in_place = joins_in_place(tier, aim, cluster)
    in_layer = entry_of_scaler(name, rules)
    spares, most = _spares(tier, cluster), most_beside_others(name, rules)
    room = spares + _room(tier, cluster, in_place=in_place)
    left = None if most is None else max(0, most - aim.slots)
    away = max(aim.extra, _workers_away(tier, aim.to, cluster))
    return Bounds(
        minimum=held.minimum,
        base=base(name, rules),
        maximum=held.maximum,
        partitions=rules.partitions_of(tier.spec),
        room=room if left is None else min(room, left),
        room_is_share=left is not None and left < room,
        held_by=max(above, key=lambda entry: entry.layer).owner if above else None,
        set_by=None if in_layer is None or in_layer.owner == SCALER else in_layer.owner,
        away=away,
        away_by_scaler=burst is not None and asked_by_scaler(burst.owner),
        burst=away + _room_of_bursts(tier, 0 if in_place else away, cluster),
        placed=None if tier.placement is None else max(0, len(tier.placement.slots) - away - spares),
        spares=spares,
        in_place=in_place,
    )


def _spares(tier: TierNow, cluster: Cluster) -> int:
    """Return how many workers of a running tier wait as spares."""
    aim = target(tier.spec.name, cluster.rules)
    if tier.placement is None or aim.active is None:
        return 0
    return min(aim.spare, max(0, len(tier.placement.slots) - aim.active))


def _workers_away(tier: TierNow, home: str | None, cluster: Cluster) -> int:
    """Return how many workers of a tier run on EC2, also those of a burst that is not yet ready."""
    slots = () if tier.placement is None else tier.placement.slots
    hosts = (cluster.hosts[name] for name in slots if name in cluster.hosts)
    return sum(host.zone == BURST_ZONE and not host.matches(home) for host in hosts)


def _room_of_bursts(tier: TierNow, present: int, cluster: Cluster) -> int:
    """Return how many slots further bursts can give a tier, if the scaler may ask for them.

    The next incarnation of a tier that is handed over needs room for the `present` slots, too.
    """
    rules, quantum = cluster.rules, tier.spec.quantum
    if not rules.scaler.of(tier.spec.name).burst or rules.instance is None:
        return 0
    per_instance = whole_quanta(rules.instance.cpu, rules.instance.memory, quantum)
    more_instances = rules.max_instances - sum(host.zone == BURST_ZONE for host in cluster.hosts.values())
    return max(0, cluster.free_burst_slots(quantum) + per_instance * max(0, more_instances) - present)


def base(tier: TierName, rules: Rules) -> int:
    """Return the slots that the site file and the schedule give a tier."""
    below = tuple(entry for entry in rules.layers.entries if entry.layer < Layer.AUTOSCALER)
    return target(tier, replace(rules, layers=Layers(entries=below))).slots


def entry_of_scaler(tier: TierName, rules: Rules) -> LayerEntry | None:
    """Return the number of a tier in the layer `autoscaler`; None: it has none."""
    entries = (
        entry
        for entry in rules.layers.entries
        if entry.tenant == Tenant(tier) and entry.layer is Layer.AUTOSCALER and entry.target is not None
    )
    return next(entries, None)


def _room(tier: TierNow, cluster: Cluster, *, in_place: bool) -> int:
    """Return the further slots of a tier that find room, with those that batch can give back.

    A tier that is handed over needs room for all its workers beside the old ones. `spread` counts
    the workers of one incarnation.
    """
    present = () if tier.placement is None else tier.placement.slots
    aim = target(tier.spec.name, cluster.rules)
    places = Places(aim.spread or (), present if in_place else (), cluster.hosts)
    fitting = sum(places.take(host, host.fits(tier.spec.quantum)) for host in _possible_hosts(tier, cluster))
    return fitting if in_place else max(0, fitting - len(present))


def _possible_hosts(tier: TierNow, cluster: Cluster) -> list[Host]:
    """Return the hosts that may take workers of a tier, without the slots that batch gives back."""
    name, rules = tier.spec.name, cluster.rules
    aim = target(name, rules)
    kept = keepable(cluster, (aim.to,))[: batch_minimum(cluster)] if BATCH in rules.shares else ()
    return [
        host
        for host in giving_back(cluster, kept).hosts.values()
        if host.usable and host.matches(aim.to) and host.admits(name, aim.separate)
    ]


def _writers(specs: Iterable[TierSpec]) -> dict[TierName, tuple[TierName, ...]]:
    """Return the tiers that write the input streams of each tier."""
    all_specs = [*specs]
    return {
        spec.name: tuple(
            writer.name for writer in all_specs if {*writer.outputs} & {*spec.inputs} and writer is not spec
        )
        for spec in all_specs
    }
