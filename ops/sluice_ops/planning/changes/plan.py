"""From what is asked and what is to a plan, or a refusal that a person can act on."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import NO_DRIFT, UPGRADE, ChangeSpec, Move, Plan
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.lookups import PLANNED
from sluice_ops.planning.placement.cluster import (
    Cluster,
    Host,
    Hosts,
    RefusedError,
    Rules,
    TierNow,
    holding,
    moved,
)
from sluice_ops.planning.placement.drift import drift, evened, numbers, without_starving
from sluice_ops.planning.placement.no_room import burst_away
from sluice_ops.planning.placement.shares import Target, had, limits, target
from sluice_ops.planning.placement.solver import Placed, place_tier
from sluice_ops.planning.shortage.fitting import floor, lacking, least, most, same_part, why_not
from sluice_ops.planning.shortage.lending import doubled, giving_back, hindering, keepable, lend, top_up
from sluice_ops.planning.shortage.scale_down import kept_in_place, why_handed_over

WHOLE: Mapping[TierName, int] = {}
"""How many fewer than its share each tier that moves gets, when all get all of it."""


def plan(spec: ChangeSpec, cluster: Cluster) -> Plan:
    """Plan one change; RefusedError names what is wrong and what to do. An empty plan says that there is nothing to do."""
    kind = KINDS[spec.kind]
    notes = list(kind.refuse(spec, cluster))
    cluster = cluster.with_hosts(
        dict(sorted(cluster.hosts.items()))
    )  # of hosts that are alike the first is taken
    if not kind.moves:
        return kind.plan(spec, cluster, notes)
    after = aftermath(spec, cluster)
    kept, moves, said = _fit(spec, after)
    said += [*_left_out(spec, after), *kind.remarks(spec, after, moves)]
    notes += [*said, *_without_burst(spec, after, moves)]
    batch = lend(kept, after.with_hosts(_released(giving_back(after, kept), moves)), notes)
    if kind.repairs and not moves and not said:
        notes.append(NO_DRIFT)
    elif not moves and batch == tuple(sorted(cluster.batch)):
        notes.append("nothing has to move")
    return Plan(
        moves=tuple(moves),
        batch_slots=batch,
        batch_kept=kept,
        notes=tuple(notes),
        predicted_seconds=_seconds(moves, after)
        + (cluster.pace.rest.get(spec.kind, 0.0) if moves or spec.kind != UPGRADE else 0.0),
        predicted_gap_seconds=max((_gap(move, after) for move in moves), default=0.0),
        unpredicted=cluster.pace.unknown(spec.kind, kind.unpredicted) if kind.unpredicted else "",
    )


def _seconds(moves: Iterable[Move], cluster: Cluster) -> float:
    handed = sum(not move.in_place for move in moves)
    return cluster.pace.seconds(handed, handed, sum(move.in_place for move in moves))


def _gap(move: Move, cluster: Cluster) -> float:
    if not move.in_place:
        return cluster.pace.gap
    return cluster.pace.begun_again if cluster.tiers[move.tier].spec.mode is Mode.REALTIME else 0.0


def _left_out(spec: ChangeSpec, cluster: Cluster) -> list[str]:
    """Name the tiers that would have to move, had they not been given up; those of an upgrade are told of by its check."""
    given_up = (tier for tier in cluster.end_first() if tier.failed and spec.kind != UPGRADE)
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
        asked = spec.tier == name or (KINDS[spec.kind].repairs and spec.tier is None)
        if now is None or name in moving or not asked:
            continue
        aim = target(name, cluster.rules)
        if aim.extra_to is not None and len(now.slots) < aim.k and not had(aim, cluster.hosts):
            yield burst_away(name, aim.extra, aim.extra_to, cluster.hosts, missing=aim.k - len(now.slots))


def layers_after(spec: ChangeSpec, rules: Rules, by: str, now: float, hosts: Iterable[Host] = ()) -> Layers:
    """Return the layers once this change is through; `hosts` tell which places are on burst hosts alone."""
    return KINDS[spec.kind].layers(spec, rules, by, now, hosts)


def aftermath(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster under the layers and the host state that this change leads to; nothing has moved in it yet."""
    kind = KINDS[spec.kind]
    after = cluster.with_layers(layers_after(spec, cluster.rules, PLANNED, 0.0, cluster.hosts.values()))
    if kind.empties_host and spec.host is not None and spec.host in after.hosts:
        after = after.with_state(spec.host, HostState.DRAINING)
    return after.with_hosts(without_starving(after.hosts)) if kind.repairs else after


def _fit(spec: ChangeSpec, cluster: Cluster) -> tuple[tuple[HostName, ...], list[Move], list[str]]:
    """Find what batch keeps and where the tiers go: free room first, then as few of batch's slots as will do, then less for every tier."""
    staying = keepable(cluster, (aim.to for aim in _moving(spec, cluster).values()))
    floor = min(len(staying), limits(BATCH, cluster.rules).minimum)

    def taking(more: int, fewer: Mapping[TierName, int] = WHOLE) -> tuple[list[Move], list[str]]:
        return _moves(spec, giving_back(cluster, staying[: floor + more]), fewer)

    try:
        more, (moves, notes) = most(len(staying) - floor, taking)
    except RefusedError as refused:
        if KINDS[spec.kind].exact:
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
    now = None if name is None or not KINDS[spec.kind].resizes else cluster.tiers[name].placement
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
    kind = KINDS[spec.kind]
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
            short = 0 if KINDS[spec.kind].gives_up(spec) is None else share.slots - len(keeps.slots)
            moves.append(
                Move(tier=tier.spec.name, before=tier.placement, after=keeps, short=short, in_place=True)
            )
            state = _through(moves[-1], tier.spec, state)
            continue
        more = had(share, cluster.hosts)
        aim = replace(share, slots=share.slots - fewer.get(tier.spec.name, 0))
        has, right = len(tier.placement.slots), numbers(tier.placement, share, cluster.hosts)[0]
        if not kind.forced and aim.slots < share.slots and aim.slots + more <= has < right:
            notes.append(
                f"{tier.spec.name} stays at {has} slots, {right - has} fewer than its share: room is short"
            )
            continue
        why = ""
        if kind.repairs:
            why, aim = "; ".join(drift(tier, aim, state)), evened(tier, aim, state)
        try:
            after, placed, beside = _beside(tier, aim, hosts, released)
        except RefusedError as refused:
            if not kind.repairs:
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
    kind = KINDS[spec.kind]
    left = kind.gives_up(spec)
    keeps = kept_in_place(tier, aim, cluster, left) if kind.resizes else None
    if left is not None:
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
    return KINDS[spec.kind].must_move(spec, tier, now, aim, cluster)
