"""Move drifted tiers back."""

from collections.abc import Iterable

from sluice_ops.model.change import REPAIR, ChangeSpec, Move
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.unknown_names import unknown
from sluice_ops.planning.changes.kind import ANY_TIER, Kind, TierCheck
from sluice_ops.planning.changes.lookups import notes_on_named_tier
from sluice_ops.planning.placement.cluster import Cluster, TierNow
from sluice_ops.planning.placement.drift import drift, unmet_pins
from sluice_ops.planning.placement.shares import Target, target


class Repair(Kind):
    name = REPAIR
    summary = (
        "Move drifted tiers to where a plan would place them, with as few moves as possible, while "
        "records flow."
    )
    details = (
        "A dry run lists the drift and the moves. A tier that cannot be repaired now is listed with "
        "the reason; the others are repaired."
    )
    example = "sluice drift --repair"
    fields = (ANY_TIER,)
    runbook = "repair_drift"
    command = False
    exact = True
    may_wait = True
    repairs = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        unknown_names = unknown(cluster.rules, cluster.rules.shifts, cluster.tiers)
        return [*unknown_names, *notes_on_named_tier(spec, cluster)]

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Note the pinned workers that tiers lack even after the moves."""
        after = {move.tier: move.after for move in moves}
        for name, tier in sorted(cluster.tiers.items()):
            now = after.get(name, tier.placement)
            if now is not None and now.slots and spec.tier in {None, name} and not tier.awaits_upgrade:
                pins = unmet_pins(name, now, target(name, cluster.rules), cluster.hosts)
                yield from (f"{name} {pin}" for pin in pins)

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return bool(drift(tier, aim, cluster.hosts))

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return check.breaches()


KIND = Repair()
