"""Plans of every kind of change: the checker accepts the plan, and after the change nothing is left
to move.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Share
from sluice_ops.model.spread import Spread
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding, moved
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place_tier
from tests.unit.sluice_ops.planning.clusters import SMALL, checked_plan, dedicated, host_of, spec_of

PLACES = ["zone:onprem", "zone:ec2", "label:fast", "rack:r1", "h1", "e1"]
PINNED = ["h1", "h2", "h3", "e1"]
STATES = [*[HostState.UP] * 7, HostState.CORDONED, HostState.CORDONED, HostState.LOST]
REPAIRS = 4
"""The last of so many repairs has nothing left to repair.

In an earlier one, the old workers may have taken the room.
"""


def sometimes(random, part, make):
    """Return a list with one value of `make` in the given part of the cases, else an empty list."""
    return [make()] if random.random() < part else []


def layer_entries(random, name):
    """Yield layer entries of a tier."""
    person = {"tenant": name, "layer": Layer.PERSON, "owner": "anna", "at": 0.0}
    numbers = {"target": random.randint(0, 5), "until": random.choice([None, 5.0])}
    yield from sometimes(
        random, 0.2, lambda: LayerEntry(**{**person, "layer": random.choice([*Layer][1:])}, **numbers)
    )
    yield from sometimes(random, 0.2, lambda: LayerEntry(**person, to=random.choice(PLACES)))
    yield from sometimes(
        random, 0.3, lambda: LayerEntry(**person, extra=random.randint(1, 2), extra_to="zone:ec2")
    )


def rules_of(random, names):
    """Return the rules of a site; each rule applies to few tiers."""
    shares = {}
    for tenant in (*names, BATCH):
        low = random.randint(0, 2)
        aim = random.randint(low, 4)
        spare = random.choice([0, 0, 0, 1, 2]) if tenant != BATCH else 0
        shares[tenant] = Share(minimum=low, target=aim, maximum=random.randint(max(1, aim), 6), spare=spare)
    limit = [None, None, 1, 2, 3]
    return Rules(
        shares=shares,
        locality={name: random.choice(PLACES) for name in names if random.random() < 0.3},
        spread={
            name: Spread(host=random.choice(limit), rack=random.choice(limit))
            for name in names
            if random.random() < 0.2
        },
        pinned={
            name: {random.choice(PINNED): random.randint(1, 2)} for name in names if random.random() < 0.2
        },
        separate=random.choice([(), (), (frozenset({"t0", "t1"}),)]),
        dedicated=random.choice([{}, {}, {"h1": frozenset({"t0"})}]),
        budget={name: random.randint(0, 2) for name in names if random.random() < 0.2},
        layers=Layers(entries=tuple(entry for name in names for entry in layer_entries(random, name))),
        shifts={
            "night": {
                name: Numbers(target=random.randint(0, 5))
                for name in (*names, BATCH)
                if random.random() < 0.5
            }
        },
        partitions=8,
        batch_quantum=SMALL,
    )


def placed(random, spec, rules, hosts):
    """Return a tier and the hosts.

    The tier is where the solver places it, or anywhere; without room it does not run.
    """
    try:
        placement, _ = place_tier(spec, target(spec.name, rules), None, hosts)
    except RefusedError:
        return TierNow(spec, None), hosts
    if random.random() < 0.25:
        placement = Placement(
            driver=random.choice([*hosts]), slots=tuple(random.choices([*hosts], k=random.randint(1, 4)))
        )
    hosts_with_tier = holding(hosts, spec, placement)
    return (
        (TierNow(spec, placement), hosts_with_tier)
        if placement.slots and not any(host.overfull for host in hosts_with_tier.values())
        else (TierNow(spec, None), hosts)
    )


def site(random):
    """Return a site in any state: tiers in place or not, bursts, places, rules, and hosts that are
    not up.
    """
    hosts = {}
    for name in random.sample(["h1", "h2", "h3", "h4", "e1", "e2"], random.randint(2, 5)):
        size = {"cpu": random.choice([3.0, 5.0, 8.0, 16.0]), "memory": random.choice([4096, 8192, 16384])}
        place = {"rack": random.choice(["", "r1", "r2"]), "labels": random.choice([(), ("fast",)])}
        hosts[name] = host_of(
            name, zone="ec2" if name[0] == "e" else random.choice(["onprem", "annex"]), **size, **place
        )
    names = [f"t{number}" for number in range(random.randint(1, 3))]
    rules = rules_of(random, names)
    hosts, tiers = dedicated(hosts, rules), {}
    for name in names:
        quantum = Quantum(
            cpu=random.choice([0.5, 1.0, 2.0]), memory=random.choice([256, 1024, 1536]), threads=4
        )
        tiers[name], hosts = placed(
            random, spec_of(name, distance=random.randint(0, 2), quantum=quantum), rules, hosts
        )
    batch = []
    for name in random.choices([*hosts], k=random.randint(0, target(BATCH, rules).slots)):
        if hosts[name].fits(SMALL):
            hosts = {**hosts, name: hosts[name].holding(SMALL)}
            batch.append(name)
    hosts = {name: replace(host, state=random.choice(STATES)) for name, host in hosts.items()}
    return Cluster(hosts, tiers, tuple(sorted(batch)), rules)


def changes(random, cluster):
    """Yield a change of each kind that moves tiers without new code or keys."""
    tier, host = random.choice(sorted(cluster.tiers)), random.choice(sorted(cluster.hosts))
    yield from ({"kind": kind, "host": host} for kind in ("drain", "reboot"))
    yield {"kind": "scale", "tier": tier, "k": random.randint(1, 5)}
    yield {"kind": "burst", "tier": tier, "k": random.randint(1, 2)}
    yield {"kind": "migrate", "tier": tier, "to": random.choice([*PLACES, "anywhere"])}
    yield {"kind": "shift", "shift": "night"}
    yield {"kind": "settle", "tier": tier, "until": random.choice([None, 6.0])}
    yield from ({"kind": kind} for kind in ("leave", "repair"))


def cluster_after(planned, spec, cluster):
    """Return the cluster after the plan is carried out."""
    hosts, tiers = (
        dict(cluster.hosts if spec.kind == "repair" else aftermath(spec, cluster).hosts),
        dict(cluster.tiers),
    )
    for move in planned.moves:
        hosts = moved(hosts, tiers[move.tier].spec, move.before, move.after)
        tiers[move.tier] = replace(tiers[move.tier], placement=move.after)
    lent = Counter(planned.batch_slots)
    lent.subtract(cluster.batch)
    for name, count in lent.items():
        hosts[name] = hosts[name].holding(SMALL, count)
    layers = KINDS[spec.kind].layers(spec, cluster.with_hosts(hosts), "anna", 0.0)
    return replace(
        cluster.with_layers(layers), hosts=hosts, tiers=tiers, batch=tuple(sorted(planned.batch_slots))
    )


def was_short(planned):
    """Tell whether a tier gets fewer workers for want of room; after the old workers stop, there
    may be room for more.
    """
    return any(move.short or move.burst_short for move in planned.moves) or any(
        "room is short" in note for note in planned.notes
    )


def moves_of_repetition(spec, planned, cluster):
    """Return the moves of the same change after its plan is carried out; a repair is repeated until
    it ends.

    A second burst adds workers. So the number that a burst has set is settled instead.
    """
    done = cluster_after(planned, spec, cluster)
    if spec.kind != "repair":
        return plan(ChangeSpec(kind="settle", tier=spec.tier) if spec.kind == "burst" else spec, done).moves
    for _ in range(REPAIRS):
        if (planned := checked_plan(spec, done)) is None:
            return ()  # a repair is needed, and there is no room for it
        done = cluster_after(planned, spec, done)
    return planned.moves


@settings(max_examples=100)
@given(st.randoms(use_true_random=True))
def test_a_plan_passes_its_check_and_repeating_it_moves_nothing(random):
    cluster = site(random)
    for fields in changes(random, cluster):
        spec = ChangeSpec(**fields)
        planned = checked_plan(spec, cluster)
        if planned is None or was_short(planned):
            continue
        assert not moves_of_repetition(spec, planned, cluster), spec


@settings(max_examples=25)
@given(st.randoms(use_true_random=True))
def test_a_plan_is_the_same_for_every_order_of_hosts_and_tiers(random):
    cluster = site(random)
    hosts, tiers = (
        dict(random.sample([*mapping.items()], len(mapping))) for mapping in (cluster.hosts, cluster.tiers)
    )
    for fields in changes(random, cluster):
        spec = ChangeSpec(**fields)
        assert checked_plan(spec, replace(cluster, hosts=hosts, tiers=tiers)) == checked_plan(spec, cluster)
