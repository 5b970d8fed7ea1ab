"""Start a tier."""

from collections.abc import Callable, Iterable
from functools import partial

from sluice_ops.model.change import START, ChangeSpec, Move, Plan, Step
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.wording import counted
from sluice_ops.planning.changes.kind import TIER, Kind, Option, with_predicted_time
from sluice_ops.planning.changes.lookups import tier_of
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, TierNow, holding
from sluice_ops.planning.placement.shares import Target, target
from sluice_ops.planning.placement.solver import Placed
from sluice_ops.planning.shortage.fitting import attempts, place_most
from sluice_ops.planning.shortage.lending import make_room


class Start(Kind):
    name = START
    summary = (
        "Start a tier. A tier that was given up after failures is tried again. With --from, a stopped "
        "tier with state goes back to a savepoint. Run that where the tier's checkpoints are, as the user "
        "of the drivers."
    )
    details = "The tier's DAG in Airflow watches the tier while a run of the DAG is active."
    example = "sluice start counts"
    steps = (Step.PREFLIGHT,)
    fields = (TIER,)
    options = (
        Option(
            "savepoint",
            "--from",
            "Go back to this savepoint, and process all later records again.",
            metavar="NAME",
        ),
        Option("yes", "--yes", "With --from: accept that changed rows go to streams again."),
    )

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        """Plan where the tier would start: in free room, or else in room that batch gives back."""
        tier = tier_of(spec, cluster)
        name = tier.spec.name
        if tier.placement is not None and not tier.failed:
            condition = "is paused" if tier.paused else "runs, or the controller is about to restart it"
            return Plan(notes=(f"{name} {condition}: nothing is started",))
        if tier.placement is not None:  # the incarnation that was given up frees its room first
            cluster = cluster.with_hosts(holding(cluster.hosts, tier.spec, tier.placement, -1))
        aim = target(name, cluster.rules)
        try:
            placement, placed, returned = _place(tier, aim, cluster)
        except RefusedError as refused:
            return Plan(
                notes=(f"{name} would wait: {refused}",), unpredicted="how long the tier waits for room"
            )
        remarks = [
            f"{name} starts paused; to resume it, run `sluice resume {name}`"
            if tier.paused
            else f"{name} does not run now, so its start makes no gap"
        ]
        if returned:
            remarks.append(
                f"batch gives back {counted(len(returned), 'slot')} first, within "
                f"{cluster.rules.reclaim_seconds:g} s"
            )
        if len(placement.slots) < aim.k:
            remarks.append(
                f"{name} gets {len(placement.slots)} of its {counted(aim.k, 'slot')}: room is short"
            )
        move = Move(tier=name, before=tier.placement, after=placement)
        return with_predicted_time(START, cluster, Plan(moves=(move,), notes=(*remarks, *placed.notes)))


KIND = Start()


def _place(tier: TierNow, aim: Target, cluster: Cluster) -> tuple[Placement, Placed, tuple[HostName, ...]]:
    """Place a tier as the controller would. Return also the slots that batch gives back for it.

    Raise RefusedError if the tier finds no room even then.
    """
    try:
        return *place_most(tier.spec, aim, tier.last, cluster), ()
    except RefusedError as refused:
        for attempt in attempts(tier.spec, aim, tier.last):
            try:
                (placement, placed), returned = make_room(cluster, aim.to, partial(_with_hosts, attempt))
            except RefusedError:
                continue
            return placement, placed, returned
        raise refused from None


def _with_hosts(
    attempt: Callable[[Cluster], tuple[Placement, Placed]], after: Cluster
) -> tuple[tuple[Placement, Placed], Hosts]:
    attempted = attempt(after)
    return attempted, attempted[1].hosts
