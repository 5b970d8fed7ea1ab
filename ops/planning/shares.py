"""Shares: from the site's numbers and the layers above them to the slots that each tenant is to have, and where."""

from dataclasses import dataclass

from ops.model.ids import Tenant
from ops.model.share import Layer, LayerEntry, Layers, Share
from ops.planning.cluster import Rules


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

    @property
    def k(self) -> int:
        """All slots together."""
        return self.slots + self.extra


def target(tenant: str, rules: Rules) -> Target:
    """Resolve one tenant: the highest layer that speaks of a thing wins; minimum and maximum always hold."""
    share = rules.shares.get(tenant, Share())
    entries = sorted((entry for entry in rules.layers.entries if entry.tenant == tenant), key=lambda entry: entry.layer)
    slots, layer, owner = share.target, Layer.BASE, "the site file"
    to = rules.locality.get(tenant)
    extra, extra_to = 0, None
    for entry in entries:
        if entry.target is not None:
            slots, layer, owner = entry.target, entry.layer, entry.owner
        if entry.to is not None:
            to = entry.to
        if entry.extra:
            extra, extra_to = entry.extra, entry.extra_to
    slots = max(share.minimum, min(share.maximum, slots))
    return Target(slots, to, max(0, min(extra, share.maximum - slots)), extra_to, layer, owner)


def entry_of(layers: Layers, tenant: str, layer: Layer) -> LayerEntry | None:
    """Return the entry of one layer for a tenant."""
    return next((entry for entry in layers.entries if entry.tenant == tenant and entry.layer is layer), None)


def with_entry(layers: Layers, entry: LayerEntry) -> Layers:
    """Replace what its layer says of its tenant; an entry that says nothing is dropped."""
    others = tuple(other for other in layers.entries if (other.tenant, other.layer) != (entry.tenant, entry.layer))
    empty = entry.target is None and entry.to is None and entry.extra == 0
    return Layers(entries=others if empty else (*others, entry))


def without_layer(layers: Layers, layer: Layer) -> Layers:
    """Drop everything that one layer says."""
    return Layers(entries=tuple(entry for entry in layers.entries if entry.layer is not layer))


def below(tenant: str, layer: Layer, rules: Rules) -> Rules:
    """Return the rules as if this layer said nothing of the tenant."""
    kept = tuple(entry for entry in rules.layers.entries if (entry.tenant, entry.layer) != (Tenant(tenant), layer))
    return Rules(rules.shares, rules.locality, Layers(entries=kept), rules.shifts, rules.partitions, rules.batch_quantum)
