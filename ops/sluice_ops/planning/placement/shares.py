"""Shares: the slots of each tenant and their place, from the site file and the layers.

A slot is one whole quantum with all its resources. A per cent is rounded down to whole slots.

Tenants have quanta of different sizes, so a per cent counts in the tenant's own quanta. 100% are n
quanta of size q if the empty hosts hold n whole ones. Then n·q is at most what the hosts have of
each resource. So parts that sum to 100% need no more of any resource than the hosts have.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sluice_ops.model.ids import BATCH, HostName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Amount, Layer, LayerEntry, Layers, Setting, part, room_of
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.planning.placement.cluster import Hosts, Rules, whole_quanta
from sluice_ops.planning.placement.pipeline_share import (
    Ask,
    divide,
    size_of_slot,
    taken,
    taken_first,
)

OF_SITE = " of the site file"
"""Follows `minimum` or `maximum` in `Target.bound` if the site file bounds the number of a
layer.
"""
OF_LIGHT = "its declaration as light"
"""`Target.owner` of a tier without workers."""
OF_PIPELINE = "the pipeline's maximum"
"""`Target.bound` if the pipeline's share bounds the number."""


@dataclass(frozen=True)
class Target:
    """The number and place of slots that a tenant should have."""

    slots: int
    """The workers that work, without those of a burst."""
    to: str | None = None
    extra: int = 0
    """Additional slots, of a burst, which have to be at `extra_to`."""
    extra_to: str | None = None
    layer: Layer = Layer.BASE
    """The layer that set the number of slots."""
    owner: str = "the site file"
    since: float | None = None
    until: float | None = None
    bound: str | None = None
    """`minimum` or `maximum` if that bound decides the number, else None.

    If a layer set the bound, `layer`, `owner`, `since` and `until` are those of the bound. If the
    site file set the bound, they stay those of the number.
    """
    amount: Amount = 0
    """The number as it was set, in slots or per cent."""
    spread: Spread | None = None
    """The most workers in one host, rack or zone."""
    pinned: Mapping[HostName, int] = field(default_factory=dict)
    """How many workers are on a host whenever that host can take them."""
    separate: frozenset[str] = frozenset()
    """The tiers that may not be on the same host."""
    spare: int = 0
    """Additional slots of workers that wait until they are needed."""

    @property
    def own(self) -> int:
        """All slots except those of a burst."""
        return self.slots + self.spare

    @property
    def at_work(self) -> int:
        """The slots that work: all except the spares."""
        return self.slots + self.extra

    @property
    def k(self) -> int:
        """All slots, with spares and those of a burst."""
        return self.own + self.extra

    @property
    def active(self) -> int | None:
        """How many workers get tasks, for the owner record; None: all.

        With a burst, all work: nobody rents workers while others wait.
        """
        return self.slots if self.spare and not self.extra else None

    def with_own(self, own: int) -> "Target":
        """Return the target with so many slots except those of a burst; spares go first."""
        slots = min(self.slots, own)
        return replace(self, slots=slots, spare=own - slots)


@dataclass(frozen=True)
class Limits:
    """A tenant's share in slots."""

    minimum: int
    target: int
    maximum: int

    def hold(self, slots: int) -> int:
        """Return the nearest number within minimum and maximum."""
        return max(self.minimum, min(self.maximum, slots))


def capacity_totals(capacities: Iterable[tuple[float, int]], quanta: Mapping[str, Quantum]) -> dict[str, int]:
    """Return for each tenant the slots that make 100%.

    These are the tenant's quanta that the empty hosts hold. Each capacity is one host's (cores,
    MiB).
    """
    hosts_by_capacity = Counter(capacities).items()
    return {
        tenant: sum(count * whole_quanta(*capacity, quantum) for capacity, count in hosts_by_capacity)
        for tenant, quantum in quanta.items()
    }


def slots_of(tenant: str, amount: Amount, rules: Rules) -> int:
    """Return an amount, which may be a per cent, in slots of this tenant."""
    return amount if isinstance(amount, int) else part(amount, rules.capacity_totals.get(tenant, 0))


def fewest_for_threads(spec: TierSpec, rules: Rules) -> int:
    """Return the fewest workers with a thread for each partition; 0 if the tier needs none."""
    threads = rules.partitions_of(spec) if spec.mode is Mode.REALTIME and not spec.light else 0
    return math.ceil(threads / spec.quantum.threads)


def limits(tenant: str, rules: Rules) -> Limits:
    """Return the tenant's minimum, target and maximum in slots, without spares.

    The target is that of the site file. Minimum and maximum are those of the highest layer that
    sets them. The minimum of batch leaves the tiers what they need of the pipeline's minimum.
    """
    within = _own_limits(tenant, rules)
    if tenant != BATCH or rules.pipeline_share is None or BATCH not in rules.capacity_totals:
        return within
    return replace(within, minimum=min(within.minimum, _left_to_batch(rules)))


def _own_limits(tenant: str, rules: Rules) -> Limits:
    if tenant in rules.light:
        return Limits(0, 0, 0)
    share = rules.share_of(tenant)
    minimum, maximum = share.minimum, share.maximum
    for entry in _entries_of(tenant, rules):
        minimum = minimum if entry.minimum is None else entry.minimum
        maximum = maximum if entry.maximum is None else entry.maximum
    low, aim, high = (slots_of(tenant, amount, rules) for amount in (minimum, share.target, maximum))
    return Limits(low, aim, max(low, high))


def _entries_of(tenant: str, rules: Rules) -> list[LayerEntry]:
    """Return the tenant's layer entries, the highest layer last."""
    return sorted(
        (entry for entry in rules.layers.entries if entry.tenant == tenant), key=lambda entry: entry.layer
    )


def bounded_by(tenant: str, rules: Rules) -> tuple[LayerEntry | None, LayerEntry | None]:
    """Return the entries that set the minimum and the maximum that hold; None for the site file."""
    entries = _entries_of(tenant, rules)
    minimum = next((entry for entry in reversed(entries) if entry.minimum is not None), None)
    maximum = next((entry for entry in reversed(entries) if entry.maximum is not None), None)
    return minimum, maximum


def target(tenant: str, rules: Rules) -> Target:
    """Return the target of one tenant.

    For each of number, place and burst, the highest layer that sets it wins. Minimum and maximum
    bound the number of every layer.
    """
    resolved: Target | None = rules.resolved.get(tenant)
    if resolved is None:
        resolved = rules.resolved[tenant] = _within_pipeline_share(tenant, _resolve(tenant, rules), rules)
    return resolved


def _within_pipeline_share(tenant: str, aim: Target, rules: Rules) -> Target:
    """Return a tier's target after the pipeline's share was divided among the tiers."""
    slots, spare = divided_share(rules).get(tenant, (aim.slots, aim.spare))
    if (slots, spare) == (aim.slots, aim.spare):
        return aim
    return replace(aim, slots=slots, spare=spare, bound=OF_PIPELINE if slots < aim.slots else aim.bound)


def divided_share(rules: Rules) -> Mapping[str, tuple[int, int]]:
    """Return the slots and the spares of each tier; nothing without a share of the pipeline."""
    share = rules.pipeline_share
    if share is not None and not rules.divided:
        asks = {}
        for name in rules.tiers:
            aim = _resolve(name, rules)
            fewest = max(_own_limits(name, rules).minimum, rules.fewest.get(name, 0))
            asks[name] = Ask(fewest, aim.slots, aim.spare, size_in_share(name, rules))
        rules.divided.update(divide(asks, room_of(share.maximum)))
    return rules.divided


def size_in_share(tier: str, rules: Rules) -> Fraction:
    """Return what one slot of a tier takes of the pipeline's maximum."""
    maximum = 0 if rules.pipeline_share is None else rules.pipeline_share.maximum
    return size_of_slot(maximum, rules.capacity_totals[tier])


def left_of_share(slots: Mapping[str, int], rules: Rules) -> Fraction | None:
    """Return what these slots leave of the pipeline's maximum; None if it has none.

    Below 0, they are above the maximum.
    """
    share = rules.pipeline_share
    if share is None:
        return None
    return room_of(share.maximum) - taken(slots, {name: size_in_share(name, rules) for name in slots})


def most_beside_others(tier: str, rules: Rules) -> int | None:
    """Return the most slots, with spares, that a tier can have while the others keep their targets.

    Return None without a share of the pipeline.
    """
    others = {name: sum(held) for name, held in divided_share(rules).items() if name != tier}
    left = left_of_share(others, rules)
    return None if left is None else max(0, int(left / size_in_share(tier, rules)))


def is_below_pipeline_minimum(slots: Mapping[str, int], rules: Rules) -> bool:
    """Return whether tiers with these slots lack some of what they need of the pipeline's
    minimum.
    """
    share = rules.pipeline_share
    if share is None:
        return False
    sizes = {name: size_of_slot(share.minimum, rules.capacity_totals[name]) for name in rules.tiers}
    needed = taken({name: sum(each) for name, each in divided_share(rules).items()}, sizes)
    held = taken({name: slots.get(name, 0) for name in sizes}, sizes)
    return held < min(room_of(share.minimum), needed)


def _left_to_batch(rules: Rules) -> int:
    """Return the slots of batch beside the drivers, and what the tiers should have of the
    pipeline's minimum.
    """
    share = rules.pipeline_share
    if share is None:
        return rules.capacity_totals.get(BATCH, 0)
    held = {name: sum(slots) for name, slots in divided_share(rules).items()}
    parts = {name: Fraction(1, max(1, rules.capacity_totals[name])) for name in held}
    if isinstance(share.minimum, int):
        reserved = taken_first(held, parts, share.minimum)
    else:
        reserved = min(room_of(share.minimum), taken(held, parts))
    drivers = rules.drivers if reserved else 0
    return max(0, int((1 - reserved - drivers) * rules.capacity_totals.get(BATCH, 0)))


def _resolve(tenant: str, rules: Rules) -> Target:
    if tenant in rules.light:
        return Target(0, _place_of(tenant, rules), owner=OF_LIGHT, **_apart(tenant, rules))
    share = rules.share_of(tenant)
    bounds, amount, spare = limits(tenant, rules), share.target, share.spare
    fields: dict[str, Any] = {"to": _place_of(tenant, rules), "layer": Layer.BASE, "extra": 0}
    for entry in _entries_of(tenant, rules):
        if entry.target is not None:
            amount = entry.target
            fields |= _source(entry)
        if entry.extra:
            fields |= {"extra": entry.extra, "extra_to": entry.extra_to}
        spare = spare if entry.spare is None else entry.spare
    unbounded = slots_of(tenant, amount, rules)
    slots = bounds.hold(unbounded)
    if slots != unbounded:
        minimum, maximum = bounded_by(tenant, rules)
        bound, by = ("minimum", minimum) if slots > unbounded else ("maximum", maximum)
        of_site = by is None and fields["layer"] is not Layer.BASE
        fields |= {"bound": f"{bound}{OF_SITE}" if of_site else bound} | ({} if by is None else _source(by))
    fields["extra"] = max(0, min(fields["extra"], bounds.maximum - slots))
    return Target(
        slots,
        **fields,
        **_apart(tenant, rules),
        amount=amount,
        spare=0 if tenant in rules.without_spares or not slots else slots_of(tenant, spare, rules),
    )


def _apart(tenant: str, rules: Rules) -> dict[str, Any]:
    """Return the fields of a target that tell how a tenant's workers are placed."""
    return {
        "spread": rules.spread.get(tenant),
        "pinned": rules.pinned.get(tenant, {}),
        "separate": rules.separate_from(tenant),
    }


def _place_of(tenant: str, rules: Rules) -> str | None:
    """Return a tenant's place: the highest layer that sets one wins."""
    places = [entry.to for entry in _entries_of(tenant, rules) if entry.to is not None]
    return places[-1] if places else rules.locality.get(tenant)


def _source(entry: LayerEntry) -> dict[str, Any]:
    """Return the fields of a target that tell which entry set its number."""
    return {"layer": entry.layer, "owner": entry.owner, "since": entry.at, "until": entry.until}


def available_extra(aim: Target, hosts: Hosts) -> int:
    """Return the burst slots that a tenant can have: none while no host at the burst's
    place is up.
    """
    return (
        aim.extra
        if aim.extra and any(host.usable and host.matches(aim.extra_to) for host in hosts.values())
        else 0
    )


def cause(aim: Target) -> str:
    """Return why a tenant has its number: the owner of the number, or the bound."""
    if aim.bound is None:
        return f"{aim.owner} set the number"
    if aim.bound == OF_PIPELINE:
        return "the pipeline has its maximum"
    return (
        f"that is its {aim.bound}"
        if aim.bound.endswith(OF_SITE)
        else f"that is its {aim.bound}, set by {aim.owner}"
    )


def with_entry(layers: Layers, entry: LayerEntry) -> Layers:
    """Return the layers with the entry, which replaces the entry of its tenant, layer and
    setting.
    """
    return Layers(entries=(*without_entry(layers, entry.tenant, entry.layer, entry.setting).entries, entry))


def without_entry(layers: Layers, tenant: str, layer: Layer, setting: Setting) -> Layers:
    """Return the layers without the entry of this tenant, layer and setting."""
    removed = (tenant, layer, setting)
    return Layers(
        entries=tuple(
            entry for entry in layers.entries if (entry.tenant, entry.layer, entry.setting) != removed
        )
    )


def without_layer(layers: Layers, layer: Layer) -> Layers:
    """Return the layers without the entries of one layer."""
    return Layers(entries=tuple(entry for entry in layers.entries if entry.layer is not layer))


def ended_entries(layers: Layers, now: float) -> list[LayerEntry]:
    """Return the entries that have ended, the earliest end first."""
    ended = [
        (entry.until, entry.tenant, entry)
        for entry in layers.entries
        if entry.until is not None and entry.until <= now
    ]
    return [entry for *_, entry in sorted(ended, key=lambda row: row[:2])]
