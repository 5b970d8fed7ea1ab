"""Move single workers off hosts with much more load than others."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Move
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import MovesWorkers
from sluice_ops.planning.placement.cluster import Cluster, RefusedError
from sluice_ops.planning.placement.rebalance import Loads, loads_before_and_after, rebalancing

MOST_NAMED = 10
"""How many hosts a note names at most."""


class Rebalance(MovesWorkers):
    name = "rebalance"
    summary = "Move single workers off hosts that are busier than others."
    details = (
        "The moves are as few as possible, and obey every rule of the site file. The load of a host is the "
        "busy part of its workers' time, measured by their drivers. A dry run lists the moves, and the load "
        "of each host before and after."
    )
    example = "sluice rebalance --dry-run"
    runbook = "rebalance_workers"
    exact = True

    def complete(self, spec: ChangeSpec, tier_release: str | None, cluster: Cluster) -> ChangeSpec:
        """Fix the moves for all steps, because the loads change while tiers move."""
        return spec if spec.moving else spec.model_copy(update={"moving": rebalancing(cluster)})

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        if not cluster.busy:
            message = (
                "no load is known yet, so nothing can be rebalanced: drivers report the load of their tiers "
                "every 10 s while records flow; try again in half a minute"
            )
            raise RefusedError(message)
        unknown = sorted(
            name
            for name, tier in cluster.tiers.items()
            if tier.placement is not None and tier.placement.slots and name not in cluster.busy
        )
        return [f"the load of {listed(unknown)} is not known yet, and counts as none"] if unknown else []

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Note each moved worker, and the loads before and after."""
        placements = {move.tier: move.after for move in moves}
        before, after = loads_before_and_after(cluster, placements)
        limit = Loads(cluster).limit
        for move in moves:
            old = () if move.before is None else move.before.slots
            for number, (source, to) in enumerate(zip(old, move.after.slots, strict=True)):
                if source != to:
                    yield f"worker {number} of {move.tier} moves from {source} to {to}"
        changed = [name for name in sorted(before) if abs(before[name] - after[name]) > 0.0]
        if changed:
            loads = (f"{name} {before[name]:.0%} → {after[name]:.0%}" for name in changed)
            yield f"load: {', '.join(loads)}"
            return
        fullest = sorted(before, key=lambda name: (-before[name], name))
        named = ", ".join(f"{name} {before[name]:.0%}" for name in fullest[:MOST_NAMED])
        verdict = (
            f"no host is above {limit:.0%}"
            if not any(Loads(cluster).excess(before, name) for name in before)
            else f"no move of a worker brings the hosts above {limit:.0%} nearer to that limit"
        )
        yield f"{verdict}; load: {named or 'no host is known'}"


KIND = Rebalance()
