"""Shares: from the site's numbers and the layers above them to the slots that each tenant is to have, and where.

A slot is a whole quantum: all its resources together. A per cent is rounded down to whole slots. Tenants' quanta differ, so each per cent
is of the tenant's own: with n quanta of a size q on the hosts (on each host as many as are whole), n·q is no more than what the hosts have
of any resource; so parts of 100% in all ask no more of any resource than the hosts have.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Amount, Layer, LayerEntry, Layers, Setting, part
from sluice_ops.model.spread import Spread
from sluice_ops.planning.placement.cluster import Hosts, Rules, whole_quanta

OF_SITE = " of the site file"
"""After what it bounds, where that is not the word of a layer."""


@dataclass(frozen=True)
class Target:
    """What a tenant is to have."""

    slots: int
    to: str | None = None
    extra: int = 0
    """Slots besides, that have to be at `extra_to`."""
    extra_to: str | None = None
    layer: Layer = Layer.BASE
    """Who set the number of slots."""
    owner: str = "the site file"
    since: float | None = None
    until: float | None = None
    bound: str | None = None
    """`minimum` or `maximum`, where that decides: then its owner, since and until are here; of one of the site file, what it bounds."""
    amount: Amount = 0
    """What it said, in slots or per cent."""
    spread: Spread | None = None
    """How far apart its workers have to be."""
    separate: frozenset[str] = frozenset()
    """The tiers that it may not share a host with."""

    @property
    def k(self) -> int:
        """All slots together."""
        return self.slots + self.extra


@dataclass(frozen=True)
class Limits:
    """A tenant's share in slots."""

    minimum: int
    target: int
    maximum: int

    def hold(self, slots: int) -> int:
        """Return the nearest number within them."""
        return max(self.minimum, min(self.maximum, slots))


def wholes(rooms: Iterable[tuple[float, int]], quanta: Mapping[str, Quantum]) -> dict[str, int]:
    """Return the slots that 100% are, for each tenant: the quanta of its size that hosts of so much cpu and MiB hold when empty."""
    alike = Counter(rooms).items()
    return {
        tenant: sum(count * whole_quanta(*room, quantum) for room, count in alike)
        for tenant, quantum in quanta.items()
    }


def slots_of(tenant: str, amount: Amount, rules: Rules) -> int:
    """Return an amount in slots of this tenant."""
    return amount if isinstance(amount, int) else part(amount, rules.wholes.get(tenant, 0))


def limits(tenant: str, rules: Rules) -> Limits:
    """Return what a tenant is entitled to: minimum and maximum are what the highest layer says that speaks of them."""
    share = rules.share_of(tenant)
    minimum, maximum = share.minimum, share.maximum
    for entry in _said(tenant, rules):
        minimum = minimum if entry.minimum is None else entry.minimum
        maximum = maximum if entry.maximum is None else entry.maximum
    low, aim, high = (slots_of(tenant, amount, rules) for amount in (minimum, share.target, maximum))
    return Limits(low, aim, max(low, high))


def _said(tenant: str, rules: Rules) -> list[LayerEntry]:
    """Return what the layers say of a tenant, the highest last."""
    return sorted(
        (entry for entry in rules.layers.entries if entry.tenant == tenant), key=lambda entry: entry.layer
    )


def bounded_by(tenant: str, rules: Rules) -> tuple[LayerEntry | None, LayerEntry | None]:
    """Return who set the minimum and the maximum that hold; None for the site file."""
    entries = _said(tenant, rules)
    minimum = next((entry for entry in reversed(entries) if entry.minimum is not None), None)
    maximum = next((entry for entry in reversed(entries) if entry.maximum is not None), None)
    return minimum, maximum


def target(tenant: str, rules: Rules) -> Target:
    """Resolve one tenant: the highest layer that speaks of a thing wins; minimum and maximum always hold."""
    found: Target | None = rules.resolved.get(tenant)
    if found is None:
        found = rules.resolved[tenant] = _resolved(tenant, rules)
    return found


def _resolved(tenant: str, rules: Rules) -> Target:
    within, amount = limits(tenant, rules), rules.share_of(tenant).target
    found = Target(
        0, rules.locality.get(tenant), spread=rules.spread.get(tenant), separate=rules.separate_from(tenant)
    )
    for entry in _said(tenant, rules):
        if entry.target is not None:
            amount = entry.target
            found = replace(found, layer=entry.layer, owner=entry.owner, since=entry.at, until=entry.until)
        if entry.to is not None:
            found = replace(found, to=entry.to)
        if entry.extra:
            found = replace(found, extra=entry.extra, extra_to=entry.extra_to)
    asked = slots_of(tenant, amount, rules)
    slots = within.hold(asked)
    if slots != asked:
        minimum, maximum = bounded_by(tenant, rules)
        bound, by = ("minimum", minimum) if slots > asked else ("maximum", maximum)
        found = replace(found, bound=bound)
        if by is not None:
            found = replace(found, layer=by.layer, owner=by.owner, since=by.at, until=by.until)
        elif found.layer is not Layer.BASE:
            found = replace(found, bound=f"{bound}{OF_SITE}")
    return replace(found, slots=slots, amount=amount, extra=max(0, min(found.extra, within.maximum - slots)))


def had(holds: Target, hosts: Hosts) -> int:
    """Return how many slots of a burst a tenant can have: none while no host there is up."""
    return (
        holds.extra
        if holds.extra and any(host.usable and host.matches(holds.extra_to) for host in hosts.values())
        else 0
    )


def cause(holds: Target) -> str:
    """Say why a tenant has the number that it has: who set it, or what bounds it."""
    if holds.bound is None:
        return f"{holds.owner} set it"
    return (
        f"that is its {holds.bound}"
        if holds.bound.endswith(OF_SITE)
        else f"that is its {holds.bound}, by {holds.owner}"
    )


def with_entry(layers: Layers, entry: LayerEntry) -> Layers:
    """Replace what its layer says of this of its tenant."""
    return Layers(entries=(*without_entry(layers, entry.tenant, entry.layer, entry.setting).entries, entry))


def without_entry(layers: Layers, tenant: str, layer: Layer, setting: Setting) -> Layers:
    """Drop what one layer says of this of a tenant."""
    said = (tenant, layer, setting)
    return Layers(
        entries=tuple(entry for entry in layers.entries if (entry.tenant, entry.layer, entry.setting) != said)
    )


def without_layer(layers: Layers, layer: Layer) -> Layers:
    """Drop everything that one layer says."""
    return Layers(entries=tuple(entry for entry in layers.entries if entry.layer is not layer))


def over(layers: Layers, now: float) -> list[LayerEntry]:
    """Return the entries whose time is over, the earliest first."""
    ended = [
        (entry.until, entry.tenant, entry)
        for entry in layers.entries
        if entry.until is not None and entry.until <= now
    ]
    return [entry for *_, entry in sorted(ended, key=lambda each: each[:2])]
