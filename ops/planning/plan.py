"""From what is asked and what is to a plan, or a refusal that a person can act on."""

from collections.abc import Iterable

from ops.model.assignment import HostState
from ops.model.ids import BATCH, HostName
from ops.model.incarnation import Placement
from ops.model.operation import ChangeKind, ChangeSpec, Move, Plan
from ops.planning.cluster import BURST_ZONE, Cluster, Hosts, RefusedError, TierNow, holding
from ops.planning.layers import layers_after
from ops.planning.placement import Ask, place, place_tier
from ops.planning.refusals import check
from ops.planning.shares import Target, target

MOVING = frozenset(
    {
        ChangeKind.DRAIN,
        ChangeKind.REBOOT,
        ChangeKind.MIGRATE,
        ChangeKind.SCALE,
        ChangeKind.BURST,
        ChangeKind.LEAVE,
        ChangeKind.SHIFT,
        ChangeKind.EXPIRE,
    }
)
"""The kinds of change that start new incarnations."""


def plan(spec: ChangeSpec, cluster: Cluster) -> Plan:
    """Plan one change; RefusedError names what is wrong and what to do. An empty plan says that there is nothing to do."""
    notes = list(check(spec, cluster))
    if spec.kind not in MOVING:
        return Plan(notes=tuple(notes))
    batch, after = _place_batch(aftermath(spec, cluster), notes)
    moves = _moves(spec, after, notes)
    if not moves and batch == cluster.batch:
        notes.append("nothing has to move")
    return Plan(
        moves=tuple(moves),
        batch_slots=batch,
        notes=tuple(notes),
        predicted_seconds=cluster.pace.seconds(len(moves), len(moves)),
        predicted_gap_seconds=cluster.pace.gap if moves else 0.0,
    )


def aftermath(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster under the layers and the host state that this change leads to; nothing has moved in it yet."""
    after = cluster.with_layers(layers_after(spec, cluster.rules, "plan", 0.0))
    if spec.kind in {ChangeKind.DRAIN, ChangeKind.REBOOT} and spec.host is not None and spec.host in after.hosts:
        after = after.with_state(spec.host, HostState.DRAINING)
    return after


def _moves(spec: ChangeSpec, cluster: Cluster, notes: list[str]) -> list[Move]:
    """Place the next incarnation of every tier that has to move, beside all that is there, nearest the end first.

    Where doubling them all does not fit, the tiers that have moved by then are released first.
    """
    moves: list[Move] = []
    hosts: Hosts = cluster.hosts
    for tier in cluster.end_first():
        aim = target(tier.spec.name, cluster.rules)
        if tier.placement is None or not has_to_move(spec, tier, aim, cluster):
            continue
        try:
            after, placed = place_tier(tier.spec, aim, tier.placement, hosts)
        except RefusedError:
            if not moves:
                raise
            hosts = _released(cluster, moves)
            after, placed = place_tier(tier.spec, aim, tier.placement, hosts)
            notes.append(
                f"{tier.spec.name} is prepared only when {', '.join(move.tier for move in moves)} has been released: room is short"
            )
        hosts = placed.hosts
        notes.extend(placed.notes)
        moves.append(Move(tier=tier.spec.name, before=tier.placement, after=after))
    return moves


def _released(cluster: Cluster, moves: Iterable[Move]) -> Hosts:
    """Return the hosts once these moves are through and their old incarnations gone."""
    hosts: Hosts = cluster.hosts
    for move in moves:
        spec = cluster.tiers[move.tier].spec
        hosts = holding(hosts, spec, move.after)
        if move.before is not None:
            hosts = holding(hosts, spec, move.before, -1)
    return hosts


def has_to_move(spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Tell whether a tier is not yet as this change wants it."""
    now = tier.placement
    if now is None or (spec.tier is not None and spec.tier != tier.spec.name):
        return False
    match spec.kind:
        case ChangeKind.DRAIN | ChangeKind.REBOOT:
            moves = spec.host in now.hosts
        case ChangeKind.MIGRATE:
            moves = not _is_at(now, aim, cluster.hosts)
        case ChangeKind.LEAVE:
            moves = any(name in cluster.hosts and cluster.hosts[name].zone == BURST_ZONE for name in now.hosts)
        case _:
            moves = len(now.slots) != aim.k
    return moves


def _is_at(now: Placement, aim: Target, hosts: Hosts) -> bool:
    """Tell whether everything but a burst's slots is where it has to be."""

    def there(name: HostName) -> bool:
        return name in hosts and hosts[name].matches(aim.to)

    return there(now.driver) and sum(not there(name) for name in now.slots) <= aim.extra


def _place_batch(cluster: Cluster, notes: list[str]) -> tuple[tuple[HostName, ...], Cluster]:
    """Say where the batch slots are to be. Room that they give back is there for the moves; what they are lent more, they get last."""
    quantum = cluster.rules.batch_quantum
    aim = target(BATCH, cluster.rules).slots if BATCH in cluster.rules.shares else 0
    kept = tuple(name for name in cluster.batch if name in cluster.hosts and cluster.hosts[name].usable)[:aim]
    hosts = dict(cluster.hosts)
    for name, change in ((name, kept.count(name) - cluster.batch.count(name)) for name in {*cluster.batch}):
        if name in hosts:
            hosts[name] = hosts[name].holding(quantum, change)
    after = cluster.with_hosts(hosts)
    missing = aim - len(kept)
    if missing <= 0:
        return kept, after
    try:
        placed = place([Ask(BATCH, missing, quantum, cluster.rules.locality.get(BATCH))], hosts)
    except RefusedError as refused:
        notes.append(f"{missing} batch slot(s) wait until there is room: {refused}")
        return kept, after
    return (*kept, *placed.where[BATCH, "slots"]), after
