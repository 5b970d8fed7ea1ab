"""What a start and a stop of a tier would do: the controller carries them out by itself once they are wanted. Pure. Called by `plan`."""

from collections.abc import Callable
from functools import partial

from sluice_ops.model.change import ChangeKind, Move, Plan
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Standby
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, TierNow, holding
from sluice_ops.planning.placement.shares import Target, target
from sluice_ops.planning.placement.solver import Placed
from sluice_ops.planning.shortage.fitting import attempts, place_most
from sluice_ops.planning.shortage.lending import make_room


def starting(name: TierName, cluster: Cluster) -> Plan:
    """Say where a tier would start: beside all that is there, or else in room that batch makes for it."""
    tier = cluster.tiers[name]
    if tier.placement is not None and not tier.failed:
        runs = "is paused" if tier.paused else "runs, or is about to be started again by itself"
        return Plan(notes=(f"{name} {runs}: nothing else is started",))
    if tier.placement is not None:  # what was given up goes first
        cluster = cluster.with_hosts(holding(cluster.hosts, tier.spec, tier.placement, -1))
    aim = target(name, cluster.rules)
    try:
        placement, placed, given = _place(tier, aim, cluster)
    except RefusedError as refused:
        return Plan(
            notes=(f"{name} would wait: {refused}",), unpredicted="how long it takes until there is room"
        )
    notes = [
        f"{name} starts, and is paused until it is resumed"
        if tier.paused
        else f"{name} does not run now: its start leaves no gap"
    ]
    if given:
        notes.append(
            f"batch gives back {len(given)} slot(s) first, after {cluster.rules.reclaim_seconds:g} s at most"
        )
    if len(placement.slots) < aim.k:
        notes.append(f"{name} gets {len(placement.slots)} of its {aim.k} slots: room is short")
    move = Move(tier=name, before=tier.placement, after=placement)
    return _timed(ChangeKind.START, cluster, Plan(moves=(move,), notes=(*notes, *placed.notes)))


def _place(tier: TierNow, aim: Target, cluster: Cluster) -> tuple[Placement, Placed, tuple[HostName, ...]]:
    """Place a tier as the controller would, and name the slots that batch gives back for it; RefusedError when that would not help."""
    try:
        return *place_most(tier.spec, aim, tier.last, cluster), ()
    except RefusedError as refused:
        for attempt in attempts(tier.spec, aim, tier.last):
            try:
                (placement, placed), given = make_room(cluster, aim.to, partial(_with_hosts, attempt))
            except RefusedError:
                continue
            return placement, placed, given
        raise refused from None


def _with_hosts(
    attempt: Callable[[Cluster], tuple[Placement, Placed]], after: Cluster
) -> tuple[tuple[Placement, Placed], Hosts]:
    found = attempt(after)
    return found, found[1].hosts


def stopping(name: TierName, cluster: Cluster) -> Plan:
    """Say what would end."""
    tier = cluster.tiers[name]
    now = tier.placement
    if now is None:
        return Plan(notes=(f"{name} does not run: nothing is stopped",))
    beside = "" if tier.spec.standby is Standby.NONE else ", and its standby"
    if tier.failed:
        return _timed(
            ChangeKind.STOP,
            cluster,
            Plan(notes=(f"{name} was given up: it is not started again, and its room is free then",)),
        )
    ends = f"{name} ends after its last commit: its driver on {now.driver}, its workers on {listed(now.slots)}{beside}"
    gap = f"nothing comes out of {name} from then on until it is started again; what comes in waits"
    return _timed(ChangeKind.STOP, cluster, Plan(notes=(ends, gap)))


def _timed(kind: ChangeKind, cluster: Cluster, planned: Plan) -> Plan:
    """Add how long it takes, as far as the last ones tell."""
    seconds, unknown = cluster.pace.rest.get(kind, 0.0), cluster.pace.unknown(kind)
    return planned.model_copy(update={"predicted_seconds": seconds, "unpredicted": unknown})
