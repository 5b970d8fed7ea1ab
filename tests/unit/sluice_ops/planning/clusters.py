"""Tiers, hosts and random clusters that the tests of planning share."""

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import BATCH
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.share import Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Host, RefusedError, Rules, TierNow
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place, place_tier

SMALL = Quantum(cpu=1, memory=1024, threads=4)


def spec_of(name, *, mode=Mode.BATCH, distance=0, quantum=SMALL, light=False, release=None):
    return TierSpec(
        name=name,
        kind=Kind.PROCESSING,
        mode=mode,
        delivery=Delivery.AT_LEAST_ONCE,
        inputs=("in",),
        distance=distance,
        quantum=quantum,
        driver=Quantum(cpu=0.5, memory=512, threads=1),
        light=light,
        release=release,
    )


def host_of(name, *, cpu=8.0, memory=8192, zone="onprem", rack="", labels=(), state=HostState.UP):
    return Host(name, zone, labels, Capacity(cpu=cpu, memory=memory), state, rack=rack)


def layers_after(spec, rules, by, now):
    """Return the layers after a change of a cluster without hosts and tiers."""
    return KINDS[spec.kind].layers(spec, Cluster({}, {}, (), rules), by, now)


quanta = st.builds(
    Quantum,
    cpu=st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    memory=st.sampled_from([256, 512, 1024, 1536]),
    threads=st.just(4),
)


spares = st.sampled_from([0, 0, 0, 1, 2])
lights = st.sampled_from([False, False, False, True])
changed = st.sampled_from([False, False, True])
"""Whether a light tier was published again as light no more, and runs on as it was."""


def light_of(specs):
    """Return the names of the light tiers, as the rules of a cluster have them."""
    return frozenset(spec.name for spec in specs if spec.light)


def with_workers(cluster):
    """Return the names of the tiers with workers."""
    tiers = sorted(cluster.tiers.items())
    return [name for name, tier in tiers if not (tier.spec.light or tier.awaits_upgrade)]


def light_no_more(tier):
    """Return a running light tier after a newer release that gives it workers."""
    spec = tier.spec.model_copy(update={"light": False, "release": "r2-newer"})
    return replace(tier, spec=spec, release="r1-older")


@st.composite
def clusters(draw, rules=None):
    """Draw a cluster in which the placement solver placed the tiers one after the other, under
    drawn rules.
    """
    hosts = {
        name: host_of(
            name,
            cpu=draw(st.sampled_from([6.0, 8.0, 16.0])),
            memory=draw(st.sampled_from([6144, 12288])),
            zone=draw(st.sampled_from(["onprem", "onprem", "annex"])),
            rack=draw(st.sampled_from(["", "r1", "r2"])),
        )
        for name in [f"h{number}" for number in range(1, draw(st.integers(2, 6)) + 1)]
    }
    specs = [
        spec_of(
            f"t{number}",
            mode=draw(st.sampled_from(Mode)),
            distance=draw(st.integers(0, 3)),
            quantum=draw(quanta),
            light=draw(lights),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    shares = {
        spec.name: Share(minimum=1, target=draw(st.integers(1, 3)), maximum=4, spare=draw(spares))
        for spec in specs
    }
    all_rules = replace(
        Rules(partitions=8) if rules is None else draw(rules), shares=shares, light=light_of(specs)
    )
    hosts = dedicated(hosts, all_rules)
    tiers = {}
    for spec in specs:
        try:
            placement, placed = place_tier(spec, target(spec.name, all_rules), None, hosts)
        except RefusedError:
            continue
        hosts = placed.hosts
        tier = TierNow(spec, placement)
        tiers[spec.name] = light_no_more(tier) if spec.light and draw(changed) else tier
    light = light_of(tier.spec for tier in tiers.values())
    return Cluster(hosts, tiers, (), replace(all_rules, light=light))


@st.composite
def overfull_clusters(draw):
    """Draw a cluster, and the same cluster with one used host whose capacity is below its load;
    return both and the host.
    """
    cluster = draw(clusters())
    full = [name for name, host in sorted(cluster.hosts.items()) if host.used_memory]
    assume(full)
    name = draw(st.sampled_from(full))
    host, part = cluster.hosts[name], draw(st.sampled_from([0.2, 0.5, 0.9]))
    less = Capacity(cpu=max(0.1, host.used_cpu * part), memory=max(1, int(host.used_memory * part)))
    return cluster, cluster.with_hosts({**cluster.hosts, name: replace(host, capacity=less)}), name


limits = st.none() | st.integers(1, 3)
spreads = st.builds(Spread, host=limits, rack=limits, zone=limits)
pins = st.dictionaries(st.sampled_from(["h1", "h2", "h3", "h9"]), st.integers(1, 2), min_size=1, max_size=2)
"""The pinned workers of a tier by host; no host has the name h9."""


@st.composite
def apart(draw):
    """Draw rules that keep tiers apart."""
    names = ["t0", "t1", "t2", "t3"]
    return Rules(
        partitions=8,
        spread=draw(st.dictionaries(st.sampled_from(names), spreads, max_size=3)),
        pinned=draw(st.dictionaries(st.sampled_from(names), pins, max_size=2)),
        separate=draw(st.sampled_from([(), (frozenset({"t0", "t1"}),), (frozenset({"t1", "t2", "t3"}),)])),
        dedicated=draw(
            st.sampled_from([{}, {"h1": frozenset({"t0"})}, {"rack:r1": frozenset({"t1", "t2"})}])
        ),
    )


def dedicated(hosts, rules):
    """Return the hosts with the tenants that may run there, as the controller sets them."""
    return {name: replace(host, only=rules.only_on(host)) for name, host in hosts.items()}


@st.composite
def crowded(draw):
    """Draw a nearly full cluster: tiers with their shares, slots lent to batch, and perhaps a tier
    that is down.
    """
    names = [f"h{number}" for number in range(1, draw(st.integers(1, 4)) + 1)]
    hosts = {name: host_of(name, cpu=draw(st.integers(3, 9)), memory=32768) for name in names}
    tiers, shares = {}, {}
    for number in range(draw(st.integers(1, 3))):
        quantum = draw(
            st.sampled_from(
                [SMALL, Quantum(cpu=0.5, memory=512, threads=4), Quantum(cpu=2, memory=2048, threads=4)]
            )
        )
        spec = spec_of(f"t{number}", distance=draw(st.integers(0, 2)), quantum=quantum, light=draw(lights))
        minimum = draw(st.integers(1, 3))
        share = Share(minimum=minimum, target=draw(st.integers(minimum, 4)), maximum=8, spare=draw(spares))
        try:
            placement, placed = place_tier(
                spec, target(spec.name, Rules(shares={spec.name: share}, light=light_of([spec]))), None, hosts
            )
        except RefusedError:
            continue
        shares[spec.name] = share
        if draw(st.integers(0, 4)):
            hosts, tier = placed.hosts, TierNow(spec, placement)
            tiers[spec.name] = light_no_more(tier) if spec.light and draw(changed) else tier
        else:
            tiers[spec.name] = TierNow(spec, None, wanted=draw(st.booleans()))
    room = sum(host.fits(SMALL) for host in hosts.values())
    lent = draw(st.integers(0, min(room, 6)))
    placed = place([Request(BATCH, lent, SMALL)], hosts)
    shares[BATCH] = Share(minimum=draw(st.integers(0, lent)), target=lent, maximum=8)
    assume(any(tier.placement for tier in tiers.values()))
    light = light_of(tier.spec for tier in tiers.values())
    rules = Rules(shares=shares, partitions=8, batch_quantum=SMALL, light=light)
    return Cluster(placed.hosts, tiers, tuple(sorted(placed.where[BATCH, "slots"])), rules)


def checked_plan(spec, cluster):
    """Return the plan after the checker accepted it; None if the change is refused."""
    try:
        planned = plan(spec, cluster)
    except RefusedError:
        return None
    assert violations(planned, spec, aftermath(spec, cluster)) == []
    return planned
