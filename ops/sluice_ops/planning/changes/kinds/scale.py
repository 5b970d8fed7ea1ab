"""Set the number of workers of a tier, or of the slots of batch."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, Layers, Setting
from sluice_ops.planning.changes.kind import Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import (
    PLANNED,
    check_number,
    check_share,
    notes_if_stopped,
    person_entry,
    tier_of,
    way_to_change,
    words_for,
)
from sluice_ops.planning.placement.cluster import Cluster, Host, RefusedError, Rules, TierNow
from sluice_ops.planning.placement.drift import numbers
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
        "Give a tier k workers, or batch k slots, within its share; for a time, or until somebody changes it."
    )
    details = (
        "A new incarnation with k workers takes the tier over, or the tier lets its last workers go "
        "where it runs. When the time is over, the controller goes back to the number that holds "
        "then. A minimum and a maximum hold as long as the number does."
    )
    example = "sluice scale enrich 3 --for 2h"
    fields = (
        Field("tier", Input.TENANT, "The tier's name, as `sluice tiers` lists it, or `batch`."),
        Field(
            "k",
            Input.AMOUNT,
            "How many workers, each of one quantum; or how much of the cluster, such as 50%.",
        ),
        Field(
            "until",
            Input.TIME,
            "Until when the number holds; without it, until somebody changes it.",
            required=False,
            option=True,
        ),
        Field(
            "minimum",
            Input.AMOUNT,
            "And never fewer, instead of the site file's minimum.",
            required=False,
            option=True,
        ),
        Field(
            "maximum",
            Input.AMOUNT,
            "And never more, instead of the site file's maximum.",
            required=False,
            option=True,
        ),
        Field(
            "layer",
            Input.LAYER,
            "The layer that the number is set in: autoscaler, maintenance or person (the default); the last one wins.",
            required=False,
            option=True,
        ),
    )
    runbook = "scale_tier"
    exact = True
    resizes = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        if spec.k is None:
            message = "scale needs k, the number of workers"
            raise RefusedError(message)
        slots = slots_of(spec.tenant, spec.k, cluster.rules)
        notes = (
            []
            if isinstance(spec.k, int)
            else [f"{spec.k} of {cluster.rules.wholes.get(spec.tenant, 0)} are {slots} slots"]
        )
        low, high = (
            None if amount is None else slots_of(spec.tenant, amount, cluster.rules)
            for amount in (spec.minimum, spec.maximum)
        )
        if low is not None and high is not None and low > high:
            way = f"ask for a maximum of {low} or more, or a minimum of {high} or less"
            message = f"{spec.tier}: a minimum of {low} is above a maximum of {high}; {way}"
            raise RefusedError(message)
        after = cluster.with_layers(self.layers(spec, cluster.rules, PLANNED, 0.0, ()))
        lowest = limits(spec.tenant, after.rules).minimum
        if high is not None and high < lowest:
            way = way_to_change("lower", "minimum", bounded_by(spec.tenant, after.rules)[0], spec.tenant)
            message = f"{words_for(spec.tenant)}: a maximum of {high} is below its minimum of {lowest}; ask for more, or {way}"
            raise RefusedError(message)
        if spec.tenant == BATCH:
            check_share(BATCH, slots, slots, after)
            return notes
        tier = tier_of(spec, cluster)
        extra = target(tier.spec.name, cluster.rules).extra
        check_number(tier, slots, slots + extra, after)
        holds = target(tier.spec.name, after.rules)
        if holds.slots != slots:
            notes.append(f"{tier.spec.name} has {holds.slots}, not {slots}, for now: {cause(holds)}")
        return [*notes, *notes_if_stopped(tier)]

    def refuse_late(self, spec: ChangeSpec, now: float) -> None:
        """Refuse an end that is past."""
        if spec.until is not None and spec.until <= now:
            message = f"{datetime.fromtimestamp(spec.until, UTC):%Y-%m-%d %H:%M:%S} UTC is past: nothing was changed; name a time to come"
            raise RefusedError(message)

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Tell whether the tier is not yet as the change wants it."""
        return len(now.slots) != numbers(now, aim, cluster.hosts)[0]

    def layers(self, spec: ChangeSpec, rules: Rules, by: str, now: float, hosts: Iterable[Host]) -> Layers:
        """Set the number. A number that the layers below give anyway is taken back, unless it holds for a time."""
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
            person_entry(spec, by, now).model_copy(
                update={"layer": layer, "target": spec.k, "until": spec.until, **limits}
            ),
        )

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what is not as the change wants it."""
        return check.miscounted(exactly=True)


KIND = Scale()
