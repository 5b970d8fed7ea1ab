"""Settle: the controller's own change that brings a tenant to the number that holds."""

from collections.abc import Iterable

from sluice_ops.model.change import SETTLE, ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layers
from sluice_ops.model.wording import counted
from sluice_ops.planning.changes.kind import Kind, TierCheck, has_wrong_number
from sluice_ops.planning.placement.cluster import Cluster, TierNow
from sluice_ops.planning.placement.shares import Target, ended_entries
from sluice_ops.planning.shortage.fitting import requests_for_minimums


class Settle(Kind):
    name = SETTLE
    summary = "Bring a tenant to the number that holds now."
    details = (
        "Another number has ended, or room has come back. With `k`, the tier continues with k workers "
        "for the time being, because another tier lacks some of its minimum."
    )
    example = ""
    command = False
    own = True
    may_wait = True
    resizes = True

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        workers = self.reduced_to(spec)
        if workers is None:
            return has_wrong_number(tier, now, aim, cluster)
        return len(now.slots) > workers and any(
            request.tenant != BATCH for request in requests_for_minimums(cluster)
        )

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        """Remove the tenant's entries that have ended."""
        layers = cluster.rules.layers
        ended = [entry for entry in ended_entries(layers, spec.until or 0.0) if entry.tenant == spec.tenant]
        return Layers(entries=tuple(entry for entry in layers.entries if entry not in ended))

    def reduced_to(self, spec: ChangeSpec) -> int | None:
        return spec.k if isinstance(spec.k, int) else None

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        workers = self.reduced_to(spec)
        if workers is None:
            return check.miscounted()
        if len(now.slots) <= workers or not check.minimum_is_lacking:
            return []
        return [f"should continue with {counted(workers, 'slot')}"]


KIND = Settle()
