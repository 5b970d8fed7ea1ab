"""Change to a shift of the site file."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH, Tenant
from sluice_ops.model.share import Layer, LayerEntry, Layers
from sluice_ops.model.wording import counted
from sluice_ops.planning.changes.kind import Field, Input, Kind
from sluice_ops.planning.changes.lookups import PLANNED
from sluice_ops.planning.placement.cluster import Cluster, RefusedError
from sluice_ops.planning.placement.shares import cause, slots_of, target, with_entry, without_layer


class Shift(Kind):
    name = "shift"
    summary = "Change to a shift: slots move to batch jobs or tiers."
    example = "sluice shift night"
    fields = (Field("shift", Input.SHIFT, "A shift of the site file, such as night or day."),)
    layer = Layer.SCHEDULE
    may_wait = True
    resizes = True
    waits_for_lock = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        known = ", ".join(sorted(cluster.rules.shifts)) or "none"
        if spec.shift is None or spec.shift not in cluster.rules.shifts:
            message = f'there is no shift "{spec.shift}" in the site file; known shifts: {known}'
            raise RefusedError(message)
        shares = cluster.rules.shifts[spec.shift]
        for tenant in shares:
            if tenant != BATCH and tenant not in cluster.tiers:
                message = (
                    f'shift "{spec.shift}" names "{tenant}", which is neither a tier nor batch; '
                    f"correct shifts.{spec.shift}.shares in the site file"
                )
                raise RefusedError(message)
        rules = cluster.with_layers(self.layers(spec, cluster, PLANNED, 0.0)).rules
        return [
            f"{tenant} gets {counted(holds.slots, 'slot')}, not the shift's {numbers.target}: {cause(holds)}"
            for tenant, numbers in shares.items()
            if numbers.target is not None
            and (holds := target(tenant, rules)).slots != slots_of(tenant, numbers.target, rules)
        ]

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        layers = without_layer(cluster.rules.layers, Layer.SCHEDULE)
        for tenant, numbers in cluster.rules.shifts.get(spec.shift or "", {}).items():
            owner = f"shift {spec.shift}" + ("" if by == PLANNED else f" ({by})")
            layers = with_entry(
                layers,
                LayerEntry(tenant=Tenant(tenant), layer=Layer.SCHEDULE, owner=owner, at=now, **dict(numbers)),
            )
        return layers


KIND = Shift()
