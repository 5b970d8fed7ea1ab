"""What the scaler observes of a cluster and of the loads that drivers report."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.load import TierLoad
from sluice_ops.model.resources import Capacity
from sluice_ops.model.scaler import Memory, Readings, ScalerSettings, TierMemory, TierScaling
from sluice_ops.model.share import Layer, LayerEntry, Layers, Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import more_slots, place
from sluice_ops.planning.scaler.observe import SATURATED_SECONDS, busy_parts, observe
from sluice_ops.planning.shortage.in_place import joins_in_place
from tests.unit.sluice_ops.planning.clusters import SMALL, apart, clusters, host_of, spec_of, with_workers

LOAD = TierLoad(
    at=0.0,
    rate_in=100.0,
    rate_done=90.0,
    rate_out=80.0,
    busy=0.5,
    fixed=0.2,
    workers=2,
    lag=7,
    lag_seconds=0.1,
)


def cluster(batch=0, batch_minimum=0, **fields):
    """Return a cluster with the tiers `first` → `then`; `first` has two workers on h1 of 8 cpu."""
    first = spec_of("first").model_copy(update={"outputs": ("middle",), "inputs": ("in",), **fields})
    then = spec_of("then").model_copy(update={"inputs": ("middle",), "outputs": ()})
    placement = Placement(driver="h1", slots=("h1", "h1"))
    hosts = holding({"h1": host_of("h1", cpu=8, memory=65536)}, first, placement)
    hosts["h1"] = hosts["h1"].holding(SMALL, batch)
    shares = {
        "first": Share(minimum=1, target=2, maximum=6),
        BATCH: Share(minimum=batch_minimum, target=batch, maximum=8),
    }
    rules = Rules(shares=shares, partitions=8, batch_quantum=SMALL)
    return Cluster(hosts, {"first": TierNow(first, placement), "then": TierNow(then)}, ("h1",) * batch, rules)


def observed(now, load=LOAD, memory=None, **more):
    parts = {"starved": (), "busy": (), "modest": (), "changing": (), "now": 5.0, **more}
    return observe(now, {"first": load, "then": LOAD}, memory or Memory(), **parts)


def test_rates_workers_and_lag_are_those_of_the_load():
    observation = observed(cluster(), starved={"first"}, changing={"then"})
    (name,) = observation.signals
    signals = observation.signals[name]
    assert name == "first", "a tier that does not run has no load"
    assert (signals.rate_in, signals.rate_done, signals.rate_out, signals.busy) == (100.0, 90.0, 80.0, 0.5)
    assert (signals.workers, signals.lag, signals.lag_seconds, signals.starved) == (2, 7, 0.1, True)
    assert signals.fixed == 0.2
    assert (observation.now, observation.changing) == (5.0, frozenset({"then"}))
    assert observation.inputs == {"first": (), "then": ("first",)}
    assert observation.change_seconds > 0


@pytest.mark.parametrize(
    ("lag_seconds", "throttled", "per_worker", "busy"),
    [
        (SATURATED_SECONDS + 1, False, None, 1.0),
        (0.0, False, None, 0.0),
        (0.0, False, 60.0, 0.75),
        (0.0, False, 30.0, 1.0),
        (SATURATED_SECONDS + 1, True, None, 0.0),
        (SATURATED_SECONDS + 1, True, 60.0, 0.75),
    ],
)
def test_a_realtime_tier_is_as_busy_as_its_known_capacity_says(lag_seconds, throttled, per_worker, busy):
    load = LOAD.model_copy(update={"busy": None, "lag_seconds": lag_seconds, "throttled": throttled})
    readings = Readings(
        at=0.0,
        rate_in=1.0,
        rate_done=1.0,
        rate_out=1.0,
        best_done=1.0,
        per_worker=per_worker,
    )
    memory = Memory(tiers={"first": TierMemory(readings=readings)})
    assert observed(cluster(), load, memory).signals["first"].busy == busy


def test_bounds_are_those_of_the_share_below_the_scalers_layer():
    entries = (
        LayerEntry(tenant="first", layer=Layer.SCHEDULE, target=3, owner="shift day", at=0.0),
        LayerEntry(tenant="first", layer=Layer.AUTOSCALER, target=5, owner="the scaler", at=0.0),
    )
    bounds = observed(cluster().with_layers(Layers(entries=entries))).bounds["first"]
    assert (bounds.minimum, bounds.base, bounds.maximum, bounds.partitions) == (1, 3, 6, 8)
    assert (bounds.held_by, bounds.set_by) == (None, None)
    tool = entries[1].model_copy(update={"owner": "cli:anna"})
    assert observed(cluster().with_layers(Layers(entries=(tool,)))).bounds["first"].set_by == "cli:anna"
    person = LayerEntry(tenant="first", layer=Layer.PERSON, target=4, owner="anna", at=0.0)
    held = observed(cluster().with_layers(Layers(entries=(*entries, person)))).bounds["first"]
    assert (held.base, held.held_by) == (3, "anna")


@pytest.mark.parametrize(("batch", "batch_minimum", "room"), [(0, 0, 5), (2, 0, 5), (2, 1, 4), (2, 2, 3)])
def test_the_room_is_what_is_free_and_what_batch_gives_back(batch, batch_minimum, room):
    assert observed(cluster(batch, batch_minimum)).bounds["first"].room == room


def test_a_tier_that_is_handed_over_needs_room_beside_its_workers():
    for mode in Mode:
        made = cluster(mode=mode)
        assert observed(made).bounds["first"].room == 5
        first = replace(made.tiers["first"], takes_workers=False)
        older = replace(made, tiers={**made.tiers, "first": first})
        assert observed(older).bounds["first"].room == 3


def on_three_hosts(**then):
    """Return `first` with workers on h1 and h2, and an empty host h3 with as much room as h1."""
    made = cluster()
    first = made.tiers["first"].spec
    placement = Placement(driver="h1", slots=("h1", "h2"))
    hosts = {name: host_of(name, cpu=4, memory=65536) for name in ("h1", "h2", "h3")}
    hosts = holding({**hosts, **then}, first, placement)
    return replace(made, hosts=hosts, tiers={**made.tiers, "first": TierNow(first, placement)})


@pytest.mark.parametrize(
    ("busy", "h3", "starved"),
    [
        (("h1", "h2", "h3"), {}, True),
        (("h1", "h2"), {}, False),
        (("h2", "h3"), {}, False),
        (("h1", "h2"), {"cpu": 0.5}, True),
        (("h1", "h2"), {"state": HostState.CORDONED}, True),
        ((), {}, False),
    ],
)
def test_a_tier_is_starved_if_its_hosts_and_those_with_room_are_busy(busy, h3, starved):
    now = on_three_hosts(h3=host_of("h3", **{"cpu": 4, "memory": 65536, **h3}))
    assert observed(now, busy=busy).signals["first"].starved is starved


def test_bursts_have_room_only_where_the_site_file_permits_them():
    def most(burst, ec2_hosts=0):
        now = cluster()
        scaler = ScalerSettings(tiers={"first": TierScaling(burst=burst)})
        rules = replace(
            now.rules, scaler=scaler, instance=Capacity(cpu=2 * SMALL.cpu, memory=65536), max_instances=3
        )
        hosts = {f"e{i}": replace(host_of(f"e{i}", cpu=2 * SMALL.cpu), zone="ec2") for i in range(ec2_hosts)}
        now = replace(now, rules=rules, hosts={**now.hosts, **hosts})
        return observed(now).bounds["first"].burst

    assert (most(burst=False), most(burst=True)) == (0, 6)
    assert most(burst=True, ec2_hosts=1) == 6, "the instance is there, and empty"
    assert most(burst=True, ec2_hosts=5) == 10, "no further instance, but the running ones are empty"


def test_workers_of_a_burst_are_away_before_it_is_ready():
    now = on_three_hosts(h2=replace(host_of("h2", cpu=4, memory=65536), zone="ec2"))
    assert observed(now).bounds["first"].away == 1


@pytest.mark.parametrize(
    ("owner", "ours"),
    [("airflow:burst_to_ec2/scaler__20261128T151200", True), ("airflow:burst_to_ec2/manual__1", False)],
)
def test_a_burst_belongs_to_the_author_of_its_entry(owner, ours):
    entry = LayerEntry(tenant="first", layer=Layer.PERSON, owner=owner, extra=2, extra_to="zone:ec2", at=0.0)
    bounds = observed(cluster().with_layers(Layers(entries=(entry,)))).bounds["first"]
    assert (bounds.away, bounds.burst, bounds.away_by_scaler) == (2, 2, ours)
    assert bounds.held_by is None


@pytest.mark.parametrize(("spread", "room"), [(Spread(host=2), 4), (Spread(zone=3), 1), (Spread(host=1), 1)])
def test_the_room_is_what_the_rule_spread_leaves(spread, room):
    now = on_three_hosts()
    now = replace(now, rules=replace(now.rules, spread={"first": spread}))
    assert observed(now).bounds["first"].room == room


@given(clusters(apart()))
@settings(max_examples=40, deadline=None)
def test_as_many_workers_as_the_room_can_be_placed_and_no_more(drawn):
    bounds = observe(drawn, {}, Memory(), starved=(), busy=(), modest=(), changing=(), now=5.0).bounds
    assert sorted(bounds) == with_workers(drawn)
    for name in bounds:
        tier = drawn.tiers[name]
        aim, room = target(name, drawn.rules), bounds[name].room - bounds[name].spares
        if joins_in_place(tier, aim, drawn):
            place([more_slots(tier.spec, aim, room, tier.placement.slots)], drawn.hosts)
            with pytest.raises(RefusedError):
                place([more_slots(tier.spec, aim, room + 1, tier.placement.slots)], drawn.hosts)


def test_spares_count_as_room_and_are_woken_first():
    now = cluster()
    shares = {**now.rules.shares, "first": Share(minimum=1, target=1, maximum=6, spare=1)}
    bounds = observed(replace(now, rules=replace(now.rules, shares=shares))).bounds["first"]
    assert (bounds.placed, bounds.spares, bounds.room) == (1, 1, 6)
    shares["first"] = Share(minimum=1, target=2, maximum=6, spare=1)
    bounds = observed(replace(now, rules=replace(now.rules, shares=shares))).bounds["first"]
    assert (bounds.placed, bounds.spares, bounds.room) == (2, 0, 5), "a spare that starts cannot be woken"


@pytest.mark.parametrize(("per_worker", "busy"), [(90.0, 0.7), (30.0, 1.0), (None, None)])
def test_the_busy_part_is_the_fixed_part_and_the_rate_by_the_capacity(per_worker, busy):
    readings = Readings(
        at=4.0,
        rate_in=0.0,
        rate_done=90.0,
        rate_out=0.0,
        best_done=90.0,
        per_worker=per_worker,
    )
    memory = Memory(tiers={"first": TierMemory(readings=readings)})
    parts = busy_parts(observed(cluster(), memory=memory), memory)
    assert parts == ({} if busy is None else {"first": pytest.approx(busy)})
