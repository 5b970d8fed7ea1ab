"""A second look at a plan, by other means than made it: nothing runs that this has not passed.

It reads shares and places by itself, and counts what the hosts hold at every point at which the plan is carried out (`walk`): a fault that
it shared with the planner would pass both. Called by preflight, and by a hand-over that had to be planned again.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Move, Plan
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Amount, part
from sluice_ops.model.tier import Mode, Standby, TierSpec
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.check.walk import Walk
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host, Rules, TierNow

OWN = "the site's own hosts"


@dataclass(frozen=True)
class _Aim:
    """What a tenant is to have, as the site file and the layers say it."""

    slots: int
    minimum: int
    to: str | None
    extra: int
    extra_to: str | None


def violations(plan: Plan, spec: ChangeSpec, cluster: Cluster) -> list[str]:
    """Name everything that the plan would break or leave undone; `cluster` has the layers and host states that the change leads to."""
    kind = KINDS[spec.kind]
    if kind.planned_only:
        return []  # nothing is carried out of its plan: the controller places the tier anew once it is wanted
    if not kind.moves:
        return [f"a {spec.kind} moves nothing, and {move.tier} would move" for move in plan.moves]
    strange = sorted({move.tier for move in plan.moves} - cluster.tiers.keys())
    if strange or len({move.tier for move in plan.moves}) < len(plan.moves):
        return [f"{', '.join(strange)} would move, and is no tier" if strange else "a tier would move twice"]
    aims = {name: _aim(name, cluster.rules) for name in cluster.tiers}
    found = _asked_problems(plan, spec, aims, cluster)
    for move in plan.moves:
        found += _move_problems(move, spec, aims[move.tier], cluster)
    walk = Walk(plan, cluster)
    for move in plan.moves:
        found += walk.through(move)
    found += [*_batch_problems(plan, spec, cluster), *walk.lending()]
    order = [cluster.tiers[move.tier].spec.distance for move in plan.moves]
    if order != sorted(order):
        found.append("the tiers are not moved nearest the pipeline's end first")
    return found


def _aim(tenant: str, rules: Rules) -> _Aim:
    """Read what holds of a tenant: of each number and place the highest layer that speaks of it."""
    share = rules.share_of(tenant)
    low, aim, high = share.minimum, share.target, share.maximum
    to, extra, extra_to = rules.locality.get(tenant), 0, None
    for entry in sorted(
        (entry for entry in rules.layers.entries if entry.tenant == tenant), key=lambda entry: entry.layer
    ):
        low = low if entry.minimum is None else entry.minimum
        aim = aim if entry.target is None else entry.target
        high = high if entry.maximum is None else entry.maximum
        to = to if entry.to is None else entry.to
        extra, extra_to = (entry.extra, entry.extra_to) if entry.extra else (extra, extra_to)

    def slots(amount: Amount) -> int:
        return amount if isinstance(amount, int) else part(amount, rules.wholes.get(tenant, 0))

    most = max(slots(low), slots(high))
    count = min(most, max(slots(low), slots(aim)))
    return _Aim(count, slots(low), to, max(0, min(extra, most - count)), extra_to)


def _is_at(host: Host, to: str | None) -> bool:
    if to is None:
        return host.zone != BURST_ZONE
    kind, _, value = to.partition(":")
    places = {"zone": (host.zone,), "rack": (host.rack,), "label": host.labels}
    return value in places[kind] if value and kind in places else host.name == to


def _serves(to: str | None, cluster: Cluster) -> bool:
    """Tell whether a host at a place is up: elsewhere is better than nowhere."""
    return any(host.state is HostState.UP and _is_at(host, to) for host in cluster.hosts.values())


# -- what was asked


def _asked_problems(plan: Plan, spec: ChangeSpec, aims: dict[TierName, _Aim], cluster: Cluster) -> list[str]:
    """Name what the change is for and the plan does not do, and what it does and the change is not for."""
    moves = {move.tier: move for move in plan.moves}
    found = []
    for name, tier in cluster.tiers.items():
        if tier.placement is None or tier.failed:
            found += (
                [f"{name} would move, and {'was given up' if tier.failed else 'does not run'}"]
                if name in moves
                else []
            )
            continue
        if spec.tier not in {None, name}:
            found += [f"{name} would move, and the {spec.kind} is of {spec.tier}"] if name in moves else []
            continue
        lack = _lack(spec, tier, tier.placement, aims[name], cluster)
        move = moves.get(name)
        if move is None:
            noted = KINDS[spec.kind].may_wait and any(note.startswith(f"{name} ") for note in plan.notes)
            more = (
                not KINDS[spec.kind].repairs
                and len(tier.placement.slots) > aims[name].slots + aims[name].extra
            )
            found += (
                [f"{name} would not move, and {lack}"] if lack is not None and (more or not noted) else []
            )
        elif lack is None and not move.why:
            found.append(f"{name} would move, and is as it is to be")
    return found


def _lack(spec: ChangeSpec, tier: TierNow, now: Placement, aim: _Aim, cluster: Cluster) -> str | None:
    """Say what of a tier that runs is not as the change wants it."""
    return next(
        iter(KINDS[spec.kind].unmet(spec, tier, now, _Check(tier.spec.name, now, aim, cluster))), None
    )


@dataclass(frozen=True)
class _Check:
    """What is known here of one tier that runs; the kinds of change ask for it."""

    name: TierName
    now: Placement
    aim: _Aim
    cluster: Cluster

    @property
    def on_burst_hosts(self) -> list[str]:
        more = len(self.now.slots) > self.aim.slots + self.aim.extra
        return [
            f"is on {name}"
            for name in _burst(self.now, self.cluster)
            if more or not _is_at(self.cluster.hosts[name], self.aim.to)
        ]

    @property
    def minimum_is_lacking(self) -> bool:
        return bool(_needy(self.cluster))

    def breaches(self) -> Iterable[str]:
        return _breaches(self.name, self.now, self.aim, self.cluster)

    def displaced(self, *, gone: bool = False) -> Iterable[str]:
        return _displaced(self.now, self.aim, self.cluster, gone=gone)

    def miscounted(self, *, exactly: bool = False) -> Iterable[str]:
        return _miscounted(self.now, self.aim, self.cluster, exactly=exactly)


def _breaches(name: TierName, now: Placement, aim: _Aim, cluster: Cluster) -> Iterable[str]:
    """Say which of the rules that always hold a tier breaks as it is; whom it has to be separate from, the other may move."""
    yield from _miscounted(now, aim, cluster)
    yield from _displaced(now, aim, cluster)
    yield from (f"is {place}" for place in _foreign(name, now, cluster))
    yield from (f"has {crowd}" for crowd in _crowds(name, now, cluster))


def _burst(placement: Placement, cluster: Cluster) -> list[HostName]:
    return sorted(
        name for name in placement.hosts if name in cluster.hosts and cluster.hosts[name].zone == BURST_ZONE
    )


# -- where each tier goes


def _move_problems(move: Move, spec: ChangeSpec, aim: _Aim, cluster: Cluster) -> list[str]:
    tier = cluster.tiers[move.tier]
    found = _in_place_problems(move, spec, tier, aim, cluster) if move.in_place else []
    if KINDS[spec.kind].gives_up(spec) is not None and not move.in_place:
        found.append(f"{move.tier} would be handed over, and makes room for others where it runs")
    may_be = {HostState.UP, HostState.CORDONED} if move.in_place else {HostState.UP}
    if move.before != tier.placement:
        found.append(f"{move.tier} is not where the plan has it")
    if move.short < 0 or (move.short and KINDS[spec.kind].exact):
        found.append(
            f"{move.tier} would be {move.short} slots short, and a {spec.kind} is done as a whole or not at all"
        )
    k = aim.slots + _extra(aim, cluster)
    if len(move.after.slots) + move.short != k:
        short = f" ({move.short} fewer are said)" if move.short else ""
        found.append(f"{move.tier} would have {len(move.after.slots)} slots instead of {k}{short}")
    found += _budget_problems(move, cluster)
    minimum = min(aim.slots, max(aim.minimum, _threaded(tier.spec, cluster.rules)))
    if move.short and aim.slots - move.short < minimum:
        found.append(f"{move.tier} would have {aim.slots - move.short} slots, below its minimum of {minimum}")
    for name in sorted(move.after.hosts):
        host = cluster.hosts.get(name)
        if host is None or host.state not in may_be:
            found.append(
                f"{move.tier} would be on {name}, which is {'unknown' if host is None else host.state}"
            )
        elif KINDS[spec.kind].empties_host and name == spec.host:
            found.append(f"{move.tier} would stay on {name}")
    if KINDS[spec.kind].empties_burst_hosts:
        meant = {
            name
            for name in move.after.hosts & cluster.hosts.keys()
            if aim.to is not None and _is_at(cluster.hosts[name], aim.to)
        }
        found += [
            f"{move.tier} would stay on {name}, which is to be left"
            for name in _burst(move.after, cluster)
            if name not in meant
        ]
    found += [f"{move.tier} would be {place}" for place in _foreign(move.tier, move.after, cluster)]
    found += [f"{move.tier} would have {crowd}" for crowd in _crowds(move.tier, move.after, cluster)]
    extra = _extra(aim, cluster)
    astray = (
        _displaced(move.after, aim, cluster) if move.in_place else _astray(move.after, aim, extra, cluster)
    )
    rest = (*astray, *_beside(move.after, aim, extra, cluster))
    return [*found, *(f"{move.tier} {problem}" for problem in rest)]


def _in_place_problems(move: Move, spec: ChangeSpec, tier: TierNow, aim: _Aim, cluster: Cluster) -> list[str]:
    """Say why a tier cannot let workers go where it runs, or why what it keeps is not what is left of it then."""
    found = []
    if not KINDS[spec.kind].resizes:
        found.append(f"{move.tier} would stay where it runs, and a {spec.kind} starts it anew")
    k, before = len(move.after.slots), move.before
    if (
        before is None
        or not 0 < k < len(before.slots)
        or move.after != Placement(driver=before.driver, slots=before.slots[:k])
    ):
        found.append(
            f"{move.tier} would be elsewhere than on the first of its workers, and is not handed over"
        )
    running = cluster.shape(move.tier, tier.release)
    why = {
        "its state lies with its workers": tier.spec.state
        or (running is not None and running.state is not None),
        "it has a standby": tier.spec.standby is not Standby.NONE,
        "it does not work with all of its workers": tier.paused or bool(tier.paused_workers),
        "some of them are a burst's": aim.extra > 0,
        "the others have too few threads": k < _threaded(tier.spec, cluster.rules),
    }
    found += [
        f"{move.tier} would let workers go where it runs, and {reason}"
        for reason, holds in why.items()
        if holds
    ]
    return [*found, *_gift_problems(move, spec, cluster)]


def _gift_problems(move: Move, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Say why what a tier gives up of its share, for one that lacks some of its minimum, would be of no use to any such."""
    left = KINDS[spec.kind].gives_up(spec)
    if left is None or move.before is None:
        return
    k = len(move.after.slots)
    if k != left:
        yield f"{move.tier} would go on with {k} workers instead of {left}"
    free = [
        host
        for name in {*move.before.slots[k:]}
        if (host := cluster.hosts.get(name)) is not None and host.state is HostState.UP
    ]
    places = {
        name: to if _serves(to := _aim(name, cluster.rules).to, cluster) else None for name in _needy(cluster)
    }
    if not any(
        _is_at(host, to) and not _is_for_others(name, host.name, cluster)
        for host in free
        for name, to in places.items()
    ):
        yield f"{move.tier} would let workers go from where nobody may be who lacks some of its minimum"


def _needy(cluster: Cluster) -> list[TierName]:
    """Name the tiers that have less than their minimum."""
    return [name for name, tier in cluster.tiers.items() if _is_below(tier, cluster)]


def _extra(aim: _Aim, cluster: Cluster) -> int:
    """Return how many slots of a burst a tier can have: none while no host is up there."""
    return aim.extra if aim.extra and _serves(aim.extra_to, cluster) else 0


def _threaded(spec: TierSpec, rules: Rules) -> int:
    """Return how many workers hold a thread for each partition of a realtime tier; any other needs one worker."""
    return -(-rules.partitions_of(spec) // spec.quantum.threads) if spec.mode is Mode.REALTIME else 1


def _miscounted(now: Placement, aim: _Aim, cluster: Cluster, *, exactly: bool = False) -> Iterable[str]:
    """Say how the number is wrong; what a burst lost with its hosts may be elsewhere meanwhile, unless it is to be `exactly` right."""
    wanted = aim.slots + (_extra(aim, cluster) or _cut_off(now, aim, cluster))
    if len(now.slots) not in {wanted, wanted if exactly else aim.slots + aim.extra}:
        yield f"has {len(now.slots)} slots instead of {wanted}"


def _cut_off(now: Placement, aim: _Aim, cluster: Cluster) -> int:
    """Count a burst's workers that go on where nothing new may come."""
    there = (cluster.hosts[name] for name in now.slots if name in cluster.hosts)
    return min(aim.extra, sum(_is_at(host, aim.extra_to) and not _is_at(host, aim.to) for host in there))


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
    """Count the workers in places that hold more of the tier's than they may."""
    there = [cluster.hosts[name] for name in placement.slots if name in cluster.hosts]
    for kind, most in cluster.rules.spread.get(tier) or ():
        for place, count in sorted(Counter(_place(host, kind) for host in there).items()):
            if most is not None and count > most:
                yield f"{count} workers in {kind} {place}, and may have {most}"


def _place(host: Host, kind: str) -> str:
    return {"host": host.name, "rack": f"{host.zone}/{host.rack or host.name}", "zone": host.zone}[kind]


def _astray(
    placement: Placement, aim: _Aim, extra: int, cluster: Cluster, *, gone: bool = False
) -> Iterable[str]:
    """Say what is not where it has to be; so many workers may be elsewhere, and what is on unknown hosts is if they are `gone`."""
    hosts = cluster.hosts
    to = aim.to if _serves(aim.to, cluster) else None
    if not _is_at(hosts[placement.driver], to) if placement.driver in hosts else gone:
        yield f"has to be at {to or OWN}, not with its driver on {placement.driver}"
    away = [name for name in placement.slots if (not _is_at(hosts[name], to) if name in hosts else gone)]
    if len(away) > extra:
        yield f"has to be at {to or OWN}, not on {', '.join(sorted(set(away)))}"


def _displaced(now: Placement, aim: _Aim, cluster: Cluster, *, gone: bool = False) -> Iterable[str]:
    """Say what of a tier that runs is not where it has to be: it may be anywhere as long as no host is up at its place."""
    return _astray(now, aim, aim.extra, cluster, gone=gone) if _serves(aim.to, cluster) else ()


def _beside(placement: Placement, aim: _Aim, extra: int, cluster: Cluster) -> Iterable[str]:
    """Say what of a burst is not at its place."""
    if not extra:
        return
    hosts = cluster.hosts
    to = aim.to if _serves(aim.to, cluster) else None
    there = [name for name in placement.slots if name in hosts and _is_at(hosts[name], aim.extra_to)]
    lost = sorted(
        name for name in {*placement.slots} - {*there} if name in hosts and not _is_at(hosts[name], to)
    )
    if lost:
        yield f"has to have its burst at {aim.extra_to}, not on {', '.join(lost)}"
    elif len(there) < extra:
        yield f"has to have {extra} workers at {aim.extra_to}, not {len(there)}"


def _budget_problems(move: Move, cluster: Cluster) -> list[str]:
    allowed, before = (
        cluster.rules.budget.get(move.tier),
        0 if move.before is None else len(move.before.slots),
    )
    if allowed is None or move.short <= allowed or len(move.after.slots) >= before:
        return []
    return [
        f"{move.tier} would be {move.short} slots short of its share, and its budget lets {allowed} be away"
    ]


# -- batch


def _batch_problems(plan: Plan, spec: ChangeSpec, cluster: Cluster) -> list[str]:
    aim = _aim(BATCH, cluster.rules)
    share, minimum = (aim.slots, aim.minimum) if BATCH in cluster.rules.shares else (0, 0)
    kept, slots = len(plan.batch_kept), len(plan.batch_slots)
    found: list[str] = []
    if Counter(plan.batch_kept) - Counter(cluster.batch):
        found.append("batch would keep slots that it does not have")
    if Counter(plan.batch_kept) - Counter(plan.batch_slots):
        found.append("batch would keep slots that it is not to have")
    if max(slots, kept) > share:
        found.append(f"batch would have {max(slots, kept)} slots, and its share is {share}")
    if slots < share and not any("batch" in note for note in plan.notes):
        found.append(f"batch would have {slots} slots instead of {share}, and nothing is said of it")
    up = {
        name for name in cluster.batch if name in cluster.hosts and cluster.hosts[name].state is HostState.UP
    }
    found += [
        f"batch would keep a slot on {name}, which is not up"
        for name in sorted({*plan.batch_kept} & {*cluster.batch} - up)
    ]
    if kept < min(minimum, sum(name in up for name in cluster.batch)):
        found.append(f"batch would keep {kept} slots, below its minimum of {minimum}")
    found += [
        problem
        for name in sorted(Counter(plan.batch_slots) - Counter(plan.batch_kept))
        for problem in _lent(name, spec, aim, cluster)
    ]
    short = [
        move.tier
        for move in plan.moves
        if move.short and _could_have_more(move, plan, kept - minimum, cluster)
    ]
    if short and not _needy(cluster):
        found.append(
            f"{', '.join(short)} would be short while batch keeps more than its minimum of {minimum}"
        )
    return found


def _is_below(tier: TierNow, cluster: Cluster) -> bool:
    """Tell whether a tier has less than its minimum, or does not run though it is to: such a one comes before those that are short."""
    if not tier.wanted or tier.placement is None:
        return tier.wanted
    aim = _aim(tier.spec.name, cluster.rules)
    living = [
        name
        for name in tier.placement.slots
        if name in cluster.hosts and cluster.hosts[name].state is not HostState.LOST
    ]
    return len(living) < min(aim.slots, max(1, aim.minimum, _threaded(tier.spec, cluster.rules)))


def _could_have_more(move: Move, plan: Plan, spare: int, cluster: Cluster) -> bool:
    """Tell whether a tier may have a slot more where batch keeps some, and would have room for it, beside all that moves, if these yield.

    Batch can spare so many of its slots.
    """
    name, rules = move.tier, cluster.rules
    quantum, of_batch, to = cluster.tiers[name].spec.quantum, rules.batch_quantum, _aim(name, rules).to
    to = to if _serves(to, cluster) else None
    apart = rules.separate_from(name)
    for at, there in (
        Counter(each for each in plan.batch_kept if each in cluster.hosts).items() if spare > 0 else ()
    ):
        host = cluster.hosts[at]
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
        back = [*cluster.batch, *cluster.returning].count(at) - max(0, there - spare)
        cpu, memory = cpu - of_batch.cpu * back, memory - of_batch.memory * back
        more = move.after.model_copy(update={"slots": (*move.after.slots, at)})
        may = (
            host.state is HostState.UP
            and _is_at(host, to)
            and not _is_for_others(name, at, cluster)
            and not apart & others
        )
        if (
            may
            and cpu <= host.capacity.cpu
            and memory <= host.capacity.memory
            and not [*_crowds(name, more, cluster)]
        ):
            return True
    return False


def _lent(name: HostName, spec: ChangeSpec, aim: _Aim, cluster: Cluster) -> Iterable[str]:
    """Say why batch may be lent no slot on a host."""
    host = cluster.hosts.get(name)
    to = aim.to if _serves(aim.to, cluster) else None
    if (
        host is None
        or host.state is not HostState.UP
        or (KINDS[spec.kind].empties_host and name == spec.host)
    ):
        yield f"batch would be on {name}, which is {'unknown' if host is None else 'to take nothing new'}"
    elif _is_for_others(BATCH, name, cluster):
        yield f"batch would be on {name}, which is dedicated to others"
    elif not _is_at(host, to):
        yield f"batch has to be at {to or OWN}, not on {name}"
