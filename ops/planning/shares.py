"""Shares: from the site's numbers and the layers above them to the slots that each tenant is to have, and where."""

from dataclasses import dataclass, replace

from ops.model.share import Layer, LayerEntry, Layers, Setting, Share
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
    since: float | None = None
    until: float | None = None

    @property
    def k(self) -> int:
        """All slots together."""
        return self.slots + self.extra


def target(tenant: str, rules: Rules) -> Target:
    """Resolve one tenant: the highest layer that speaks of a thing wins; minimum and maximum always hold."""
    share = rules.shares.get(tenant, Share())
    entries = sorted((entry for entry in rules.layers.entries if entry.tenant == tenant), key=lambda entry: entry.layer)
    found = Target(share.target, rules.locality.get(tenant))
    for entry in entries:
        if entry.target is not None:
            found = replace(found, slots=entry.target, layer=entry.layer, owner=entry.owner, since=entry.at, until=entry.until)
        if entry.to is not None:
            found = replace(found, to=entry.to)
        if entry.extra:
            found = replace(found, extra=entry.extra, extra_to=entry.extra_to)
    slots = max(share.minimum, min(share.maximum, found.slots))
    return replace(found, slots=slots, extra=max(0, min(found.extra, share.maximum - slots)))


def with_entry(layers: Layers, entry: LayerEntry) -> Layers:
    """Replace what its layer says of this of its tenant."""
    return Layers(entries=(*without_entry(layers, entry.tenant, entry.layer, entry.setting).entries, entry))


def without_entry(layers: Layers, tenant: str, layer: Layer, setting: Setting) -> Layers:
    """Drop what one layer says of this of a tenant."""
    said = (tenant, layer, setting)
    return Layers(entries=tuple(entry for entry in layers.entries if (entry.tenant, entry.layer, entry.setting) != said))


def without_layer(layers: Layers, layer: Layer) -> Layers:
    """Drop everything that one layer says."""
    return Layers(entries=tuple(entry for entry in layers.entries if entry.layer is not layer))


def over(layers: Layers, now: float) -> list[LayerEntry]:
    """Return the entries whose time is over, the earliest first."""
    ended = [(entry.until, entry.tenant, entry) for entry in layers.entries if entry.until is not None and entry.until <= now]
    return [entry for *_, entry in sorted(ended, key=lambda each: each[:2])]
