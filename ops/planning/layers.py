"""What a change leaves behind in the layers: the numbers and places that hold from then on."""

from ops.model.ids import Tenant, TierName
from ops.model.operation import ChangeKind, ChangeSpec
from ops.model.share import Layer, LayerEntry, Layers
from ops.planning.cluster import BURST_ZONE, Rules
from ops.planning.shares import below, entry_of, target, with_entry, without_layer

ANYWHERE = "anywhere"
"""Migrating there takes a person's locality back."""


def layers_after(spec: ChangeSpec, rules: Rules, by: str, now: float) -> Layers:
    """Return the layers once this change is through."""
    match spec.kind:
        case ChangeKind.SCALE:
            return _scaled(spec, rules, by, now)
        case ChangeKind.MIGRATE:
            to = None if spec.to == ANYWHERE else spec.to
            return with_entry(rules.layers, _person(spec.tier, rules.layers, by, now).model_copy(update={"to": to}))
        case ChangeKind.BURST:
            update = {"extra": 1 if spec.k is None else spec.k, "extra_to": spec.to or f"zone:{BURST_ZONE}"}
            return with_entry(rules.layers, _person(spec.tier, rules.layers, by, now).model_copy(update=update))
        case ChangeKind.LEAVE:
            return _left(rules.layers)
        case ChangeKind.SHIFT:
            return _shifted(spec, rules, by, now)
    return rules.layers


def _person(tier: TierName | None, layers: Layers, by: str, now: float) -> LayerEntry:
    """Return what a person has said of a tier, to be said anew."""
    before = entry_of(layers, tier or "", Layer.PERSON)
    if before is None:
        return LayerEntry(tenant=Tenant(tier or ""), layer=Layer.PERSON, owner=by, at=now)
    return before.model_copy(update={"owner": by, "at": now})


def _scaled(spec: ChangeSpec, rules: Rules, by: str, now: float) -> Layers:
    """Set the number; one that the layers below give anyway is taken back, so that shifts hold again."""
    usual = target(spec.tier or "", below(spec.tier or "", Layer.PERSON, rules)).slots
    number = None if spec.k == usual else spec.k
    return with_entry(rules.layers, _person(spec.tier, rules.layers, by, now).model_copy(update={"target": number}))


def _left(layers: Layers) -> Layers:
    """Take back everything that points to burst hosts."""
    for entry in layers.entries:
        update: dict[str, object] = {"extra": 0, "extra_to": None}
        if entry.to == f"zone:{BURST_ZONE}":
            update["to"] = None
        layers = with_entry(layers, entry.model_copy(update=update))
    return layers


def _shifted(spec: ChangeSpec, rules: Rules, by: str, now: float) -> Layers:
    layers = without_layer(rules.layers, Layer.SCHEDULE)
    for tenant, slots in rules.shifts.get(spec.shift or "", {}).items():
        owner = f"shift {spec.shift} ({by})"
        layers = with_entry(layers, LayerEntry(tenant=Tenant(tenant), layer=Layer.SCHEDULE, target=slots, owner=owner, at=now))
    return layers
