"""What a change leaves behind in the layers: the numbers and places that hold from then on."""

from collections.abc import Iterable
from dataclasses import replace

from sluice_ops.model.change import ChangeKind, ChangeSpec
from sluice_ops.model.ids import Tenant
from sluice_ops.model.share import Layer, LayerEntry, Layers, Setting
from sluice_ops.planning.placement.cluster import BURST_ZONE, Host, Rules
from sluice_ops.planning.placement.shares import over, target, with_entry, without_entry, without_layer

PLANNED = "plan"
"""Who sets a number that is only planned with yet."""
ANYWHERE = "anywhere"
"""Migrating there takes a person's locality back."""


def layers_after(spec: ChangeSpec, rules: Rules, by: str, now: float, hosts: Iterable[Host] = ()) -> Layers:
    """Return the layers once this change is through; of a leave, `hosts` tell which places are on burst hosts alone."""
    layers = rules.layers
    match spec.kind:
        case ChangeKind.SCALE:
            layers = _scaled(spec, rules, by, now)
        case ChangeKind.MIGRATE if spec.to in {None, ANYWHERE}:
            layers = without_entry(layers, spec.tenant, Layer.PERSON, Setting.PLACE)
        case ChangeKind.MIGRATE:
            layers = with_entry(layers, _person(spec, by, now).model_copy(update={"to": spec.to}))
        case ChangeKind.BURST:
            update = {"extra": burst_of(spec), "extra_to": spec.to or f"zone:{BURST_ZONE}"}
            layers = with_entry(layers, _person(spec, by, now).model_copy(update=update))
        case ChangeKind.LEAVE:
            layers = _left(layers, [*hosts])
        case ChangeKind.SHIFT:
            layers = _shifted(spec, rules, by, now)
        case ChangeKind.SETTLE:
            layers = _expired(spec, layers)
    return layers


def burst_of(spec: ChangeSpec) -> int:
    """Return how many slots a burst is of; what is no number is refused before."""
    return spec.k if isinstance(spec.k, int) else 1


def _person(spec: ChangeSpec, by: str, now: float) -> LayerEntry:
    """Begin what a person says of a tenant."""
    return LayerEntry(tenant=spec.tenant, layer=Layer.PERSON, owner=by, at=now)


def _scaled(spec: ChangeSpec, rules: Rules, by: str, now: float) -> Layers:
    """Set the number; one that the layers below give anyway is taken back, so that shifts hold again, unless it is to hold for a time."""
    layer = Layer.PERSON if spec.layer is None else Layer[spec.layer.upper()]
    others = without_entry(rules.layers, spec.tenant, layer, Setting.TARGET)
    below = Layers(entries=tuple(entry for entry in others.entries if entry.layer < layer))
    limits = {"minimum": spec.minimum, "maximum": spec.maximum}
    usual = (
        spec.until is None
        and set(limits.values()) == {None}
        and spec.k == target(spec.tenant, replace(rules, layers=below)).slots
    )
    if usual:
        return others
    return with_entry(
        others,
        _person(spec, by, now).model_copy(
            update={"layer": layer, "target": spec.k, "until": spec.until, **limits}
        ),
    )


def _left(layers: Layers, hosts: list[Host]) -> Layers:
    """Take back everything that points to burst hosts and no others."""

    def there(to: str | None) -> bool:
        zones = {host.zone for host in hosts if to is not None and host.matches(to)}
        return to == f"zone:{BURST_ZONE}" or zones == {BURST_ZONE}

    return Layers(entries=tuple(entry for entry in layers.entries if not entry.extra and not there(entry.to)))


def _expired(spec: ChangeSpec, layers: Layers) -> Layers:
    """Take back what is over, of one tenant."""
    gone = [entry for entry in over(layers, spec.until or 0.0) if entry.tenant == spec.tenant]
    return Layers(entries=tuple(entry for entry in layers.entries if entry not in gone))


def _shifted(spec: ChangeSpec, rules: Rules, by: str, now: float) -> Layers:
    layers = without_layer(rules.layers, Layer.SCHEDULE)
    for tenant, numbers in rules.shifts.get(spec.shift or "", {}).items():
        owner = f"shift {spec.shift}" + ("" if by == PLANNED else f" ({by})")
        layers = with_entry(
            layers,
            LayerEntry(tenant=Tenant(tenant), layer=Layer.SCHEDULE, owner=owner, at=now, **dict(numbers)),
        )
    return layers
