"""Pause tiers of a drain to empty: first those that read from outside, then each that is empty."""

from collections.abc import Collection, Iterable

from sluice_ops.model.change import DRAIN_TO_EMPTY, ChangeSpec, Step
from sluice_ops.model.ids import TierName
from sluice_ops.model.tier import TierSpec, written_by
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import Kind
from sluice_ops.planning.changes.lookups import refuse_unknown_tiers
from sluice_ops.planning.placement.cluster import Cluster


class DrainToEmpty(Kind):
    name = DRAIN_TO_EMPTY
    summary = "Pause tiers of a drain to empty. Slots and Spark sessions stay."
    details = (
        "`drain_to_empty` posts it. Without tiers it is the beginning: the tiers that read only streams "
        "from outside are paused, and the change is approved as a pause of every tier."
    )
    example = "sluice drain-to-empty"
    steps = (Step.PREFLIGHT, Step.PAUSE)
    command = False
    waits_for_lock = True

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Return whether every tier will be paused: the drain begins."""
        return not spec.tiers

    def whole_tiers(self, spec: ChangeSpec, tiers: Collection[TierSpec]) -> frozenset[TierName]:
        return frozenset(spec.tiers or sources(tiers))

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        refuse_unknown_tiers(spec, cluster)
        return []

    def effect(self, spec: ChangeSpec) -> str:
        if spec.tiers:
            return f"pauses, because nothing is left for them: {listed(spec.tiers)}"
        return (
            "the tiers that read from outside are paused; then each other tier is paused once it has "
            "processed every record"
        )


KIND = DrainToEmpty()


def sources(tiers: Collection[TierSpec]) -> tuple[TierName, ...]:
    """Return the tiers that read no stream of another tier."""
    written = written_by(tiers)
    return tuple(tier.name for tier in tiers if written.isdisjoint(tier.inputs))
