"""Bring a tenant to the number that holds: the controller's own change."""

from collections.abc import Iterable

from sluice_ops.model.change import SETTLE, ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layers
from sluice_ops.planning.changes.kind import Kind, TierCheck, has_wrong_number
from sluice_ops.planning.placement.cluster import Cluster, Host, Rules, TierNow
from sluice_ops.planning.placement.shares import Target, over
from sluice_ops.planning.shortage.fitting import lacking


class Settle(Kind):
    name = SETTLE
    summary = "Bring a tenant to the number that holds now."
    details = (
        "The time of another number is over, or room has come back. With `k`, a tier goes on with so "
        "many workers for the time being, because another tier lacks some of its minimum."
    )
    example = ""
    command = False
    own = True
    may_wait = True
    resizes = True

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Tell whether the tier is not yet as the change wants it."""
        left = self.gives_up(spec)
        if left is None:
            return has_wrong_number(now, aim, cluster)
        return len(now.slots) > left and any(ask.tenant != BATCH for ask in lacking(cluster))

    def layers(self, spec: ChangeSpec, rules: Rules, by: str, now: float, hosts: Iterable[Host]) -> Layers:
        """Take back the numbers of the tenant whose time is over."""
        gone = [entry for entry in over(rules.layers, spec.until or 0.0) if entry.tenant == spec.tenant]
        return Layers(entries=tuple(entry for entry in rules.layers.entries if entry not in gone))

    def gives_up(self, spec: ChangeSpec) -> int | None:
        """Return `k`, with which the tier makes room for another one."""
        return spec.k if isinstance(spec.k, int) else None

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what is not as the change wants it."""
        left = self.gives_up(spec)
        if left is None:
            return check.miscounted()
        return (
            [f"is to go on with {left} slots"] if len(now.slots) > left and check.minimum_is_lacking else []
        )


KIND = Settle()
