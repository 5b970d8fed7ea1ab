"""Prove that a host can work: one worker moves there, and has to process records."""

from collections.abc import Iterable
from contextlib import suppress

from sluice_ops.model.change import ChangeSpec, Move, Step, WorkerMove
from sluice_ops.model.ids import HostName
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.kind import HOST, MOVE_STEPS, MovesWorkers
from sluice_ops.planning.changes.lookups import host_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.exactly import place_exactly
from sluice_ops.planning.placement.shares import target


class Canary(MovesWorkers):
    name = "canary"
    summary = "Prove a new host: a worker there has to process records."
    details = (
        "The host's agent answers, and `sluice doctor --host` found nothing bad when the host joined. The "
        "tier is handed over only after the worker has processed records in the warm-up. If it does not, "
        "the tier stays where it is, and the host is cordoned. `rebalance_workers` then spreads the load."
    )
    example = "sluice canary h4"
    steps = (Step.PREFLIGHT, Step.HEALTH, *MOVE_STEPS[1:])
    fields = (HOST,)
    runbook = "new_hosts"
    exact = True
    proves_host = True

    def complete(self, spec: ChangeSpec, tier_release: str | None, cluster: Cluster) -> ChangeSpec:
        """Fix the worker for all steps."""
        if spec.moving or spec.host is None or spec.host not in cluster.hosts:
            return spec
        return spec.model_copy(update={"moving": _canary(spec.host, cluster)})

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        name = host_of(spec, cluster)
        host = cluster.hosts[name]
        if not host.usable:
            message = f"host {name} is {host.state}, so no worker can move there; run `sluice return {name}`"
            raise RefusedError(message)
        if not spec.moving:
            message = (
                f"no single worker can move to {name}: no tier runs, or room, locality, spread or dedicated "
                f"forbid it; to see why, run `sluice migrate TIER {name} --worker SLOT --dry-run`"
            )
            raise RefusedError(message)
        return []

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        return [
            f"worker {move.worker} of {move.tier} is to process records on {move.to}" for move in spec.moving
        ]


KIND = Canary()


def _canary(host: HostName, cluster: Cluster) -> tuple[WorkerMove, ...]:
    """Return the worker that moves to a host, of the tier whose handover costs least.

    Empty if no single worker may move there.
    """
    for tier in sorted(cluster.end_first(), key=_cost):
        now = tier.placement
        if now is None or tier.failed or tier.paused:
            continue
        aim = target(tier.spec.name, cluster.rules)
        for worker in reversed(range(len(now.slots))):
            slots = tuple(host if number == worker else slot for number, slot in enumerate(now.slots))
            with suppress(RefusedError):
                place_exactly(tier.spec, aim, now.model_copy(update={"slots": slots}), cluster.hosts)
                if slots != now.slots:
                    return (WorkerMove(tier=tier.spec.name, worker=worker, to=host),)
    return ()


def _cost(tier: TierNow) -> tuple[bool, bool]:
    """Return the order of tiers: those without state first, realtime tiers last."""
    return tier.spec.mode is Mode.REALTIME, tier.spec.state
