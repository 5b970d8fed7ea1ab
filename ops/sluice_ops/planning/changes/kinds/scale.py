"""Set the number of workers of a tier, or of the slots of batch."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, Layers, Setting, is_zero
from sluice_ops.model.wording import counted
from sluice_ops.planning.changes.kind import Field, Input, Kind, TierCheck, has_another_number
from sluice_ops.planning.changes.lookups import (
    PLANNED,
    check_number,
    check_share,
    how_to_change_bound,
    name_of_tenant,
    notes_if_stopped,
    person_entry,
    refuse_above_pipeline_share,
    refuse_light,
    refuse_spares,
    tier_of,
)
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import (
    Target,
    bounded_by,
    cause,
    limits,
    slots_of,
    target,
    with_entry,
    without_entry,
)


class Scale(Kind):
    name = "scale"
    summary = (
        "Give a tier k workers, or batch k slots, within its share. The number holds for a time, or until "
        "somebody changes it."
    )
    details = (
        "Sluice hands the tier over to a new incarnation with k workers, or the tier releases its last "
        "workers without a handover. Spare workers work first. When the time is over, the controller "
        "returns to the number that holds then. A minimum, a maximum and spares hold as long as the "
        "number does."
    )
    example = "sluice scale enrich 3 --for 2h"
    fields = (
        Field("tier", Input.TENANT, "The tier's name, as `sluice tiers` lists it, or `batch`."),
        Field(
            "k",
            Input.AMOUNT,
            "How many workers, each of one quantum, or which part of the cluster, such as 50%.",
        ),
        Field(
            "until",
            Input.TIME,
            "When the number ends. Without it, the number holds until somebody changes it.",
            required=False,
            option=True,
        ),
        Field(
            "minimum",
            Input.AMOUNT,
            "The minimum while the number holds, instead of the site file's minimum.",
            required=False,
            option=True,
        ),
        Field(
            "maximum",
            Input.AMOUNT,
            "The maximum while the number holds, instead of the site file's maximum.",
            required=False,
            option=True,
        ),
        Field(
            "spare",
            Input.AMOUNT,
            "The spare workers while the number holds: started and warm, and without work until "
            "another worker is lost or the number is raised.",
            required=False,
            option=True,
        ),
        Field(
            "layer",
            Input.LAYER,
            "The layer in which the number is set: person (the default), maintenance or autoscaler. "
            "The highest layer with a number wins: person, maintenance, autoscaler, shift, site file.",
            required=False,
            option=True,
        ),
    )
    runbook = "scale_tier"
    exact = True
    resizes = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        if spec.k is None:
            message = "scale needs k, the number of workers"
            raise RefusedError(message)
        if spec.tier is not None and spec.tier in cluster.tiers:
            refuse_light(cluster.tiers[spec.tier])
        slots = slots_of(spec.tenant, spec.k, cluster.rules)
        total = cluster.rules.capacity_totals.get(spec.tenant, 0)
        notes = [] if isinstance(spec.k, int) else [f"{spec.k} of {counted(total, 'slot')} are {slots}"]
        low, high = (
            None if amount is None else slots_of(spec.tenant, amount, cluster.rules)
            for amount in (spec.minimum, spec.maximum)
        )
        if low is not None and high is not None and low > high:
            message = (
                f"{spec.tier}: a minimum of {low} is above a maximum of {high}; "
                f"ask for a maximum of {low} or more, or a minimum of {high} or less"
            )
            raise RefusedError(message)
        after = cluster.with_layers(self.layers(spec, cluster, PLANNED, 0.0))
        lowest = limits(spec.tenant, after.rules).minimum
        if high is not None and high < lowest:
            advice = how_to_change_bound(
                "lower", "minimum", bounded_by(spec.tenant, after.rules)[0], spec.tenant
            )
            message = (
                f"{name_of_tenant(spec.tenant)}: a maximum of {high} is below its minimum of {lowest}; "
                f"ask for more, or {advice}"
            )
            raise RefusedError(message)
        if spec.tenant == BATCH:
            check_share(BATCH, slots, slots, after)
            if spec.spare is not None:
                message = "batch has no spares, because its jobs share all slots; leave --spare out"
                raise RefusedError(message)
            return notes
        tier = tier_of(spec, cluster)
        if spec.spare is not None and not is_zero(spec.spare):
            refuse_spares(tier.spec)
        extra = target(tier.spec.name, cluster.rules).extra
        check_number(tier, slots, slots + extra, after)
        refuse_above_pipeline_share(tier, slots, cluster, after)
        holds = target(tier.spec.name, after.rules)
        if holds.slots != slots:
            notes.append(
                f"{tier.spec.name} gets {counted(holds.slots, 'slot')} for now, not {slots}: {cause(holds)}"
            )
        return [*notes, *notes_if_stopped(tier)]

    def refuse_late(self, spec: ChangeSpec, now: float) -> None:
        """Raise RefusedError if the number would end before `now`."""
        if spec.until is not None and spec.until <= now:
            end = f"{datetime.fromtimestamp(spec.until, UTC):%Y-%m-%d %H:%M:%S} UTC"
            message = f"{end} is past, so nothing was changed; name a time in the future"
            raise RefusedError(message)

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return has_another_number(tier, now, aim, cluster)

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        """Return the layers with the number in its layer.

        The layer's entry is removed instead if the lower layers give the same number anyway. This
        is not done if the number has an end, a minimum, a maximum or spares, or if the scaler could
        change the lower number at any time.
        """
        layer = Layer.PERSON if spec.layer is None else Layer[spec.layer.upper()]
        others = without_entry(cluster.rules.layers, spec.tenant, layer, Setting.TARGET)
        below = Layers(entries=tuple(entry for entry in others.entries if entry.layer < layer))
        bounds = {"minimum": spec.minimum, "maximum": spec.maximum, "spare": spec.spare}
        is_redundant = (
            spec.until is None
            and not (layer > Layer.AUTOSCALER and spec.tenant in cluster.rules.scaled)
            and set(bounds.values()) == {None}
            and spec.k == target(spec.tenant, replace(cluster.rules, layers=below)).slots
        )
        if is_redundant:
            return others
        return with_entry(
            others,
            person_entry(spec, by, now).model_copy(
                update={"layer": layer, "target": spec.k, "until": spec.until, **bounds}
            ),
        )

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return check.miscounted(exactly=True)


KIND = Scale()
