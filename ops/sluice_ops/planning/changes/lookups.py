"""Whether what is asked makes sense here: each refusal names the thing, what is wrong, and what to do. Called by `plan`."""

from collections.abc import Callable, Iterable

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeKind, ChangeSpec
from sluice_ops.model.ids import BATCH, HostName, TierName, UnitId
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.release import number_of
from sluice_ops.model.share import LayerEntry
from sluice_ops.model.tier import Mode
from sluice_ops.model.unknown_names import unknown
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.compatibility import problems
from sluice_ops.planning.changes.layers import PLANNED, burst_of, layers_after
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Hosts, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target, bounded_by, cause, limits, slots_of, target

STORES_PER_THREAD = 16
"""Each partition of each operator is a store of its own in an executor's memory; a number much larger is a slip of the keyboard."""
BY_VALUE = ("Fields(", "Direct(")
"""The groupings whose partition follows from a value that the transform makes."""


def check(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Refuse what names something unknown or impossible; yield what people should know of the rest."""
    return _CHECKS[spec.kind](spec, cluster)


def _host_of(spec: ChangeSpec, cluster: Cluster) -> HostName:
    known = ", ".join(sorted(cluster.hosts)) or "none has registered yet"
    if spec.host is None:
        message = f"{spec.kind} needs a host; known hosts: {known}"
        raise RefusedError(message)
    if spec.host not in cluster.hosts:
        message = f'there is no host "{spec.host}"; known hosts: {known}'
        raise RefusedError(message)
    return spec.host


def _tier_of(spec: ChangeSpec, cluster: Cluster) -> TierNow:
    known = ", ".join(tier.spec.name for tier in cluster.end_first()) or "none is published yet"
    if spec.tier is None:
        message = f"{spec.kind} needs a tier; known tiers: {known}"
        raise RefusedError(message)
    if spec.tier not in cluster.tiers:
        message = f'there is no tier "{spec.tier}"; known tiers: {known}'
        raise RefusedError(message)
    return cluster.tiers[spec.tier]


def _check_cordon(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    name = _host_of(spec, cluster)
    state = cluster.hosts[name].state
    return (
        []
        if state in {HostState.UP, HostState.CORDONED, HostState.LOST}
        else [f"host {name} is {state}: nothing new goes there anyway"]
    )


def _check_drain(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    name = _host_of(spec, cluster)
    state = cluster.hosts[name].state
    if state is HostState.LOST:
        message = (
            f"host {name} is lost: what ran there has been started elsewhere; bring its agent back first"
        )
        raise RefusedError(message)
    if state is HostState.DRAINED and spec.kind is ChangeKind.DRAIN:
        message = f"host {name} is drained already; `sluice return {name}` lets it be used again"
        raise RefusedError(message)
    if state is HostState.REBOOTING:
        message = f"host {name} is rebooting; wait for it, or return it"
        raise RefusedError(message)
    if not any(host.usable for host in cluster.hosts.values() if host.name != name) and any(
        tier.placement is not None and name in tier.placement.hosts for tier in cluster.tiers.values()
    ):
        message = f"host {name} is the last one that is up; return another one first"
        raise RefusedError(message)
    _refuse_given_up(
        spec,
        (
            tier
            for tier in cluster.tiers.values()
            if tier.placement is not None and name in tier.placement.hosts
        ),
    )
    return []


def _check_leave(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    after = cluster.with_layers(layers_after(spec, cluster.rules, PLANNED, 0.0, cluster.hosts.values()))
    there = (
        tier
        for tier in cluster.tiers.values()
        if to_leave(tier.placement, target(tier.spec.name, after.rules), cluster.hosts)
    )
    _refuse_given_up(spec, (tier for tier in there if spec.tier in {None, tier.spec.name}))
    return []


def to_leave(now: Placement | None, aim: Target, hosts: Hosts) -> list[HostName]:
    """Name the burst hosts that a tier is on and has to leave: none where it has its place there, unless it has more than its number."""
    there = [] if now is None else [hosts[name] for name in burst_hosts(now, hosts)]
    return [
        host.name
        for host in there
        if not host.matches(aim.to) or (now is not None and len(now.slots) > aim.k)
    ]


def burst_hosts(placement: Placement, hosts: Hosts) -> list[HostName]:
    """Name the burst hosts that an incarnation has a part on."""
    return [name for name in sorted(placement.hosts) if name in hosts and hosts[name].zone == BURST_ZONE]


def _refuse_given_up(spec: ChangeSpec, tiers: Iterable[TierNow]) -> None:
    """Refuse to empty hosts of what cannot be handed over."""
    for tier in tiers:
        if tier.failed:
            raise RefusedError(given_up(spec, tier))


def given_up(spec: ChangeSpec, tier: TierNow) -> str:
    """Say why a tier that was given up stands in the way of a change, and what to do."""
    name, fault = tier.spec.name, tier.fault.partition("\n")[0]
    return (
        f'tier "{name}" was given up{f" ({fault})" if fault else ""}, and cannot be handed over while it does not run. Mend its fault and '
        f"`sluice start {name}`, or take it away with `sluice stop {name}`; then ask for the {spec.kind} again"
    )


def _check_return(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    name = _host_of(spec, cluster)
    state = cluster.hosts[name].state
    if state is HostState.LOST:
        message = f"host {name} is lost: its agent does not answer; start it, then return the host"
        raise RefusedError(message)
    return [f"host {name} is up already"] if state is HostState.UP else []


def _check_migrate(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    tier = _tier_of(spec, cluster)
    if spec.to is None:
        message = "migrate needs a place: a host's name, zone:…, rack:…, label:… or `anywhere`"
        raise RefusedError(message)
    aim = target(tier.spec.name, cluster.with_layers(layers_after(spec, cluster.rules, PLANNED, 0.0)).rules)
    matching = [host for host in cluster.hosts.values() if host.matches(aim.to)]
    if not matching:
        hosts = cluster.hosts.values()
        zones = sorted({f"zone:{host.zone}" for host in hosts})
        racks = sorted({f"rack:{host.rack}" for host in hosts if host.rack})
        labels = sorted({f"label:{label}" for host in hosts for label in host.labels})
        known = ", ".join([*sorted(cluster.hosts), *zones, *racks, *labels])
        message = f'tier "{tier.spec.name}" cannot go to {spec.to}: no host is there; known: {known}'
        raise RefusedError(message)
    if not any(host.usable for host in matching):
        states = ", ".join(f"{host.name} is {host.state}" for host in matching)
        message = f'tier "{tier.spec.name}" cannot go to {spec.to}: {states}; return it first'
        raise RefusedError(message)
    return _running(tier)


def _check_upgrade(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    tier = _tier_of(spec, cluster)
    name = tier.spec.name
    _refuse_unread([spec.release], cluster)
    if spec.release is None or spec.release not in cluster.releases:
        known = (
            ", ".join(sorted(cluster.releases, key=number_of))
            or "none, `python -m sluice.commands.publish` makes one"
        )
        message = f"there is no release {spec.release or 'yet'}; known releases: {known}"
        raise RefusedError(message)
    after = cluster.releases[spec.release].tiers.get(name)
    if after is None:
        having = ", ".join(
            sorted((each.name for each in cluster.releases.values() if name in each.tiers), key=number_of)
        )
        message = f'release {spec.release} has no tier "{name}"; these have it: {having or "none"}'
        raise RefusedError(message)
    if tier.release == spec.release:
        return [f"{name} runs {spec.release} already"]
    if tier.placement is not None:
        _refuse_unread((now.release for now in (tier, *cluster.end_first())), cluster)
    before = None if tier.release is None else cluster.shape(name, tier.release)
    if before is None:
        return [
            f"{name} runs no release that is known: nothing could be compared, and there is no way back",
            *_running(tier),
        ]
    others = {
        other: shape
        for other, now in cluster.tiers.items()
        if (shape := cluster.shape(other, now.release)) is not None
    }
    wrong = problems(name, before, after, others)
    if wrong and tier.placement is not None:
        message = (
            f'tier "{name}" cannot be handed over from {tier.release} to {spec.release}: {"; ".join(wrong)}. '
            f"To change it nevertheless, knowing what becomes of it: `sluice stop {name}`, `sluice upgrade {name}`, `sluice start {name}`"
        )
        raise RefusedError(message)
    if tier.failed:
        return [f"{name} has failed: it is started with {spec.release} at once, and there is no trial"]
    spread = [stream.name for stream in after.outputs if stream.grouping.startswith(BY_VALUE)]
    note = (
        f"{', '.join(spread)} is spread by what its records hold: one that the new code gives another value there takes another way, and "
        f"where both codes put it out, during the hand-over, a table that adds up counts it twice"
    )
    return [*wrong, *([note] if spread else ()), *_running(tier)]


def _refuse_unread(releases: Iterable[str | None], cluster: Cluster) -> None:
    """Refuse what would rest on a release that is there and cannot be read."""
    for release in releases:
        if release is not None and (said := cluster.unread_releases.get(release)) is not None:
            raise RefusedError(said)


def _check_repartition(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    tier = _tier_of(spec, cluster)
    name, wanted = tier.spec.name, spec.partitions
    if wanted is None:
        message = "repartition needs partitions, the number over which the state is to be spread"
        raise RefusedError(message)
    if not tier.spec.state:
        message = f'tier "{name}" holds no state in Spark: there is nothing to spread; `sluice scale {name}` gives it more workers'
        raise RefusedError(message)
    if tier.placement is None or tier.paused or tier.failed:
        how = "has failed" if tier.failed else "is paused" if tier.paused else "does not run"
        message = (
            f'tier "{name}" {how}: its state is spread anew in a hand-over, and counted; have it run first'
        )
        raise RefusedError(message)
    threads = len(tier.placement.slots) * tier.spec.quantum.threads
    if wanted > STORES_PER_THREAD * threads:
        message = (
            f'tier "{name}": {wanted} partitions are {wanted / threads:.0f} stores of each operator for each of its {threads} threads; '
            f"ask for {STORES_PER_THREAD * threads} or fewer, or scale it first"
        )
        raise RefusedError(message)
    if tier.partitions == wanted:
        return [f"the state of {name} is spread over {wanted} partitions already"]
    note = f"the state of {name} is spread over {wanted} partitions, and was over {tier.partitions}; its keys are counted before and after"
    return [
        note,
        *([f"{threads - wanted} of its {threads} threads will hold no state"] if wanted < threads else ()),
    ]


def _check_scale(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    if spec.k is None:
        message = "scale needs k, the number of workers"
        raise RefusedError(message)
    slots = slots_of(spec.tenant, spec.k, cluster.rules)
    notes = (
        []
        if isinstance(spec.k, int)
        else [f"{spec.k} of {cluster.rules.wholes.get(spec.tenant, 0)} are {slots} slots"]
    )
    low, high = (
        None if amount is None else slots_of(spec.tenant, amount, cluster.rules)
        for amount in (spec.minimum, spec.maximum)
    )
    if low is not None and high is not None and low > high:
        way = f"ask for a maximum of {low} or more, or a minimum of {high} or less"
        message = f"{spec.tier}: a minimum of {low} is above a maximum of {high}; {way}"
        raise RefusedError(message)
    after = cluster.with_layers(layers_after(spec, cluster.rules, PLANNED, 0.0))
    lowest = limits(spec.tenant, after.rules).minimum
    if high is not None and high < lowest:
        way = _way("lower", "minimum", bounded_by(spec.tenant, after.rules)[0], spec.tenant)
        message = f"{_who(spec.tenant)}: a maximum of {high} is below its minimum of {lowest}; ask for more, or {way}"
        raise RefusedError(message)
    if spec.tenant == BATCH:
        _check_share(BATCH, slots, slots, after)
        return notes
    tier = _tier_of(spec, cluster)
    extra = target(tier.spec.name, cluster.rules).extra
    _check_k(tier, slots, slots + extra, after)
    holds = target(tier.spec.name, after.rules)
    if holds.slots != slots:
        notes.append(f"{tier.spec.name} has {holds.slots}, not {slots}, for now: {cause(holds)}")
    return [*notes, *_running(tier)]


def _check_burst(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    tier = _tier_of(spec, cluster)
    k = burst_of(spec)
    if spec.k not in {None, k} or k < 1:
        message = f"burst needs k of 1 or more, not {spec.k}; leave_ec2 takes burst slots back"
        raise RefusedError(message)
    to = spec.to or f"zone:{BURST_ZONE}"
    if not any(host.usable for host in cluster.hosts.values() if host.matches(to)):
        message = f'tier "{tier.spec.name}" cannot burst: no host at {to} is up; burst_to_ec2 launches one, or start its agent'
        raise RefusedError(message)
    slots = target(tier.spec.name, cluster.rules).slots
    _check_k(tier, slots, slots + k, cluster)
    return _running(tier)


def _check_k(tier: TierNow, base: int, k: int, cluster: Cluster) -> None:
    """Refuse a number of workers outside the share, or that the input's partitions cannot feed."""
    name = tier.spec.name
    _check_share(name, base, k, cluster)
    partitions = cluster.rules.partitions_of(tier.spec)
    if k > partitions:
        message = f'tier "{name}": its input has {partitions} partitions, so {k - partitions} of {k} workers would read nothing; ask for less'
        raise RefusedError(message)
    threads = k * tier.spec.quantum.threads
    if tier.spec.mode is Mode.REALTIME and threads < partitions:
        message = (
            f'tier "{name}": a realtime tier holds one thread for each of its {partitions} partitions, '
            f"{k} workers of {tier.spec.quantum.threads} threads have {threads}; ask for more, or raise quantum.threads"
        )
        raise RefusedError(message)


def _check_share(tenant: str, base: int, k: int, cluster: Cluster) -> None:
    """Refuse a number outside the share."""
    who = _who(tenant)
    if tenant == BATCH and tenant not in cluster.rules.shares:
        message = "batch has no share; name it below shares: in the site file"
        raise RefusedError(message)
    share = limits(tenant, cluster.rules)
    lowest, highest = bounded_by(tenant, cluster.rules)
    if base < share.minimum:
        way = _way("lower", "minimum", lowest, tenant)
        if base == 0 and tenant != BATCH:
            way = f"`sluice pause {tenant}` has it stand still, `sluice stop {tenant}` takes its workers away"
        message = f"{who}: {base} is below its minimum of {share.minimum}; ask for more, or {way}"
        raise RefusedError(message)
    if k > share.maximum:
        message = f"{who}: {k} is above its maximum of {share.maximum}; ask for less, or {_way('raise', 'maximum', highest, tenant)}"
        raise RefusedError(message)


def _who(tenant: str) -> str:
    return tenant if tenant == BATCH else f'tier "{tenant}"'


def _way(verb: str, bound: str, by: LayerEntry | None, tenant: str) -> str:
    """Say where a minimum or maximum can be changed: where it was set."""
    if by is None:
        return f"{verb} shares.{tenant}.{bound} in the site file"
    if by.owner == PLANNED:
        return f"{verb} the {bound} that is asked for with it"
    return f"say another {bound} with it: {by.owner} set this one"


def _check_shift(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    known = ", ".join(sorted(cluster.rules.shifts)) or "none"
    if spec.shift is None or spec.shift not in cluster.rules.shifts:
        message = f'there is no shift "{spec.shift}" in the site file; known shifts: {known}'
        raise RefusedError(message)
    shares = cluster.rules.shifts[spec.shift]
    for tenant in shares:
        if tenant != BATCH and tenant not in cluster.tiers:
            message = f'shift "{spec.shift}" speaks of "{tenant}", which is neither a tier nor batch; correct shifts.{spec.shift}.shares'
            raise RefusedError(message)
    rules = cluster.with_layers(layers_after(spec, cluster.rules, PLANNED, 0.0)).rules
    return [
        f"{tenant} has {holds.slots}, not the shift's {numbers.target}: {cause(holds)}"
        for tenant, numbers in shares.items()
        if numbers.target is not None
        and (holds := target(tenant, rules)).slots != slots_of(tenant, numbers.target, rules)
    ]


def _check_tier(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    _tier_of(spec, cluster)
    return []


def _check_nothing(_spec: ChangeSpec, _cluster: Cluster) -> Iterable[str]:
    return []


def _check_one(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    return [] if spec.tier is None else _running(_tier_of(spec, cluster))


def _check_repair(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    return [*unknown(cluster.rules, cluster.rules.shifts, cluster.tiers), *_check_one(spec, cluster)]


def _check_pause(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    found: dict[TierName, list[UnitId]] = {}
    for worker in spec.workers:
        found.setdefault(_tier_with(worker, cluster), []).append(worker)
    notes = [
        note
        for name, workers in found.items()
        for note in _check_workers(cluster.tiers[name], workers, spec, cluster)
    ]
    return [*notes, *_check_one(spec, cluster)]


def _tier_with(worker: UnitId, cluster: Cluster) -> TierName:
    for name, tier in cluster.tiers.items():
        if worker in tier.workers:
            return name
    known = listed(sorted(each for tier in cluster.tiers.values() for each in tier.workers)) or "none"
    message = f'there is no worker "{worker}"; `sluice slots` lists them: {known}'
    raise RefusedError(message)


def _check_workers(tier: TierNow, workers: list[UnitId], spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Refuse workers whose tier could not go on without them."""
    name = tier.spec.name
    if spec.tier == name:
        message = (
            f"{', '.join(workers)}: {name} is to be paused as a whole; name the tier or its workers, not both"
        )
        raise RefusedError(message)
    if tier.spec.state:
        message = (
            f'tier "{name}": its state lies with its workers, so none of them can be paused alone; pause the tier, or give it fewer '
            f"workers: `sluice scale {name}`"
        )
        raise RefusedError(message)
    left = len({*tier.workers} - {*tier.paused_workers, *workers})
    if not left:
        message = (
            f'tier "{name}": that would leave it without a worker; pause the tier: `sluice pause {name}`'
        )
        raise RefusedError(message)
    if not {*workers} <= {*tier.paused_workers}:
        _check_left(tier, left, cluster)
    if tier.spec.mode is not Mode.REALTIME:
        return []
    partitions, threads = cluster.rules.partitions_of(tier.spec), left * tier.spec.quantum.threads
    if threads < partitions:
        message = (
            f'tier "{name}": a realtime tier holds one thread for each of its {partitions} partitions, and {left} of its '
            f"{len(tier.workers)} workers have {threads}; give it more before (`sluice scale {name}`), raise quantum.threads, or pause "
            f"the tier"
        )
        raise RefusedError(message)
    return [
        f"{name} begins again on the workers that are left, some seconds without output, and so when they are woken"
    ]


def _check_left(tier: TierNow, left: int, cluster: Cluster) -> None:
    """Refuse to leave a tier fewer workers at work than its budget and its minimum say: below that it is paused as a whole."""
    name, share, allowed = (
        tier.spec.name,
        target(tier.spec.name, cluster.rules).k,
        cluster.rules.budget.get(tier.spec.name),
    )
    if allowed is not None and share - left > allowed:
        message = (
            f'tier "{name}": {left} of its {share} workers would be at work, and budget.{name} lets {allowed} be away; pause the tier as a '
            f"whole: `sluice pause {name}`, or raise budget.{name} in the site file"
        )
        raise RefusedError(message)
    minimum = limits(name, cluster.rules).minimum
    if left < minimum:
        message = (
            f'tier "{name}": {left} of its workers would be at work, below its minimum of {minimum}; pause the tier as a whole: '
            f"`sluice pause {name}`, or lower shares.{name}.minimum in the site file"
        )
        raise RefusedError(message)


def _running(tier: TierNow) -> Iterable[str]:
    return (
        []
        if tier.placement is not None
        else [f"{tier.spec.name} does not run: it will be so from its next start on"]
    )


def _check_write_off(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    if spec.host is None:
        return []
    name = _host_of(spec, cluster)
    if cluster.hosts[name].state is not HostState.LOST:
        message = f"host {name} is {cluster.hosts[name].state}: its agent is there; `sluice drain {name}` moves everything off"
        raise RefusedError(message)
    return []


_CHECKS: dict[ChangeKind, Callable[[ChangeSpec, Cluster], Iterable[str]]] = {
    ChangeKind.CORDON: _check_cordon,
    ChangeKind.DRAIN: _check_drain,
    ChangeKind.REBOOT: _check_drain,
    ChangeKind.RETURN: _check_return,
    ChangeKind.MIGRATE: _check_migrate,
    ChangeKind.UPGRADE: _check_upgrade,
    ChangeKind.REPARTITION: _check_repartition,
    ChangeKind.SCALE: _check_scale,
    ChangeKind.BURST: _check_burst,
    ChangeKind.LEAVE: _check_leave,
    ChangeKind.SHIFT: _check_shift,
    ChangeKind.SETTLE: _check_nothing,
    ChangeKind.REPAIR: _check_repair,
    ChangeKind.PAUSE: _check_pause,
    ChangeKind.RESUME: _check_one,
    ChangeKind.WRITE_OFF: _check_write_off,
    ChangeKind.START: _check_tier,
    ChangeKind.STOP: _check_tier,
}
