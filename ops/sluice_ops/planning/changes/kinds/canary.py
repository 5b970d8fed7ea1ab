"""Prove that a host can work: one worker moves there, and has to process records."""

from collections.abc import Iterable, Sequence

from sluice_ops.model.change import ChangeSpec, Move, Step, WorkerMove
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.kind import HOST, MOVE_STEPS, MovesWorkers
from sluice_ops.planning.changes.lookups import host_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.exactly import place_exactly
from sluice_ops.planning.placement.shares import Target, available_extra, target


class Canary(MovesWorkers):
    name = "canary"
    summary = "Prove a new host: a worker there has to process records."
    details = (
        "The host's agent answers, and `sluice doctor --host` found nothing bad when the host joined. The "
        "tier is handed over only after the worker has processed records in the warm-up. If it does not, "
        "the tier stays where it is, and the host is cordoned. The runbook `new_hosts` then spreads the load."
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
        return spec.model_copy(update={"moving": workers_to([spec.host], cluster)})

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        name = host_of(spec, cluster)
        host = cluster.hosts[name]
        if not host.usable:
            message = f"host {name} is {host.state}, so no worker can move there; run `sluice return {name}`"
            raise RefusedError(message)
        if not spec.moving:
            raise RefusedError(no_worker_to(name))
        return []

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        return [
            f"worker {move.worker} of {move.tier} is to process records on {move.to}" for move in spec.moving
        ]


KIND = Canary()


def no_worker_to(host: HostName) -> str:
    """Return that no worker can prove a host, and how to find out why."""
    return (
        f"no single worker can move to {host}: no tier with workers runs, or room, locality, spread, "
        f"pinned or dedicated forbid it; to see why, run `sluice migrate TIER {host} --worker SLOT --dry-run`"
    )


def workers_to(hosts: Sequence[HostName], cluster: Cluster, *, short: bool = False) -> tuple[WorkerMove, ...]:
    """Return one worker for each host, all of the tier whose handover costs least.

    Hosts to which no further worker of this tier may move are left out. Empty if no tier may move a
    single worker to any of the hosts. With `short`, a tier with fewer workers than its share may.
    """
    for tier in sorted(cluster.end_first(), key=_cost):
        now = tier.placement
        if now is None or tier.failed or tier.paused:
            continue
        aim = target(tier.spec.name, cluster.rules)
        if short:
            aim = aim.with_own(min(aim.own, len(now.slots) - available_extra(aim, cluster.hosts)))
        if moving := tuple(_moving(tier, now, aim, hosts, cluster)):
            return moving
    return ()


def _moving(
    tier: TierNow, now: Placement, aim: Target, hosts: Sequence[HostName], cluster: Cluster
) -> Iterable[WorkerMove]:
    """Yield the workers of one tier that move, as many as the rules of the site allow together."""
    after, left = now, [*range(len(now.slots))]
    for host in hosts:
        for worker in [number for number in reversed(left) if now.slots[number] != host]:
            slots = (*after.slots[:worker], host, *after.slots[worker + 1 :])
            moved = after.model_copy(update={"slots": slots})
            try:
                place_exactly(tier.spec, aim, now, moved, cluster.hosts)
            except RefusedError:
                continue
            after = moved
            left.remove(worker)
            yield WorkerMove(tier=tier.spec.name, worker=worker, to=host)
            break


def _cost(tier: TierNow) -> tuple[bool, bool]:
    """Return the order of tiers: those without state first, realtime tiers last."""
    return tier.spec.mode is Mode.REALTIME, tier.spec.state
