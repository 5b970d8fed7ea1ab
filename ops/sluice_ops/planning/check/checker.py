"""The independent check of a plan. No plan is carried out that does not pass it.

The check reads shares and places with its own code, because a bug shared with the planner would
pass both. It takes the pipeline's share and the minimum of batch from the planner, and checks sums.
`walk` counts what the hosts hold at each point of the plan. Preflight calls this module, and so
does a handover that had to be planned again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Move, Plan
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Amount, part
from sluice_ops.model.tier import Mode, Standby, TierSpec
from sluice_ops.model.wording import counted, listed
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.check.walk import Walk
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host, Rules, TierNow
from sluice_ops.planning.placement.shares import divided_share, limits
from sluice_ops.planning.shortage.fitting import batch_minimum

OWN = "the site's own hosts"


@dataclass(frozen=True)
class _Aim:
    """The target of a tenant by the site file and the layers."""

    slots: int
    minimum: int
    to: str | None
    extra: int
    extra_to: str | None
    spare: int = 0

    @property
    def own(self) -> int:
        """All slots except those of a burst."""
        return self.slots + self.spare


def violations(plan: Plan, spec: ChangeSpec, cluster: Cluster) -> list[str]:
    """Return the rules that a plan would break, and what it would leave undone.

    `cluster` has the layers and host states after the change.
    """
    kind = KINDS[spec.kind]
    if kind.planned_only:
        return []  # The plan is not carried out: the controller places the tier when it starts it.
    if not kind.moves:
        return [f"{move.tier} would move, but a {spec.kind} moves nothing" for move in plan.moves]
    unknown = sorted({move.tier for move in plan.moves} - cluster.tiers.keys())
    if unknown or len({move.tier for move in plan.moves}) < len(plan.moves):
        return [f"{', '.join(unknown)} would move, but is no tier" if unknown else "a tier would move twice"]
    aims = {name: _aim(name, cluster.rules) for name in cluster.tiers}
    problems = [*_pipeline_problems(aims, cluster.rules), *_request_problems(plan, spec, aims, cluster)]
    for move in plan.moves:
        problems += _move_problems(move, spec, aims[move.tier], cluster)
        problems += _pin_problems(move, spec, aims[move.tier], plan, cluster)
    walk = Walk(plan, cluster)
    for move in plan.moves:
        problems += walk.through(move)
    problems += [*_batch_problems(plan, spec, cluster), *walk.lending()]
    order = [cluster.tiers[move.tier].spec.distance for move in plan.moves]
    if order != sorted(order):
        problems.append("the tiers are not moved nearest the pipeline's end first")
    return problems or [*_unfinished(plan, spec, aims, cluster)]


def _aim(tenant: str, rules: Rules) -> _Aim:
    """Return a tenant's target: for each number and place, the highest layer that sets it wins.

    A light tier has no workers, whatever sets their number.
    """
    share = rules.share_of(tenant)
    low, aim, high, spare = share.minimum, share.target, share.maximum, share.spare
    to, extra, extra_to = rules.locality.get(tenant), 0, None
    for entry in sorted(
        (entry for entry in rules.layers.entries if entry.tenant == tenant), key=lambda entry: entry.layer
    ):
        low = low if entry.minimum is None else entry.minimum
        aim = aim if entry.target is None else entry.target
        high = high if entry.maximum is None else entry.maximum
        spare = spare if entry.spare is None else entry.spare
        to = to if entry.to is None else entry.to
        extra, extra_to = (entry.extra, entry.extra_to) if entry.extra else (extra, extra_to)

    if tenant in rules.light:
        return _Aim(0, 0, to, 0, None)

    def slots(amount: Amount) -> int:
        return amount if isinstance(amount, int) else part(amount, rules.capacity_totals.get(tenant, 0))

    minimum = limits(BATCH, rules).minimum if tenant == BATCH else slots(low)
    most = max(slots(low), slots(high))
    count = min(most, max(minimum, slots(aim)))
    spares = slots(spare) if count and tenant not in rules.without_spares else 0
    extra = max(0, min(extra, most - count))
    count, spares = divided_share(rules).get(tenant, (count, spares))
    return _Aim(count, minimum, to, extra, extra_to, spares)


def _is_at(host: Host, to: str | None) -> bool:
    if to is None:
        return host.zone != BURST_ZONE
    kind, _, value = to.partition(":")
    places = {"zone": (host.zone,), "rack": (host.rack,), "label": host.labels}
    return value in places[kind] if value and kind in places else host.name == to


def _serves(to: str | None, cluster: Cluster) -> bool:
    """Return whether a host at a place is up. If not, a tier may be elsewhere."""
    return any(host.state is HostState.UP and _is_at(host, to) for host in cluster.hosts.values())


def _pipeline_problems(aims: Mapping[TierName, _Aim], rules: Rules) -> Iterable[str]:
    """Return that the tiers should have more than the pipeline's maximum, beyond their minimums."""
    if rules.pipeline_share is None:
        return
    most, total = rules.pipeline_share.maximum, Fraction(0)
    for name, aim in aims.items():
        whole = max(1, rules.capacity_totals.get(name, 0))
        total += aim.own if isinstance(most, int) else Fraction(aim.own * 100, whole)
    above = [
        name
        for name, aim in aims.items()
        if aim.spare or aim.slots > max(aim.minimum, rules.fewest.get(name, 0))
    ]
    if above and total > Fraction(str(most).removesuffix("%")):
        yield f"{listed(above)} would get more than the pipeline's maximum of {most} leaves"


# -- the requested change


def _request_problems(
    plan: Plan, spec: ChangeSpec, aims: dict[TierName, _Aim], cluster: Cluster
) -> list[str]:
    """Return what the change requests but the plan does not do, and the other way round."""
    moves = {move.tier: move for move in plan.moves}
    problems = []
    for name, tier in cluster.tiers.items():
        if tier.placement is None or tier.failed:
            problems += (
                [f"{name} would move, but {'was given up' if tier.failed else 'does not run'}"]
                if name in moves
                else []
            )
            continue
        if spec.tier not in {None, name}:
            problems += [f"{name} would move, but the {spec.kind} is of {spec.tier}"] if name in moves else []
            continue
        difference = _difference(spec, tier, tier.placement, aims[name], cluster)
        move = moves.get(name)
        if move is None:
            is_noted = KINDS[spec.kind].may_wait and any(note.startswith(f"{name} ") for note in plan.notes)
            has_too_many = (
                not KINDS[spec.kind].repairs and len(tier.placement.slots) > aims[name].own + aims[name].extra
            )
            lacks_more = has_too_many or not is_noted
            problems += (
                [f"{name} would not move, but {difference}"]
                if difference is not None
                and lacks_more
                and _difference(
                    spec, tier, tier.placement, _with_spares_of(tier.placement, aims[name], cluster), cluster
                )
                is not None
                else []
            )
        elif difference is None and not move.why:
            problems.append(f"{name} would move, but is already as it should be")
    return problems


def _with_spares_of(now: Placement, aim: _Aim, cluster: Cluster) -> _Aim:
    """Return the target with only the spares that a tier has, if spares are all that it lacks.

    A tier may wait for spares.
    """
    burst = _extra(aim, cluster) or _remaining_burst(now, aim, cluster)
    lacks = aim.own + burst - len(now.slots)
    return replace(aim, spare=aim.spare - lacks) if 0 < lacks <= aim.spare else aim


def _unfinished(plan: Plan, spec: ChangeSpec, aims: dict[TierName, _Aim], cluster: Cluster) -> Iterable[str]:
    """Return what the change still wants of the tiers after their moves."""
    for move in plan.moves:
        tier = cluster.tiers[move.tier]
        after = replace(
            tier,
            placement=move.after,
            release=spec.release or tier.release,
            partitions=spec.partitions or tier.partitions,
        )
        left = (
            None
            if move.short or move.burst_short
            else _difference(spec, after, move.after, aims[move.tier], cluster)
        )
        if left is not None:
            yield f"after its move, {move.tier} {left}"


def _difference(spec: ChangeSpec, tier: TierNow, now: Placement, aim: _Aim, cluster: Cluster) -> str | None:
    """Return how a running tier differs from what the change wants; None if it does not."""
    return next(iter(KINDS[spec.kind].unmet(spec, tier, now, _Check(tier, now, aim, cluster))), None)


@dataclass(frozen=True)
class _Check:
    """The findings on one running tier, for the kinds of change (`TierCheck`)."""

    tier: TierNow
    now: Placement
    aim: _Aim
    cluster: Cluster

    @property
    def on_burst_hosts(self) -> list[str]:
        aim, hosts, now = self.aim, self.cluster.hosts, self.now
        has_too_many = len(now.slots) > aim.own + aim.extra
        used = _burst_hosts(now, self.cluster)
        away = {name for name in used if not _is_at(hosts[name], aim.to)}
        workers = sum(name in away for name in now.slots)
        if not has_too_many and now.driver not in away and workers <= aim.extra:
            return []
        return [f"is on {name}" for name in used if has_too_many or name in away]

    @property
    def minimum_is_lacking(self) -> bool:
        return bool(_needy(self.cluster))

    def breaches(self) -> Iterable[str]:
        return _breaches(self.tier, self.now, self.aim, self.cluster)

    def displaced(self, *, gone: bool = False) -> Iterable[str]:
        return _displaced(self.now, self.aim, self.cluster, gone=gone)

    def miscounted(self, *, exactly: bool = False) -> Iterable[str]:
        if _keeps_number(self.tier, self.now):
            return ()
        return _miscounted(self.now, self.aim, self.cluster, exactly=exactly)


def _keeps_number(tier: TierNow, now: Placement) -> bool:
    """Return whether a tier is light no more, and gets its workers by an upgrade."""
    return not tier.spec.light and not now.slots and tier.release != tier.spec.release


def _breaches(tier: TierNow, now: Placement, aim: _Aim, cluster: Cluster) -> Iterable[str]:
    """Return the rules that a running tier breaks.

    The rule `separate` is left out, because the other tier may move instead.
    """
    name = tier.spec.name
    if not _keeps_number(tier, now):
        yield from _miscounted(now, aim, cluster)
    yield from _displaced(now, aim, cluster)
    yield from (f"is {place}" for place in _foreign(name, now, cluster))
    yield from (f"has {crowd}" for crowd in _crowds(name, now, cluster))


def _burst_hosts(placement: Placement, cluster: Cluster) -> list[HostName]:
    return sorted(
        name for name in placement.hosts if name in cluster.hosts and cluster.hosts[name].zone == BURST_ZONE
    )


# -- the placement of each tier


def _move_problems(move: Move, spec: ChangeSpec, aim: _Aim, cluster: Cluster) -> list[str]:
    tier = cluster.tiers[move.tier]
    problems = _in_place_problems(move, spec, tier, aim, cluster) if move.in_place else []
    if KINDS[spec.kind].reduced_to(spec) is not None and not move.in_place:
        problems.append(f"{move.tier} would be handed over, but should release workers in place")
    stays_on = move.before.hosts if move.in_place and move.before is not None else frozenset()
    problems += _others_moved(move, spec)
    if move.before != tier.placement:
        problems.append(f"{move.tier} is not where the plan has it")
    problems += [*_number_problems(move, spec, tier, aim, cluster), *_budget_problems(move, aim, cluster)]
    for name in sorted(move.after.hosts):
        host = cluster.hosts.get(name)
        may_be = {HostState.UP, HostState.CORDONED} if name in stays_on else {HostState.UP}
        if host is None or host.state not in may_be:
            problems.append(
                f"{move.tier} would be on {name}, which is {'unknown' if host is None else host.state}"
            )
        elif KINDS[spec.kind].empties_host and name in spec.named_hosts:
            problems.append(f"{move.tier} would stay on {name}")
    if KINDS[spec.kind].empties_burst_hosts and not aim.extra:
        at_own_place = {
            name
            for name in move.after.hosts & cluster.hosts.keys()
            if aim.to is not None and _is_at(cluster.hosts[name], aim.to)
        }
        problems += [
            f"{move.tier} would stay on {name}, which it has to leave"
            for name in _burst_hosts(move.after, cluster)
            if name not in at_own_place
        ]
    problems += [f"{move.tier} would be {place}" for place in _foreign(move.tier, move.after, cluster)]
    problems += [f"{move.tier} would have {crowd}" for crowd in _crowds(move.tier, move.after, cluster)]
    extra = _extra(aim, cluster) - move.burst_short
    displaced = (
        _displaced(move.after, aim, cluster)
        if move.in_place
        else _at_wrong_place(move.after, aim, extra, cluster)
    )
    place_problems = (*displaced, *_burst_problems(move.after, aim, extra, cluster))
    return [*problems, *(f"{move.tier} {problem}" for problem in place_problems)]


def _others_moved(move: Move, spec: ChangeSpec) -> Iterable[str]:
    """Return that a change of single workers would move other units, too."""
    numbers = KINDS[spec.kind].destinations(spec, move.tier).keys()
    if not numbers or move.before is None:
        return
    before, after = (
        (
            placement.driver,
            [host for number, host in enumerate(placement.slots) if number not in numbers],
        )
        for placement in (move.before, move.after)
    )
    if before != after:
        alone = listed(f"worker {number}" for number in sorted(numbers))
        yield f"{move.tier} would move more than its {alone}"


def _number_problems(
    move: Move, spec: ChangeSpec, tier: TierNow, aim: _Aim, cluster: Cluster
) -> Iterable[str]:
    """Return what is wrong with the number of slots that a tier would have, or would lack."""
    lacks_more = not KINDS[spec.kind].launches or aim.own - move.short < _at_home(move.before, aim, cluster)
    if move.short < 0 or (move.short > aim.spare and KINDS[spec.kind].exact and lacks_more):
        yield (
            f"{move.tier} would be {counted(move.short, 'slot')} short, but a {spec.kind} is done as a whole "
            "or not at all"
        )
    if move.burst_short < 0 or (move.burst_short and not KINDS[spec.kind].forced):
        lacking = counted(move.burst_short, "slot")
        yield f"{move.tier} would lack {lacking} of its burst, but it could stay as it is"
    burst = _extra(aim, cluster) or (_remaining_burst(move.after, aim, cluster) if move.in_place else 0)
    k, fewer = aim.own + burst, move.short + move.burst_short
    if len(move.after.slots) + fewer != k:
        short = f" (the plan says {fewer} fewer)" if fewer else ""
        yield f"{move.tier} would have {counted(len(move.after.slots), 'slot')} instead of {k}{short}"
    minimum = min(aim.slots, max(aim.minimum, _workers_for_threads(tier.spec, cluster.rules)))
    if move.short and aim.own - move.short < minimum:
        left = counted(aim.own - move.short, "slot")
        yield f"{move.tier} would have {left}, below its minimum of {minimum}"


def _at_home(now: Placement | None, aim: _Aim, cluster: Cluster) -> int:
    """Return how many of its own workers a tier has at its place, at most its number."""
    slots = () if now is None else now.slots
    at_place = sum(name in cluster.hosts and _is_at(cluster.hosts[name], aim.to) for name in slots)
    return min(at_place, aim.own)


def _in_place_problems(move: Move, spec: ChangeSpec, tier: TierNow, aim: _Aim, cluster: Cluster) -> list[str]:
    """Return why a tier cannot release or get workers in place, or why it keeps wrong workers."""
    problems = []
    if not KINDS[spec.kind].resizes:
        problems.append(f"{move.tier} would stay in place, but a {spec.kind} has to hand it over")
    k, before = len(move.after.slots), move.before
    stays = 0 if before is None else _first_in_common(before, move.after)
    if before is None or not stays or move.after == before or move.after.driver != before.driver:
        problems.append(f"{move.tier} would not keep the first of its workers, but is not handed over")
    on = [cluster.hosts.get(name) for name in move.after.slots[stays:]]
    if any(host is None or host.state is not HostState.UP for host in on):
        problems.append(f"{move.tier} would get workers on a host that takes none")
    running = cluster.shape(move.tier, tier.release)
    obstacles = {
        "it keeps state in its workers": tier.spec.state
        or (running is not None and running.state is not None),
        "it has a standby": tier.spec.standby is not Standby.NONE,
        "it, or one of its workers, is paused": tier.paused or bool(tier.paused_workers),
        "the other workers have too few threads": before is not None
        and stays < len(before.slots)
        and k < _workers_for_threads(tier.spec, cluster.rules),
        "its driver is of an older version": k > stays and not tier.takes_workers,
        "too few of its workers go on meanwhile": before is not None
        and stays < min(k, len(before.slots), _fewest_meanwhile(move, aim, cluster)),
    }
    problems += [
        f"{move.tier} would {'get' if k > stays else 'release'} workers in place, but {reason}"
        for reason, is_present in obstacles.items()
        if is_present
    ]
    return [*problems, *_useless_release(move, spec, cluster)]


def _first_in_common(before: Placement, after: Placement) -> int:
    """Return how many of the first workers are on the same hosts."""
    pairs = [*zip(before.slots, after.slots, strict=False)]
    return next((number for number, (now, then) in enumerate(pairs) if now != then), len(pairs))


def _fewest_meanwhile(move: Move, aim: _Aim, cluster: Cluster) -> int:
    """Return the fewest workers of a tier that releases some and then gets others."""
    allowed = cluster.rules.budget.get(move.tier)
    fewest = min(aim.slots, max(1, aim.minimum))
    if allowed is None or move.before is None:
        return fewest
    return max(fewest, min(aim.slots - allowed, len(move.before.slots) - aim.extra))


def _useless_release(move: Move, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Return why workers that a tier releases for others' minimums would help no such tier."""
    workers = KINDS[spec.kind].reduced_to(spec)
    if workers is None or move.before is None:
        return
    k = len(move.after.slots)
    if k != workers:
        yield f"{move.tier} would continue with {counted(k, 'worker')} instead of {workers}"
    freed = [
        host
        for name in {*move.before.slots[k:]}
        if (host := cluster.hosts.get(name)) is not None and host.state is HostState.UP
    ]
    places = {
        name: to if _serves(to := _aim(name, cluster.rules).to, cluster) else None for name in _needy(cluster)
    }
    if not any(
        _is_at(host, to) and not _is_for_others(name, host.name, cluster)
        for host in freed
        for name, to in places.items()
    ):
        yield (
            f"{move.tier} would release workers on hosts where no tier may be that lacks some of its minimum"
        )


def _needy(cluster: Cluster) -> list[TierName]:
    """Return the tiers that have fewer slots than their minimum."""
    return [name for name, tier in cluster.tiers.items() if _is_below_minimum(tier, cluster)]


def _extra(aim: _Aim, cluster: Cluster) -> int:
    """Return the burst slots that a tier can have: none while no host at the burst's place
    is up.
    """
    return aim.extra if aim.extra and _serves(aim.extra_to, cluster) else 0


def _workers_for_threads(spec: TierSpec, rules: Rules) -> int:
    """Return the workers with which a realtime tier has a thread for each partition; else 1.

    A light tier needs none.
    """
    if spec.light:
        return 0
    return -(-rules.partitions_of(spec) // spec.quantum.threads) if spec.mode is Mode.REALTIME else 1


def _miscounted(now: Placement, aim: _Aim, cluster: Cluster, *, exactly: bool = False) -> Iterable[str]:
    """Return how the number of slots is wrong.

    Without `exactly`, slots of a burst may be elsewhere while the burst's hosts are lost.
    """
    wanted = aim.own + (_extra(aim, cluster) or _remaining_burst(now, aim, cluster))
    if len(now.slots) not in {wanted, wanted if exactly else aim.own + aim.extra}:
        yield f"has {counted(len(now.slots), 'slot')} instead of {wanted}"


def _remaining_burst(now: Placement, aim: _Aim, cluster: Cluster) -> int:
    """Return how many workers of a burst run at its place although no host there takes new
    units.

    A worker at both places is the tier's own as long as such workers are missing.
    """
    hosts = [cluster.hosts[name] for name in now.slots if name in cluster.hosts]
    at_burst = [host for host in hosts if _is_at(host, aim.extra_to)]
    missing = max(0, aim.own - sum(_is_at(host, aim.to) for host in hosts if host not in at_burst))
    at_both = sum(_is_at(host, aim.to) for host in at_burst)
    return min(aim.extra, len(at_burst) - min(missing, at_both))


def _foreign(tenant: str, placement: Placement, cluster: Cluster) -> Iterable[str]:
    return (
        f"on {name}, which is dedicated to others"
        for name in sorted(placement.hosts)
        if _is_for_others(tenant, name, cluster)
    )


def _is_for_others(tenant: str, name: HostName, cluster: Cluster) -> bool:
    host = cluster.hosts.get(name)
    places = [
        tenants
        for place, tenants in cluster.rules.dedicated.items()
        if host is not None and _is_at(host, place)
    ]
    return bool(places) and not any(tenant in tenants for tenants in places)


def _crowds(tier: TierName, placement: Placement, cluster: Cluster) -> Iterable[str]:
    """Return the hosts, racks and zones with more workers of the tier than its spread allows."""
    hosts = [cluster.hosts[name] for name in placement.slots if name in cluster.hosts]
    for kind, most in cluster.rules.spread.get(tier) or ():
        for place, count in sorted(Counter(_place(host, kind) for host in hosts).items()):
            if most is not None and count > most:
                yield f"{counted(count, 'worker')} in {kind} {place}, but may have {most}"


def _place(host: Host, kind: str) -> str:
    return {"host": host.name, "rack": f"{host.zone}/{host.rack or host.name}", "zone": host.zone}[kind]


def _pin_problems(move: Move, spec: ChangeSpec, aim: _Aim, plan: Plan, cluster: Cluster) -> Iterable[str]:
    """Return the pinned workers that a move takes away, or does not place although there is room.

    A change that names single workers need not fill a pin. A worker counts as free for a pin if
    the planner chose its host, and neither a burst nor another pin needs it there.
    """
    before = Counter(() if move.before is None else move.before.slots)
    after, hosts = Counter(move.after.slots), cluster.hosts
    is_fixed = bool(KINDS[spec.kind].destinations(spec, move.tier))
    free = () if is_fixed else move.after.slots[move.kept :]
    pins = {
        name: count
        for name, count in cluster.rules.pinned.get(move.tier, {}).items()
        if name in hosts
        and hosts[name].state is HostState.UP
        and _is_at(hosts[name], aim.to)
        and not _is_for_others(move.tier, name, cluster)
        and cluster.rules.separate_from(move.tier).isdisjoint(hosts[name].tiers)
    }
    for name, count in pins.items():
        others = [
            other
            for other in free
            if after[other] > pins.get(other, 0)
            and other != name
            and not (aim.extra and _is_at(hosts[other], aim.extra_to))
        ]
        exchanged = [(*(Counter(move.after.slots) - Counter([other])).elements(), name) for other in others]
        if after[name] < count and (
            ((is_fixed or move.in_place) and after[name] < before[name])
            or (
                _could_take(move.tier, name, aim.to, 0, plan, cluster)
                and any(
                    not [*_crowds(move.tier, move.after.model_copy(update={"slots": slots}), cluster)]
                    for slots in exchanged
                )
            )
        ):
            yield f"{move.tier} would have {after[name]} of its {count} pinned workers on {name}"


def _at_wrong_place(
    placement: Placement, aim: _Aim, extra: int, cluster: Cluster, *, gone: bool = False
) -> Iterable[str]:
    """Return the parts that are at a wrong place; `extra` workers may be elsewhere.

    With `gone`, parts on unknown hosts count as at a wrong place.
    """
    hosts = cluster.hosts
    to = aim.to if _serves(aim.to, cluster) else None
    if not _is_at(hosts[placement.driver], to) if placement.driver in hosts else gone:
        yield f"has to be at {to or OWN}, not with its driver on {placement.driver}"
    away = [name for name in placement.slots if (not _is_at(hosts[name], to) if name in hosts else gone)]
    if len(away) > extra:
        yield f"has to be at {to or OWN}, not on {', '.join(sorted(set(away)))}"


def _displaced(now: Placement, aim: _Aim, cluster: Cluster, *, gone: bool = False) -> Iterable[str]:
    """Return the parts of a running tier at a wrong place.

    A tier may be anywhere while no host at its place is up.
    """
    return _at_wrong_place(now, aim, aim.extra, cluster, gone=gone) if _serves(aim.to, cluster) else ()


def _burst_problems(placement: Placement, aim: _Aim, extra: int, cluster: Cluster) -> Iterable[str]:
    """Return the workers of a burst that are not at its place."""
    if not extra:
        return
    hosts = cluster.hosts
    to = aim.to if _serves(aim.to, cluster) else None
    burst_slots = [name for name in placement.slots if name in hosts and _is_at(hosts[name], aim.extra_to)]
    elsewhere = sorted(
        name for name in {*placement.slots} - {*burst_slots} if name in hosts and not _is_at(hosts[name], to)
    )
    if elsewhere:
        yield f"has to have its burst at {aim.extra_to}, not on {', '.join(elsewhere)}"
    elif len(burst_slots) < extra:
        yield f"has to have {counted(extra, 'worker')} at {aim.extra_to}, not {len(burst_slots)}"


def _budget_problems(move: Move, aim: _Aim, cluster: Cluster) -> list[str]:
    allowed, before = (
        cluster.rules.budget.get(move.tier),
        0 if move.before is None else len(move.before.slots),
    )
    if allowed is None or move.short - aim.spare <= allowed or len(move.after.slots) >= before:
        return []
    lack = f"{counted(move.short, 'slot')} short of its share, but its budget allows {allowed} to be missing"
    return [f"{move.tier} would be {lack}"]


# -- batch


def _batch_problems(plan: Plan, spec: ChangeSpec, cluster: Cluster) -> list[str]:
    aim = _aim(BATCH, cluster.rules)
    share, minimum = (aim.slots, batch_minimum(cluster)) if BATCH in cluster.rules.shares else (0, 0)
    kept, slots = len(plan.batch_kept), len(plan.batch_slots)
    problems: list[str] = []
    if Counter(plan.batch_kept) - Counter(cluster.batch):
        problems.append("batch would keep slots that it does not have")
    if Counter(plan.batch_kept) - Counter(plan.batch_slots):
        problems.append("batch would keep slots that it should not have")
    if max(slots, kept) > share:
        problems.append(f"batch would have {counted(max(slots, kept), 'slot')}, but its share is {share}")
    if slots < share and not any("batch" in note for note in plan.notes):
        problems.append(
            f"batch would have {counted(slots, 'slot')} instead of {share}, but the plan has no note on it"
        )
    up = {
        name for name in cluster.batch if name in cluster.hosts and cluster.hosts[name].state is HostState.UP
    }
    problems += [
        f"batch would keep a slot on {name}, which is not up"
        for name in sorted({*plan.batch_kept} & {*cluster.batch} - up)
    ]
    if kept < min(minimum, sum(name in up for name in cluster.batch)):
        problems.append(f"batch would keep {counted(kept, 'slot')}, below its minimum of {minimum}")
    problems += [
        problem
        for name in sorted(Counter(plan.batch_slots) - Counter(plan.batch_kept))
        for problem in _lending_problems(name, spec, aim, cluster)
    ]
    short = [
        move.tier
        for move in plan.moves
        if move.short and _could_have_more(move, plan, kept - minimum, cluster)
    ]
    if short and not _needy(cluster):
        problems.append(
            f"{', '.join(short)} would be short while batch keeps more than its minimum of {minimum}"
        )
    return problems


def _is_below_minimum(tier: TierNow, cluster: Cluster) -> bool:
    """Return whether a tier has fewer slots than its minimum, or should run but does not.

    Such a tier comes before tiers that only lack some of their share.
    """
    if not tier.wanted or tier.placement is None:
        return tier.wanted
    if _keeps_number(tier, tier.placement):
        return False
    aim = _aim(tier.spec.name, cluster.rules)
    living = [
        name
        for name in tier.placement.slots
        if name in cluster.hosts and cluster.hosts[name].state is not HostState.LOST
    ]
    return len(living) < min(aim.slots, max(1, aim.minimum, _workers_for_threads(tier.spec, cluster.rules)))


def _could_have_more(move: Move, plan: Plan, spare: int, cluster: Cluster) -> bool:
    """Return whether a tier could have one more slot on a host where batch keeps slots.

    Batch can give back `spare` of its slots, and the slot has to fit beside all moves.
    """
    name, to = move.tier, _aim(move.tier, cluster.rules).to
    to = to if _serves(to, cluster) else None
    for at, batch_slots in (
        Counter(slot for slot in plan.batch_kept if slot in cluster.hosts).items() if spare > 0 else ()
    ):
        back = [*cluster.batch, *cluster.returning].count(at) - max(0, batch_slots - spare)
        with_slot = move.after.model_copy(update={"slots": (*move.after.slots, at)})
        if _could_take(name, at, to, back, plan, cluster) and not [*_crowds(name, with_slot, cluster)]:
            return True
    return False


def _could_take(  # noqa: PLR0913, PLR0917 - a worker, its host, and what else is there
    name: TierName, at: HostName, to: str | None, back: int, plan: Plan, cluster: Cluster
) -> bool:
    """Return whether a host at the place `to` has room for one more worker beside all moves.

    `back`: the slots that batch gives back there.
    """
    rules, host = cluster.rules, cluster.hosts[at]
    quantum, of_batch = cluster.tiers[name].spec.quantum, rules.batch_quantum
    cpu, memory, others = host.used_cpu + quantum.cpu, host.used_memory + quantum.memory, {*host.tiers}
    for other in plan.moves:
        spec, slots, driver = (
            cluster.tiers[other.tier].spec,
            other.after.slots.count(at),
            other.after.driver == at,
        )
        cpu += spec.quantum.cpu * slots + spec.driver.cpu * driver
        memory += spec.quantum.memory * slots + spec.driver.memory * driver
        others |= {other.tier} if slots or driver else set()
    cpu, memory = cpu - of_batch.cpu * back, memory - of_batch.memory * back
    return (
        host.state is HostState.UP
        and _is_at(host, to)
        and not _is_for_others(name, at, cluster)
        and not rules.separate_from(name) & others
        and cpu <= host.capacity.cpu
        and memory <= host.capacity.memory
    )


def _lending_problems(name: HostName, spec: ChangeSpec, aim: _Aim, cluster: Cluster) -> Iterable[str]:
    """Return why batch may have no additional slot on a host."""
    host = cluster.hosts.get(name)
    to = aim.to if _serves(aim.to, cluster) else None
    if (
        host is None
        or host.state is not HostState.UP
        or (KINDS[spec.kind].empties_host and name in spec.named_hosts)
    ):
        yield f"batch would be on {name}, which {'is unknown' if host is None else 'takes no new units'}"
    elif _is_for_others(BATCH, name, cluster):
        yield f"batch would be on {name}, which is dedicated to others"
    elif not _is_at(host, to):
        yield f"batch has to be at {to or OWN}, not on {name}"
