"""From what is asked and what is to a plan, or a refusal that a person can act on."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import NO_DRIFT, ChangeKind, ChangeSpec, Move, Plan
from sluice_ops.model.ids import BATCH, HostName, Tenant, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.changes.layers import PLANNED, layers_after
from sluice_ops.planning.changes.lookups import burst_hosts, check, to_leave
from sluice_ops.planning.changes.start import starting, stopping
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, TierNow, holding, moved
from sluice_ops.planning.placement.drift import drift, evened, numbers, without_starving
from sluice_ops.planning.placement.no_room import burst_away
from sluice_ops.planning.placement.shares import Target, had, limits, target
from sluice_ops.planning.placement.solver import Placed, place_tier
from sluice_ops.planning.shortage.fitting import floor, lacking, least, most, same_part, why_not
from sluice_ops.planning.shortage.lending import doubled, giving_back, hindering, keepable, lend, top_up
from sluice_ops.planning.shortage.scale_down import gives_up, kept_in_place, why_handed_over

MOVING = frozenset(
    {
        ChangeKind.DRAIN,
        ChangeKind.REBOOT,
        ChangeKind.MIGRATE,
        ChangeKind.UPGRADE,
        ChangeKind.REPARTITION,
        ChangeKind.SCALE,
        ChangeKind.BURST,
        ChangeKind.LEAVE,
        ChangeKind.SHIFT,
        ChangeKind.SETTLE,
        ChangeKind.REPAIR,
    }
)
"""The kinds of change that start new incarnations, or have tiers let workers go."""
EXACT = frozenset({ChangeKind.SCALE, ChangeKind.BURST, ChangeKind.MIGRATE, ChangeKind.REPAIR})
"""The kinds of change that say how many and where: what does not fit of them is refused, not done by halves."""
FORCED = frozenset({ChangeKind.DRAIN, ChangeKind.REBOOT, ChangeKind.LEAVE})
"""The kinds of change in which tiers have to go from where they are, even with less."""
WHOLE: Mapping[TierName, int] = {}
"""How many fewer than its share each tier that moves gets, when all get all of it."""


def plan(spec: ChangeSpec, cluster: Cluster) -> Plan:
    """Plan one change; RefusedError names what is wrong and what to do. An empty plan says that there is nothing to do."""
    notes = list(check(spec, cluster))
    cluster = cluster.with_hosts(
        dict(sorted(cluster.hosts.items()))
    )  # of hosts that are alike the first is taken
    if spec.kind not in MOVING:
        return _moving_nothing(spec, cluster, notes)
    after = aftermath(spec, cluster)
    kept, moves, said = _fit(spec, after)
    said += [*_left_out(spec, after), *_staying(spec, after, moves)]
    notes += [*said, *_without_burst(spec, after, moves)]
    batch = lend(kept, after.with_hosts(_released(giving_back(after, kept), moves)), notes)
    if spec.kind is ChangeKind.REPAIR and not moves and not said:
        notes.append(NO_DRIFT)
    elif not moves and batch == tuple(sorted(cluster.batch)):
        notes.append("nothing has to move")
    return Plan(
        moves=tuple(moves),
        batch_slots=batch,
        batch_kept=kept,
        notes=tuple(notes),
        predicted_seconds=_seconds(moves, after)
        + (cluster.pace.rest.get(spec.kind, 0.0) if moves or spec.kind is not ChangeKind.UPGRADE else 0.0),
        predicted_gap_seconds=max((_gap(move, after) for move in moves), default=0.0),
        unpredicted=cluster.pace.unknown(spec.kind, "how long the host takes to boot")
        if spec.kind is ChangeKind.REBOOT
        else "",
    )


def _moving_nothing(spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
    """Plan what hands no tier over."""
    if spec.tier is not None and spec.kind is ChangeKind.START:
        return starting(spec.tier, cluster)
    if spec.tier is not None and spec.kind is ChangeKind.STOP:
        return stopping(spec.tier, cluster)
    seconds, unknown = cluster.pace.rest.get(spec.kind, 0.0), cluster.pace.unknown(spec.kind)
    lost = _lost(spec, cluster) if spec.kind is ChangeKind.WRITE_OFF else ()
    return Plan(notes=(effect(spec), *notes, *lost), predicted_seconds=seconds, unpredicted=unknown)


def _lost(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Say what of each tier is on the hosts that are written off."""
    gone = {
        name
        for name, host in cluster.hosts.items()
        if host.state is HostState.LOST and spec.host in {None, name}
    }
    for tier in cluster.end_first():
        now = tier.placement
        there = [] if now is None or now.driver not in gone else ["its driver"]
        there += (
            []
            if now is None or not gone.intersection(now.slots)
            else [workers(sum(name in gone for name in now.slots))]
        )
        if there:
            yield f"{tier.spec.name} has {' and '.join(there)} there"


def _seconds(moves: Iterable[Move], cluster: Cluster) -> float:
    handed = sum(not move.in_place for move in moves)
    return cluster.pace.seconds(handed, handed, sum(move.in_place for move in moves))


def _gap(move: Move, cluster: Cluster) -> float:
    if not move.in_place:
        return cluster.pace.gap
    return cluster.pace.begun_again if cluster.tiers[move.tier].spec.mode is Mode.REALTIME else 0.0


def effect(spec: ChangeSpec) -> str:
    """Say what a change does that moves nothing."""
    who = (
        ", ".join(spec.workers)
        or spec.tier
        or ("any tier" if spec.kind is ChangeKind.PAUSE else "every tier that was paused")
    )
    match spec.kind:
        case ChangeKind.PAUSE if spec.workers:
            does = f"{who}: finishes its task and gets none until the tier is resumed; the others work on"
        case ChangeKind.PAUSE:
            does = f"nothing comes out of {who} until it is resumed; what comes in waits"
        case ChangeKind.RESUME:
            does = f"{who} goes on from where it stands"
        case ChangeKind.CORDON:
            does = f"nothing new is placed on {spec.host}; what runs there stays"
        case ChangeKind.RETURN:
            does = f"{spec.host} may be given work again"
        case _:
            does = f"{spec.host or 'every host that is lost'} is not waited for any more: what ran there is started elsewhere"
    return does


def _left_out(spec: ChangeSpec, cluster: Cluster) -> list[str]:
    """Name the tiers that would have to move, had they not been given up; those of an upgrade are told of by its check."""
    given_up = (tier for tier in cluster.end_first() if tier.failed and spec.kind is not ChangeKind.UPGRADE)
    names = (
        tier.spec.name
        for tier in given_up
        if differs(spec, tier, target(tier.spec.name, cluster.rules), cluster)
    )
    return [
        f"{name} was given up and is left as it is: it will be so from its next start on" for name in names
    ]


def _without_burst(spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
    """Name the tiers that stay as they are without a burst which cannot be had: the one that the change is of, or all of a repair."""
    moving = {move.tier for move in moves}
    for tier in cluster.end_first():
        name, now = tier.spec.name, tier.placement
        asked = spec.tier == name or (spec.kind is ChangeKind.REPAIR and spec.tier is None)
        if now is None or name in moving or not asked:
            continue
        aim = target(name, cluster.rules)
        if aim.extra_to is not None and len(now.slots) < aim.k and not had(aim, cluster.hosts):
            yield burst_away(name, aim.extra, aim.extra_to, cluster.hosts, missing=aim.k - len(now.slots))


def _staying(spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
    """Name the tiers that have their place on burst hosts and so stay there, though these are to be left, and who says so."""
    placed = {name: tier.placement for name, tier in cluster.tiers.items()} | {
        move.tier: move.after for move in moves
    }
    for tier in cluster.end_first() if spec.kind is ChangeKind.LEAVE and spec.tier is None else ():
        name = tier.spec.name
        there = [] if (now := placed[name]) is None else burst_hosts(now, cluster.hosts)
        if there:
            owners = [
                entry.owner
                for entry in cluster.rules.layers.entries
                if entry.tenant == Tenant(name) and entry.to is not None
            ]
            who = f"{owners[-1]} has it" if owners else f"locality.{name} in the site file has it"
            yield (
                f"{name} stays on {listed(there)}: {who} at {target(name, cluster.rules).to}. Instances that a tier runs on are kept, not "
                f"terminated; give {name} another place first to have them go"
            )


def aftermath(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster under the layers and the host state that this change leads to; nothing has moved in it yet."""
    after = cluster.with_layers(layers_after(spec, cluster.rules, PLANNED, 0.0, cluster.hosts.values()))
    if (
        spec.kind in {ChangeKind.DRAIN, ChangeKind.REBOOT}
        and spec.host is not None
        and spec.host in after.hosts
    ):
        after = after.with_state(spec.host, HostState.DRAINING)
    return after.with_hosts(without_starving(after.hosts)) if spec.kind is ChangeKind.REPAIR else after


def _fit(spec: ChangeSpec, cluster: Cluster) -> tuple[tuple[HostName, ...], list[Move], list[str]]:
    """Find what batch keeps and where the tiers go: free room first, then as few of batch's slots as will do, then less for every tier."""
    staying = keepable(cluster, (aim.to for aim in _moving(spec, cluster).values()))
    floor = min(len(staying), limits(BATCH, cluster.rules).minimum)

    def taking(more: int, fewer: Mapping[TierName, int] = WHOLE) -> tuple[list[Move], list[str]]:
        return _moves(spec, giving_back(cluster, staying[: floor + more]), fewer)

    try:
        more, (moves, notes) = most(len(staying) - floor, taking)
    except RefusedError as refused:
        if spec.kind in EXACT:
            message = f"{refused}{_ways_down(spec, cluster, staying[:floor])}"
            raise RefusedError(message) from refused
        fewer = _fewer(spec, cluster, staying[:floor])
        more, (moves, notes) = most(len(staying) - floor, lambda more: taking(more, fewer))
    given = hindering(
        staying[floor + more :], doubled(staying[: floor + more], moves, cluster), cluster.rules.batch_quantum
    )
    kept = tuple((Counter(staying) - Counter(given)).elements())
    moves, kept = top_up(moves, cluster.tiers, kept, floor, cluster)
    notes += [_fewer_said(move, cluster) for move in moves if move.short]
    if len(kept) < len(staying):
        notes.append(
            f"batch gives back {len(staying) - len(kept)} slot(s), after {cluster.rules.reclaim_seconds:g} s at most"
        )
    return kept, moves, notes


def _ways_down(spec: ChangeSpec, cluster: Cluster, kept: tuple[HostName, ...]) -> str:
    """Say how a tier's number is lowered for which there is no room beside what it has: by a smaller one first, or by a stop."""
    name = spec.tier
    now = None if name is None or spec.kind is not ChangeKind.SCALE else cluster.tiers[name].placement
    if name is None or now is None or not _is_lowered(now, aim := target(name, cluster.rules), cluster.hosts):
        return ""
    why = why_handed_over(cluster.tiers[name], aim, now.first(aim.k), cluster)
    if why is None:
        return ""
    scale, first = f"`sluice scale {name} {aim.slots}`", ""
    with suppress(RefusedError):
        less = aim.slots - _fewer(spec, cluster, kept)[name]
        first = f"there is room for {less} beside them, so `sluice scale {name} {less}`, and {scale} when that is done; or "
    return (
        f". To have fewer workers {name} is handed over ({why}), and for a moment {aim.k} stand beside the {len(now.slots)} that it "
        f"has: {first}with a gap in its output, `sluice stop {name}`, {scale}, `sluice start {name}`"
    )


def _fewer_said(move: Move, cluster: Cluster) -> str:
    """Say that a tier gets fewer slots than its share; who is to have less than it has now gets the rest once that is gone."""
    said = f"{move.tier} gets {len(move.after.slots)} slots, {move.short} fewer than its share"
    if move.before is None or not _is_lowered(move.before, target(move.tier, cluster.rules), cluster.hosts):
        return f"{said}: room is short"
    return f"{said}, until the {len(move.before.slots)} that it has are gone: beside these there is room for no more"


def _fewer(spec: ChangeSpec, cluster: Cluster, kept: tuple[HostName, ...]) -> dict[TierName, int]:
    """Return how many slots fewer than its share each tier that moves gets, when batch keeps these: as few as there is room for.

    Who is lowered comes first: it gives up what was asked, and more only where it must. The others get the same part of what they would
    have beyond the least that they can do with.
    """
    moving, after = _moving(spec, cluster), giving_back(cluster, kept)
    spare = {name: _spare(cluster.tiers[name], aim, cluster) for name, aim in moving.items()}
    try:
        _moves(spec, after, spare)
    except RefusedError as refused:
        needs = ", ".join(_need(cluster.tiers[name], aim, cluster) for name, aim in moving.items())
        message = (
            f"there is no room for the minimum of each tier that moves ({needs}) beside what runs: {refused}"
        )
        raise RefusedError(message) from refused

    def attempt(fewer: Mapping[TierName, int]) -> list[Move]:
        return _moves(spec, after, fewer)[0]

    fewer, lowered = (
        spare,
        [
            name
            for name, aim in moving.items()
            if _is_lowered(cluster.tiers[name].placement, aim, cluster.hosts)
        ],
    )
    if lowered:
        fewer = same_part(lowered, spare, spare, attempt)
        moves, _ = top_up(attempt(fewer), lowered, kept, len(kept), cluster)
        with suppress(RefusedError):
            attempt(wider := fewer | {move.tier: move.short for move in moves if move.tier in lowered})
            fewer = wider
    return same_part([name for name in moving if name not in lowered], spare, fewer, attempt)


def _is_lowered(now: Placement | None, aim: Target, hosts: Hosts) -> bool:
    """Tell whether a tier is to have fewer workers than it has."""
    return now is not None and len(now.slots) > numbers(now, aim, hosts)[0]


def _spare(tier: TierNow, share: Target, cluster: Cluster) -> int:
    """Return how many slots of its share a change may leave a tier without."""
    aim = replace(share, extra=had(share, cluster.hosts))
    return share.slots - floor(tier.spec, aim, tier.placement, cluster.rules)


def _need(tier: TierNow, aim: Target, cluster: Cluster) -> str:
    """Say how many slots a tier has to be left, and whether it is its budget that says so."""
    name, fewest = tier.spec.name, floor(tier.spec, aim, tier.placement, cluster.rules)
    held = fewest > min(aim.slots, least(tier.spec, cluster.rules))
    return f"{name} {fewest}" + (
        f", as budget.{name} lets {cluster.rules.budget[name]} of its {aim.slots} be away" if held else ""
    )


def _moving(spec: ChangeSpec, cluster: Cluster) -> dict[TierName, Target]:
    """Name the tiers that have to move, with what they are to have."""
    aims = {name: target(name, cluster.rules) for name in sorted(cluster.tiers)}
    return {name: aim for name, aim in aims.items() if has_to_move(spec, cluster.tiers[name], aim, cluster)}


def _moves(
    spec: ChangeSpec, cluster: Cluster, fewer: Mapping[TierName, int] = WHOLE
) -> tuple[list[Move], list[str]]:
    """Place the next incarnation of every tier that has to move, nearest the end first; who finds no room so chooses before the others."""
    order = cluster.end_first()
    try:
        return _in_order(order, spec, cluster, fewer)
    except _NoRoomError as refused:
        first = last = refused
    for _ in order:
        if order[0] is last.tier:
            break
        order = [last.tier, *(tier for tier in order if tier is not last.tier)]
        try:
            return _in_order(order, spec, cluster, fewer)
        except _NoRoomError as refused:
            last = refused
    raise first


class _NoRoomError(RefusedError):
    """A tier finds no room beside those that were placed before it."""

    def __init__(self, tier: TierNow, message: str) -> None:
        super().__init__(message)
        self.tier = tier


def _in_order(
    order: list[TierNow], spec: ChangeSpec, cluster: Cluster, fewer: Mapping[TierName, int]
) -> tuple[list[Move], list[str]]:
    """Place tiers one after the other, each beside all that is there.

    Where doubling them all does not fit, the tiers that have moved by then are released first, provided that this is the order in which
    they are handed over: nearest the end first. What a tenant that does not run lacks of its minimum is not taken. Each tier that is handed
    over gets so many slots `fewer` than its share.
    """
    moves: list[Move] = []
    notes: list[str] = []
    hosts = state = cluster.hosts
    """Beside all that is there, and once these moves are through."""
    ends = cluster.end_first()
    for tier in order:
        share = target(tier.spec.name, cluster.rules)
        if tier.placement is None or not has_to_move(spec, tier, share, cluster.with_hosts(state)):
            continue
        released = state if moves and order == ends else None
        if (keeps := _kept(spec, tier, cluster, hosts, released)) is not None:
            short = 0 if gives_up(spec) is None else share.slots - len(keeps.slots)
            moves.append(
                Move(tier=tier.spec.name, before=tier.placement, after=keeps, short=short, in_place=True)
            )
            state = _through(moves[-1], tier.spec, state)
            continue
        more = had(share, cluster.hosts)
        aim = replace(share, slots=share.slots - fewer.get(tier.spec.name, 0))
        has, right = len(tier.placement.slots), numbers(tier.placement, share, cluster.hosts)[0]
        if spec.kind not in FORCED and aim.slots < share.slots and aim.slots + more <= has < right:
            notes.append(
                f"{tier.spec.name} stays at {has} slots, {right - has} fewer than its share: room is short"
            )
            continue
        why = ""
        if spec.kind is ChangeKind.REPAIR:
            why, aim = "; ".join(drift(tier, aim, state)), evened(tier, aim, state)
        try:
            after, placed, beside = _beside(tier, aim, hosts, released)
        except RefusedError as refused:
            if spec.kind is not ChangeKind.REPAIR:
                raise _NoRoomError(tier, str(refused)) from refused
            notes.append(f"{tier.spec.name} {why}; that cannot be repaired now: {refused}")
            continue
        if not beside:
            earlier = ", ".join(move.tier for move in moves)
            notes.append(f"{tier.spec.name} is prepared only when {earlier} has been released: room is short")
        hosts = placed.hosts
        notes.extend(placed.notes)
        moves.append(
            Move(
                tier=tier.spec.name,
                before=tier.placement,
                after=after,
                short=share.slots - aim.slots,
                why=why,
            )
        )
        state = _through(moves[-1], tier.spec, state)
    lacks = lacking(cluster)
    if lacks and moves and why_not(lacks, cluster.hosts) is None and why_not(lacks, state) is not None:
        names = ", ".join(sorted({ask.tenant for ask in lacks}))
        message = f"it would take the room that {names} needs for its minimum; ask for less, or return or add a host"
        raise RefusedError(message)
    return sorted(moves, key=lambda move: ends.index(cluster.tiers[move.tier])), notes


def _kept(
    spec: ChangeSpec, tier: TierNow, cluster: Cluster, hosts: Hosts, released: Hosts | None
) -> Placement | None:
    """Return what a tier keeps that lets workers go where it runs; None where it is handed over.

    One in realtime is, if it finds room for that: it is then without output for a shorter time. Who makes room for another takes none.
    """
    aim = target(tier.spec.name, cluster.rules)
    keeps = kept_in_place(spec, tier, aim, cluster)
    if gives_up(spec) is not None:
        if keeps is None:
            message = f"{tier.spec.name} cannot let workers go where it runs any more, so it makes no room for others"
            raise RefusedError(message)
    elif keeps is not None and tier.spec.mode is Mode.REALTIME:
        with suppress(RefusedError):
            _beside(tier, aim, hosts, released)
            return None
    return keeps


def _beside(
    tier: TierNow, aim: Target, hosts: Hosts, released: Hosts | None
) -> tuple[Placement, Placed, bool]:
    """Place a tier beside all that is there, or else beside what is left when others are released; tell whether it was the first."""
    try:
        return *place_tier(tier.spec, aim, tier.placement, hosts), True
    except RefusedError:
        if released is None:
            raise
    return *place_tier(tier.spec, aim, tier.placement, released), False


def _released(cluster: Cluster, moves: Iterable[Move]) -> Hosts:
    """Return the hosts once these moves are through and their old incarnations gone."""
    hosts: Hosts = cluster.hosts
    for move in moves:
        hosts = _through(move, cluster.tiers[move.tier].spec, hosts)
    return hosts


def _through(move: Move, spec: TierSpec, hosts: Hosts) -> Hosts:
    """Return the hosts once a move is through and the old incarnation gone."""
    return (
        holding(hosts, spec, move.after)
        if move.before is None
        else moved(hosts, spec, move.before, move.after)
    )


def has_to_move(spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Tell whether a tier has to change to be as this change wants it; one that was given up cannot."""
    return not tier.failed and differs(spec, tier, aim, cluster)


def differs(spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Tell whether a tier is not yet as this change wants it."""
    now = tier.placement
    if now is None or (spec.tier is not None and spec.tier != tier.spec.name):
        return False
    match spec.kind:
        case ChangeKind.DRAIN | ChangeKind.REBOOT:
            moves = spec.host in now.hosts
        case ChangeKind.MIGRATE:
            moves = not _is_at(now, aim, cluster.hosts)
        case ChangeKind.UPGRADE:
            moves = tier.release != spec.release
        case ChangeKind.REPAIR:
            moves = bool(drift(tier, aim, cluster.hosts))
        case ChangeKind.REPARTITION:
            moves = tier.partitions != spec.partitions
        case ChangeKind.LEAVE:
            moves = bool(to_leave(now, aim, cluster.hosts))
        case ChangeKind.SCALE:
            moves = len(now.slots) != numbers(now, aim, cluster.hosts)[0]
        case ChangeKind.SETTLE if (left := gives_up(spec)) is not None:
            moves = len(now.slots) > left and any(ask.tenant != BATCH for ask in lacking(cluster))
        case _:
            moves = len(now.slots) not in numbers(now, aim, cluster.hosts)
    return moves


def _is_at(now: Placement, aim: Target, hosts: Hosts) -> bool:
    """Tell whether everything but a burst's slots is where it has to be."""

    def there(name: HostName) -> bool:
        return name in hosts and hosts[name].matches(aim.to)

    return there(now.driver) and sum(not there(name) for name in now.slots) <= aim.extra
