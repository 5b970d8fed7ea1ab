"""Planning of one change: from the change and the cluster to a plan, or to a refusal.

A refusal names the reason and the next step. Start with `plan`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import NO_DRIFT, NO_MOVE, UPGRADE, ChangeSpec, Move, Plan
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.release import is_light_in
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.model.wording import counted, spares, workers
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.lookups import PLANNED
from sluice_ops.planning.placement.cluster import (
    Cluster,
    Hosts,
    RefusedError,
    TierNow,
    holding,
    moved,
)
from sluice_ops.planning.placement.drift import (
    drift,
    evenly_spread,
    lacks_only_spares,
    right_numbers,
    without_starving,
)
from sluice_ops.planning.placement.exactly import place_exactly
from sluice_ops.planning.placement.no_room import burst_missing
from sluice_ops.planning.placement.shares import Target, available_extra, target
from sluice_ops.planning.placement.solver import Placed, place, place_tier, tier_requests
from sluice_ops.planning.shortage.fitting import (
    batch_minimum,
    fewest_slots,
    fewest_slots_in_change,
    largest_accepted,
    missing_in_equal_parts,
    requests_for_minimums,
    why_no_room_together,
)
from sluice_ops.planning.shortage.in_place import (
    Resize,
    kept_for_others,
    resize_of,
    resized,
    why_handed_over,
)
from sluice_ops.planning.shortage.lending import (
    giving_back,
    hosts_during_moves,
    keepable,
    lend,
    slots_in_the_way,
    top_up,
)

NO_MISSING_SLOTS: Mapping[TierName, int] = {}
"""The missing slots of the tiers that move, if each gets its whole share."""


def plan(spec: ChangeSpec, cluster: Cluster) -> Plan:
    """Return the plan of one change. A plan without moves has a note that nothing has to move.

    Raise RefusedError, with the reason and the next step, if the change is impossible.
    """
    kind = KINDS[spec.kind]
    notes = list(kind.refuse(spec, cluster))
    # Among equal hosts, the planner takes the first.
    cluster = cluster.with_hosts(dict(sorted(cluster.hosts.items())))
    if not kind.moves:
        return kind.plan(spec, cluster, notes)
    after = aftermath(spec, cluster)
    kept, moves, remarks = _fit_moves(spec, after)
    remarks += [*_notes_on_given_up(spec, after), *kind.remarks(spec, after, moves)]
    spare_notes = [*_notes_on_spares(spec, cluster, after)]
    notes += [*remarks, *spare_notes, *_notes_on_missing_burst(spec, after, moves)]
    batch = lend(kept, after.with_hosts(_hosts_after_moves(giving_back(after, kept), moves)), notes)
    if kind.repairs and not moves and not remarks:
        notes.append(NO_DRIFT)
    elif not moves and not spare_notes and batch == tuple(sorted(cluster.batch)):
        notes.append(NO_MOVE)
    return Plan(
        moves=tuple(moves),
        batch_slots=batch,
        batch_kept=kept,
        notes=tuple(notes),
        predicted_seconds=(
            _predicted_seconds(moves, after) or (cluster.pace.wake_spare if spare_notes else 0.0)
        )
        + (cluster.pace.rest.get(spec.kind, 0.0) if moves or spec.kind != UPGRADE else 0.0),
        predicted_gap_seconds=max((_predicted_gap(move, after) for move in moves), default=0.0),
        unpredicted=cluster.pace.unknown(spec.kind, kind.unpredicted) if kind.unpredicted else "",
    )


def _predicted_seconds(moves: Iterable[Move], cluster: Cluster) -> float:
    all_moves = [*moves]
    handed_over = sum(not move.in_place for move in all_moves)
    return cluster.pace.seconds(
        handed_over,
        handed_over,
        sum(move.released > 0 for move in all_moves),
        sum(move.joining > 0 for move in all_moves),
    )


def _predicted_gap(move: Move, cluster: Cluster) -> float:
    if not move.in_place:
        return cluster.pace.gap
    if cluster.tiers[move.tier].spec.mode is not Mode.REALTIME:
        return 0.0
    return cluster.pace.realtime_restart_gap if move.released else cluster.pace.realtime_join_gap


def _notes_on_spares(spec: ChangeSpec, before: Cluster, after: Cluster) -> Iterable[str]:
    """Return notes on the spares that a change of numbers wakes, and on workers that it rests."""
    for tier in after.end_first() if KINDS[spec.kind].resizes else ():
        name, now = tier.spec.name, tier.placement
        if now is None or spec.tier not in {None, name}:
            continue
        at_work, to_work = (
            len(now.slots) if active is None else min(active, len(now.slots))
            for active in (target(name, cluster.rules).active for cluster in (before, after))
        )
        if to_work > at_work:
            yield f"{name} wakes {spares(to_work - at_work)}: {workers(to_work)} work within 2 s"
        elif to_work < at_work:
            yield f"{name} keeps {workers(to_work)} at work"


def _notes_on_given_up(spec: ChangeSpec, cluster: Cluster) -> list[str]:
    """Return notes on the tiers that would have to move, but were given up.

    An upgrade notes these tiers in its `refuse`.
    """
    given_up = (tier for tier in cluster.end_first() if tier.failed and spec.kind != UPGRADE)
    names = (
        tier.spec.name
        for tier in given_up
        if differs(spec, tier, target(tier.spec.name, cluster.rules), cluster)
    )
    return [
        f"{name} was given up and is not moved: the change takes effect at its next start" for name in names
    ]


def _notes_on_missing_burst(spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
    """Return notes on tiers that stay without their burst, because no burst host is up.

    These are the tier that the change names, or all tiers of a repair.
    """
    moving = {move.tier for move in moves}
    for tier in cluster.end_first():
        name, now = tier.spec.name, tier.placement
        is_concerned = spec.tier == name or (KINDS[spec.kind].repairs and spec.tier is None)
        if now is None or name in moving or not is_concerned:
            continue
        aim = target(name, cluster.rules)
        if aim.extra_to is not None and len(now.slots) < aim.k and not available_extra(aim, cluster.hosts):
            yield burst_missing(name, aim.extra, aim.extra_to, cluster.hosts, missing=aim.k - len(now.slots))


def aftermath(spec: ChangeSpec, cluster: Cluster) -> Cluster:
    """Return the cluster with the layers, host states and releases after this change, before any
    move.
    """
    kind = KINDS[spec.kind]
    after = cluster.with_layers(kind.layers(spec, cluster, PLANNED, 0.0))
    for host in spec.named_hosts if kind.empties_host else ():
        if host in after.hosts:
            after = after.with_state(host, HostState.DRAINING)
    after = after.with_hosts(without_starving(after.hosts)) if kind.repairs else after
    return after if spec.tier is None or spec.release is None else _in_release(after, spec.tier, spec.release)


def _in_release(cluster: Cluster, name: TierName, release: str) -> Cluster:
    """Return the cluster with a tier as it starts from a release: with workers, or without."""
    tier = cluster.tiers.get(name)
    if tier is None or not tier.may_be_light:
        return cluster
    light = is_light_in(cluster.releases, release, name)
    tiers = {**cluster.tiers, name: replace(tier, spec=tier.spec.model_copy(update={"light": light}))}
    lights = frozenset((cluster.rules.light | {name}) if light else (cluster.rules.light - {name}))
    return replace(cluster, tiers=tiers, rules=replace(cluster.rules, light=lights))


def _fit_moves(spec: ChangeSpec, cluster: Cluster) -> tuple[tuple[HostName, ...], list[Move], list[str]]:
    """Return the slots that batch keeps, the moves, and notes.

    Moves use free room first, then as few of batch's slots as possible. If that is not enough, the
    tiers get fewer slots than their shares: spares go first. Raise RefusedError if the tiers find
    no room even then, or if the kind is exact and more than spares would be missing.
    """
    staying = keepable(cluster, (aim.to for aim in _tiers_to_move(spec, cluster).values()))
    least = min(len(staying), batch_minimum(cluster))

    def attempt(
        more: int, missing: Mapping[TierName, int] = NO_MISSING_SLOTS
    ) -> tuple[list[Move], list[str]]:
        return _place_moves(spec, giving_back(cluster, staying[: least + more]), missing)

    try:
        more, (moves, notes) = largest_accepted(len(staying) - least, attempt)
    except RefusedError as refused:
        missing = _missing_spares(spec, cluster, staying[:least])
        if missing is None:
            missing = _missing_before_burst(spec, cluster)
        if missing is None and KINDS[spec.kind].exact:
            message = f"{refused}{_advice_to_scale_down(spec, cluster, staying[:least])}"
            raise RefusedError(message) from refused
        if missing is None:
            missing = _missing_slots(spec, cluster, staying[:least])
        more, (moves, notes) = largest_accepted(len(staying) - least, lambda more: attempt(more, missing))
    given_back = slots_in_the_way(
        staying[least + more :],
        hosts_during_moves(staying[: least + more], moves, cluster),
        cluster.rules.batch_quantum,
    )
    kept = tuple((Counter(staying) - Counter(given_back)).elements())
    moves, kept = top_up(moves, cluster.tiers, kept, least, cluster)
    notes += [_note_on_missing_slots(move, cluster) for move in moves if move.short or move.burst_short]
    if len(kept) < len(staying):
        notes.append(
            f"batch gives back {counted(len(staying) - len(kept), 'slot')}, within "
            f"{cluster.rules.reclaim_seconds:g} s"
        )
    return kept, moves, notes


def _missing_before_burst(spec: ChangeSpec, cluster: Cluster) -> dict[TierName, int] | None:
    """Return how many workers at home the tier of a burst lacks already, if it bursts in place.

    The burst then gives it workers on EC2 alone. Home may have no room, and a burst is for that.
    Return None if the tier lacks none, or has fewer than it needs.
    """
    tier = None if spec.tier is None or not KINDS[spec.kind].launches else cluster.tiers[spec.tier]
    if tier is None:
        return None
    share = target(tier.spec.name, cluster.rules)
    resize = resize_of(tier, share, share, cluster)
    lacks = 0 if resize is None else resize.home
    is_enough = share.own - lacks >= fewest_slots(tier.spec, cluster.rules)
    return {tier.spec.name: lacks} if lacks and is_enough else None


def _advice_to_scale_down(spec: ChangeSpec, cluster: Cluster, kept: tuple[HostName, ...]) -> str:
    """Return how to give a tier fewer workers if the new incarnation has no room beside the old.

    The ways are a smaller number first, or a stop. Return the empty text for any other change.
    """
    name = spec.tier
    now = None if name is None or not KINDS[spec.kind].resizes else cluster.tiers[name].placement
    if name is None or now is None or not _is_lowered(now, aim := target(name, cluster.rules), cluster.hosts):
        return ""
    why = why_handed_over(cluster.tiers[name], aim, now.first(aim.k), cluster)
    if why is None:
        return ""
    scale, smaller_first = f"`sluice scale {name} {aim.slots}`", ""
    with suppress(RefusedError):
        smaller = aim.own - _missing_slots(spec, cluster, kept)[name]
        smaller_first = (
            f"since there is room for {smaller}, run `sluice scale {name} {smaller}` and then {scale}; or "
        )
    return (
        f". To get fewer workers, {name} has to be handed over ({why}), and {aim.k} new workers run beside "
        f"the {len(now.slots)} old ones for a moment: {smaller_first}accept a gap in the output and run "
        f"`sluice stop {name}`, {scale}, `sluice start {name}`"
    )


def _note_on_missing_slots(move: Move, cluster: Cluster) -> str:
    """Return a note that a tier gets fewer slots than its share.

    A tier that is scaled down gets the missing slots after its old slots are released.
    """
    missing = f"{move.short} fewer than its share" if move.short else ""
    of_burst = f"{move.burst_short} fewer than its burst" if move.burst_short else ""
    lacking = " and ".join(filter(None, (missing, of_burst)))
    note = f"{move.tier} gets {counted(len(move.after.slots), 'slot')}, {lacking}"
    aim = target(move.tier, cluster.rules)
    if move.in_place or move.before is None or not _is_lowered(move.before, aim, cluster.hosts):
        return f"{note}: room is short"
    return f"{note}, until its {len(move.before.slots)} old slots are released: room is short beside them"


def _missing_spares(
    spec: ChangeSpec, cluster: Cluster, kept: tuple[HostName, ...]
) -> dict[TierName, int] | None:
    """Return how many spares each tier that moves does not get, if batch keeps `kept`.

    Return None if the room is too small even without spares, or if the change itself asks for them.
    """
    after = giving_back(cluster, kept)
    most = _spares_to_place(spec, cluster)
    if not any(most.values()) or (KINDS[spec.kind].exact and spec.spare is not None):
        return None
    try:
        return missing_in_equal_parts(most, most, {}, lambda missing: _place_moves(spec, after, missing))
    except RefusedError:
        return None


def _spares_to_place(spec: ChangeSpec, cluster: Cluster) -> dict[TierName, int]:
    """Return the spares of each tier that has to move."""
    return {name: aim.spare for name, aim in _tiers_to_move(spec, cluster).items()}


def _missing_slots(spec: ChangeSpec, cluster: Cluster, kept: tuple[HostName, ...]) -> dict[TierName, int]:
    """Return how many slots of its share each tier that moves does not get, if batch keeps `kept`.

    The numbers are as small as the room allows. Tiers that are scaled down are placed first: they
    lose what was asked, and more only if they must. The other tiers get the same part of what each
    has beyond its fewest slots. Raise RefusedError if the tiers find no room with their fewest
    slots. The numbers include all spares: none of these tiers gets one.
    """
    moving, after = _tiers_to_move(spec, cluster), giving_back(cluster, kept)
    spare = _spares_to_place(spec, cluster)

    def attempt(missing: Mapping[TierName, int]) -> list[Move]:
        return _place_moves(spec, after, {name: missing[name] + spare[name] for name in moving})[0]

    most_missing = {name: _most_missing(cluster.tiers[name], aim, cluster) for name, aim in moving.items()}
    try:
        attempt(most_missing)
    except RefusedError as refused:
        needs = ", ".join(_fewest_in_words(cluster.tiers[name], aim, cluster) for name, aim in moving.items())
        message = (
            f"there is no room for the minimum of each tier that moves ({needs}) beside the running "
            f"units: {refused}"
        )
        raise RefusedError(message) from refused

    missing, lowered = (
        most_missing,
        [
            name
            for name, aim in moving.items()
            if _is_lowered(cluster.tiers[name].placement, aim, cluster.hosts)
        ],
    )
    if lowered:
        missing = missing_in_equal_parts(lowered, most_missing, most_missing, attempt)
        moves, _ = top_up(attempt(missing), lowered, kept, len(kept), cluster)
        with suppress(RefusedError):
            shorts = {
                move.tier: max(0, move.short - spare[move.tier]) for move in moves if move.tier in lowered
            }
            attempt(smaller := missing | shorts)
            missing = smaller
    missing = missing_in_equal_parts(
        [name for name in moving if name not in lowered], most_missing, missing, attempt
    )
    return {name: count + spare[name] for name, count in missing.items()}


def _is_lowered(now: Placement | None, aim: Target, hosts: Hosts) -> bool:
    """Return whether a tier should have fewer workers than it has."""
    return now is not None and len(now.slots) > right_numbers(now, aim, hosts)[0]


def _most_missing(tier: TierNow, share: Target, cluster: Cluster) -> int:
    """Return how many slots of its share a change may leave a tier without."""
    aim = replace(share, extra=available_extra(share, cluster.hosts))
    return share.slots - fewest_slots_in_change(tier.spec, aim, tier.placement, cluster.rules)


def _fewest_in_words(tier: TierNow, aim: Target, cluster: Cluster) -> str:
    """Return the fewest slots that a change may leave a tier, and whether its budget is
    the reason.
    """
    name, fewest = tier.spec.name, fewest_slots_in_change(tier.spec, aim, tier.placement, cluster.rules)
    if tier.spec.light:
        return f"{name} its driver"
    is_by_budget = fewest > min(aim.slots, fewest_slots(tier.spec, cluster.rules))
    return f"{name} {fewest}" + (
        f", because budget.{name} allows {cluster.rules.budget[name]} of its {aim.slots} slots to be missing"
        if is_by_budget
        else ""
    )


def _tiers_to_move(spec: ChangeSpec, cluster: Cluster) -> dict[TierName, Target]:
    """Return the tiers that have to move, with their targets."""
    aims = {name: target(name, cluster.rules) for name in sorted(cluster.tiers)}
    return {name: aim for name, aim in aims.items() if has_to_move(spec, cluster.tiers[name], aim, cluster)}


def _place_moves(
    spec: ChangeSpec, cluster: Cluster, missing: Mapping[TierName, int] = NO_MISSING_SLOTS
) -> tuple[list[Move], list[str]]:
    """Place the next incarnation of each tier that has to move, nearest the pipeline's end first.

    A tier that finds no room in this order is placed before the others in another attempt. Raise
    RefusedError if no attempt succeeds.
    """
    order = cluster.end_first()
    try:
        return _place_in_order(order, spec, cluster, missing)
    except _NoRoomError as refused:
        first = last = refused
    for _ in order:
        if order[0] is last.tier:
            break
        order = [last.tier, *(tier for tier in order if tier is not last.tier)]
        try:
            return _place_in_order(order, spec, cluster, missing)
        except _NoRoomError as refused:
            last = refused
    raise first


class _NoRoomError(RefusedError):
    """A tier finds no room beside the tiers that were placed before it."""

    def __init__(self, tier: TierNow, message: str) -> None:
        super().__init__(message)
        self.tier = tier


def _place_in_order(
    order: list[TierNow], spec: ChangeSpec, cluster: Cluster, missing: Mapping[TierName, int]
) -> tuple[list[Move], list[str]]:
    """Place tiers one after the other, each beside all running units and earlier placements.

    If there is no room for all tiers twice, the earlier tiers are released first. This is done only
    in the order of the handovers, nearest the pipeline's end first. Room that a stopped tenant
    needs for its minimum stays free. Each tier that is handed over gets its share less its
    `missing` slots.
    """
    kind = KINDS[spec.kind]
    moves: list[Move] = []
    notes: list[str] = []
    hosts = state = cluster.hosts
    """`hosts` hold old and new incarnations; in `state`, the moves so far are complete."""
    ends = cluster.end_first()
    for tier in order:
        share = target(tier.spec.name, cluster.rules)
        if tier.placement is None or not has_to_move(spec, tier, share, cluster.with_hosts(state)):
            continue
        released = state if moves and order == ends else None
        aim = share.with_own(share.own - missing.get(tier.spec.name, 0))
        if (note := _why_it_stays(spec, tier, share, aim, cluster)) is not None:
            notes.append(note)
            continue
        if (resize := _resize(spec, tier, aim, cluster, hosts, released)) is not None:
            move, hosts = _move_in_place(tier, aim, resize, hosts, released)
            moves.append(move)
            state = _hosts_after_move(move, tier.spec, state)
            continue
        why = ""
        if kind.repairs:
            why, aim = "; ".join(drift(tier, aim, state)), evenly_spread(tier, aim, state)
        try:
            burst_short, (after, placed, is_beside) = _place_next(spec, tier, aim, hosts, released)
        except RefusedError as refused:
            if not kind.repairs:
                raise _NoRoomError(tier, str(refused)) from refused
            notes.append(f"{tier.spec.name} {why}; this cannot be repaired now: {refused}")
            continue
        if not is_beside:
            earlier = ", ".join(move.tier for move in moves)
            notes.append(f"{tier.spec.name} is prepared only after {earlier} is released: room is short")
        hosts = placed.hosts
        notes.extend((*_why_not_in_place(spec, tier, share, cluster), *placed.notes))
        moves.append(
            Move(
                tier=tier.spec.name,
                before=tier.placement,
                after=after,
                short=share.own - aim.own,
                burst_short=burst_short,
                why=why,
            )
        )
        state = _hosts_after_move(moves[-1], tier.spec, state)
    missing_minimums = requests_for_minimums(cluster)
    if (
        missing_minimums
        and moves
        and why_no_room_together(missing_minimums, cluster.hosts) is None
        and why_no_room_together(missing_minimums, state) is not None
    ):
        names = ", ".join(sorted({request.tenant for request in missing_minimums}))
        message = (
            f"the {spec.kind} would take the room that {names} needs for its minimum; "
            "ask for less, return a host with `sluice return HOST`, or add a host"
        )
        raise RefusedError(message)
    return sorted(moves, key=lambda move: ends.index(cluster.tiers[move.tier])), notes


def _resize(  # noqa: PLR0913, PLR0917 - what a change in place depends on
    spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster, hosts: Hosts, released: Hosts | None
) -> Resize | None:
    """Return what a tier does in place; None if it is handed over.

    A realtime tier that releases workers, with room for a handover, is handed over, because that
    makes a shorter gap. A tier that makes room for another tier takes no room for a handover.
    """
    kind, share = KINDS[spec.kind], target(tier.spec.name, cluster.rules)
    if not kind.resizes:
        return None
    if (workers := kind.reduced_to(spec)) is not None:
        kept = kept_for_others(tier, share, cluster, workers)
        if kept is None:
            message = (
                f"{tier.spec.name} can no longer release workers in place, so the other tier gets no room "
                "from it; the controller tries again later"
            )
            raise RefusedError(message)
        return Resize(kept, home=0, burst=0, short=share.own - len(kept.slots))
    resize = resize_of(tier, aim, share, cluster)
    if resize is not None and tier.spec.mode is Mode.REALTIME and _releases(tier, resize):
        with suppress(RefusedError):
            _place_beside(tier, share, hosts, released)
            return None
    return resize


def _why_not_in_place(spec: ChangeSpec, tier: TierNow, share: Target, cluster: Cluster) -> Iterable[str]:
    """Return a note why a tier does not get its further workers in place."""
    now, name = tier.placement, tier.spec.name
    if not KINDS[spec.kind].resizes or now is None or len(now.slots) >= share.k:
        return
    older = None if tier.takes_workers else "its driver is of an older version"
    if (why := older or why_handed_over(tier, share, now, cluster)) is not None:
        yield f"{name} is handed over to get workers: {why}"


def _releases(tier: TierNow, resize: Resize) -> bool:
    return tier.placement is not None and len(resize.kept.slots) < len(tier.placement.slots)


def _move_in_place(
    tier: TierNow, aim: Target, resize: Resize, hosts: Hosts, released: Hosts | None
) -> tuple[Move, Hosts]:
    """Return a tier's move in place, and what the hosts hold after it.

    Further workers are placed beside all units, or else beside the units that stay after earlier
    releases. Raise _NoRoomError without room.
    """
    try:
        after, held = resized(tier, aim, resize, hosts)
    except RefusedError as refused:
        if released is None:
            raise _NoRoomError(tier, str(refused)) from refused
        try:
            after, held = resized(tier, aim, resize, released)
        except RefusedError as also_refused:
            raise _NoRoomError(tier, str(also_refused)) from also_refused
    name = tier.spec.name
    return Move(tier=name, before=tier.placement, after=after, short=resize.short, in_place=True), held


def _why_it_stays(
    spec: ChangeSpec, tier: TierNow, share: Target, aim: Target, cluster: Cluster
) -> str | None:
    """Return a note if a tier that lacks workers would get none by a move, else None."""
    kind, now = KINDS[spec.kind], tier.placement
    if kind.forced or now is None or aim.own == share.own:
        return None
    if kind.exact and not (kind.resizes and lacks_only_spares(now, share, cluster.hosts)):
        return None
    has, right = len(now.slots), right_numbers(now, share, cluster.hosts)[0]
    if aim.own + available_extra(share, cluster.hosts) <= has < right:
        lacking = f"{right - has} fewer than its share: room is short"
        return f"{tier.spec.name} stays at {counted(has, 'slot')}, {lacking}"
    return None


def _place_next(
    spec: ChangeSpec, tier: TierNow, aim: Target, hosts: Hosts, released: Hosts | None
) -> tuple[int, tuple[Placement, Placed, bool]]:
    """Place the next incarnation of a running tier as the kind of change wants.

    The first value is how many slots of the tier's burst are missing.
    """
    kind, now = KINDS[spec.kind], tier.placement
    fixed = None if now is None else kind.fixed_placement(spec, tier.spec.name, now)
    if now is not None and fixed is not None:
        return 0, (fixed, place_exactly(tier.spec, aim, now, fixed, hosts), True)
    short, placed = (_place_forced if kind.forced else _place_whole)(tier, aim, hosts, released)
    if kind.repairs and now is not None and _is_same(placed[0], now):
        message = "its hosts have room only after other moves"
        raise RefusedError(message)
    return short, placed


def _is_same(after: Placement, now: Placement) -> bool:
    return after.driver == now.driver and Counter(after.slots) == Counter(now.slots)


def _place_beside(
    tier: TierNow, aim: Target, hosts: Hosts, released: Hosts | None
) -> tuple[Placement, Placed, bool]:
    """Place a tier beside all units, or else beside the units that stay after earlier releases.

    The last value tells whether the tier found room beside all units.
    """
    try:
        return *place_tier(tier.spec, aim, tier.placement, hosts), True
    except RefusedError:
        if released is None:
            raise
    return *place_tier(tier.spec, aim, tier.placement, released), False


def _place_whole(
    tier: TierNow, aim: Target, hosts: Hosts, released: Hosts | None
) -> tuple[int, tuple[Placement, Placed, bool]]:
    """Place a tier with all slots of its burst; none is missing."""
    return 0, _place_beside(tier, aim, hosts, released)


def _place_forced(
    tier: TierNow, aim: Target, hosts: Hosts, released: Hosts | None
) -> tuple[int, tuple[Placement, Placed, bool]]:
    """Place a tier that has to leave its host; return also how many slots of its burst are missing.

    The tier gets as many of these slots as fit, because it cannot wait for room.
    """
    try:
        return _place_whole(tier, aim, hosts, released)
    except RefusedError as refused:
        room = hosts if released is None else released
        extra = available_extra(aim, room)

        def attempt(count: int) -> None:
            *_, burst_slots = tier_requests(tier.spec, replace(aim, extra=count), tier.placement, room)
            place([burst_slots] if count else [], room)

        fits, _ = largest_accepted(extra, attempt)
        if fits == extra:
            raise
        try:
            return extra - fits, _place_beside(tier, replace(aim, extra=fits), hosts, released)
        except RefusedError:
            raise refused from None


def _hosts_after_moves(cluster: Cluster, moves: Iterable[Move]) -> Hosts:
    """Return the hosts after these moves, without the old incarnations."""
    hosts: Hosts = cluster.hosts
    for move in moves:
        hosts = _hosts_after_move(move, cluster.tiers[move.tier].spec, hosts)
    return hosts


def _hosts_after_move(move: Move, spec: TierSpec, hosts: Hosts) -> Hosts:
    """Return the hosts after a move, without the old incarnation."""
    return (
        holding(hosts, spec, move.after)
        if move.before is None
        else moved(hosts, spec, move.before, move.after)
    )


def has_to_move(spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Return whether a tier has to change, and can: a tier that was given up cannot move."""
    return not tier.failed and differs(spec, tier, aim, cluster)


def differs(spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster) -> bool:
    """Return whether a running tier is not yet as this change wants it."""
    now = tier.placement
    if now is None or (spec.tier is not None and spec.tier != tier.spec.name):
        return False
    return KINDS[spec.kind].must_move(spec, tier, now, aim, cluster)
