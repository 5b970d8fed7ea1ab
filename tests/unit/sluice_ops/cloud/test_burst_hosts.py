"""A burst launches only the instances for which the running ones have no room."""

import pytest
from simulation.ec2 import instance
from simulation.memory import MemoryChannel
from simulation.world import tier

from sluice_ops.cloud.burst_hosts import after_leave, comes_in_time, instances_needed
from sluice_ops.model import paths
from sluice_ops.model.assignment import (
    Assignment,
    HostFacts,
    HostRecord,
    HostState,
    Unit,
    UnitKind,
    label_of,
    slot_id,
)
from sluice_ops.model.change import (
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    MaintenanceLock,
    Move,
    Plan,
    Step,
)
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement, TierWanted
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.load import FRESH_SECONDS, TierLoad
from sluice_ops.model.release import Release, StreamShape, TierShape
from sluice_ops.model.scaler import Decision, Memory, Readings, ScalerRecord, TierMemory
from sluice_ops.model.share import Layer, LayerEntry, Layers
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.burst import BurstError
from sluice_ops.site.ec2_config import Ec2Config

CONFIG = Ec2Config(capacity={"cpu": 2, "memory": 4096}, max_instances=4)
ENRICH = tier("enrich", Mode.BATCH, 0)


def join(channel, host, slots, *, zone="ec2", state=HostState.UP, live=True):
    """Register a host that holds slots of `enrich`."""
    facts = HostFacts(name=host, address="10.0.0.1", zone=zone, cpu=2, memory=4096)
    units = tuple(
        Unit(
            id=slot_id("enrich", 1, number),
            kind=UnitKind.SLOT,
            tenant="enrich",
            incarnation=1,
            quantum=ENRICH.quantum,
            label=label_of("enrich", 1),
        )
        for number in range(slots)
    )
    channel.put(paths.host(host), facts)
    channel.put(paths.host_record(host), HostRecord(state=state))
    channel.put(paths.assignment(host), Assignment(units=units))
    if live:
        channel.put(paths.live(host), facts)


def channel_with(*extras):
    """Return a channel with the tier `enrich`, and bursts of so many slots."""
    channel = MemoryChannel()
    channel.put(paths.tier("enrich"), ENRICH)
    entries = (
        LayerEntry(tenant="enrich", layer=Layer.PERSON, extra=extra, extra_to="zone:ec2", owner="a", at=0)
        for extra in extras
    )
    channel.put(paths.LAYERS, Layers(entries=tuple(entries)))
    return channel


def needed(channel, k, running=()):
    spec = ChangeSpec(kind="burst", tier="enrich", k=k)
    return instances_needed(channel, spec, "this-change", running, CONFIG)


def test_free_room_on_running_instances_is_used_first():
    channel = channel_with()
    assert needed(channel, 3) == 2
    join(channel, "ec2-a", 1)
    assert needed(channel, 3) == 1
    assert needed(channel, 1) == 0


@pytest.mark.parametrize("running_is_light", [None, True, False])
def test_no_instance_is_launched_for_a_tier_that_is_light_in_its_release(running_is_light):
    channel = channel_with()
    channel.put(paths.tier("enrich"), ENRICH.model_copy(update={"light": True, "release": "r2-new"}))
    if running_is_light is not None:
        shape = TierShape(inputs=(StreamShape(name="in"),), light=running_is_light)
        old = Release(name="r1-old", module="m", digest="d", published_at=0.0, tiers={"enrich": shape})
        channel.put(paths.release("r1-old"), old)
        channel.put(paths.wanted("enrich"), TierWanted(running=True, release="r1-old"))
    if running_is_light is False:
        assert needed(channel, 3) == 2
        return
    with pytest.raises(BurstError, match='tier "enrich" is light: its driver does the work'):
        needed(channel, 3)


@pytest.mark.parametrize("more", [{"zone": "onprem"}, {"state": HostState.CORDONED}, {"live": False}])
def test_only_burst_hosts_that_take_units_count_as_room(more):
    channel = channel_with()
    join(channel, "ec2-a", 0, **more)
    assert needed(channel, 2) == 1


def test_a_further_burst_finds_room_beside_the_present_workers():
    channel = channel_with(2)
    join(channel, "ec2-a", 2)
    assert needed(channel, 1) == 2


def test_a_further_burst_in_place_finds_room_for_its_own_workers_alone():
    channel = channel_with(2)
    join(channel, "ec2-a", 2)
    in_place(channel)
    channel.put(paths.owner("enrich"), OwnerRecord(owner=1))
    placement = Placement(driver="h1", slots=("h1", "ec2-a", "ec2-a"))
    channel.put(
        paths.incarnation("enrich", 1),
        IncarnationSpec(tier="enrich", incarnation=1, placement=placement, reason="", created_at=1.0),
    )
    assert needed(channel, 1) == 1
    channel.delete(paths.live("ec2-a"))
    assert needed(channel, 1) == 2, "the lost workers of the burst need room, too"


def in_place(channel):
    """Record that `enrich` gets workers in place."""
    decision = Decision(mode="advise", slots=1, wanted=1, reason="enough", since=1.0, in_place=True)
    channel.put(paths.SCALER, ScalerRecord(decisions={"enrich": decision}))


LEAVE = {"of all": {}, "of a tier": {"tier": "enrich"}, "of a part": {"tier": "enrich", "k": 1}}


@pytest.mark.parametrize(
    ("leave", "freed", "kept"),
    [
        ("of all", ["idle", "launching", "lent"], ["enrichs", "others"]),
        ("of a tier", ["idle"], ["enrichs"]),
        ("of a part", ["idle"], []),
    ],
)
def test_a_leave_of_one_tier_spares_instances_that_others_need(leave, freed, kept):
    channel = MemoryChannel()
    running = {
        name: instance(f"i-{number:017d}", name, launched_at=NOW - 60)
        for number, name in enumerate(("enrichs", "others", "lent", "idle", "launching"), start=1)
    }
    for tier_name, host in (("enrich", "enrichs"), ("counts", "others")):
        placement = Placement(driver="h1", slots=("h1", running[host].host))
        spec = IncarnationSpec(tier=tier_name, incarnation=1, placement=placement, reason="", created_at=1.0)
        channel.put(paths.tier(tier_name), ENRICH)
        channel.put(paths.owner(tier_name), OwnerRecord(owner=1))
        channel.put(paths.incarnation(tier_name, 1), spec)
    join(channel, running["lent"].host, 1)
    channel.put(paths.change("idle"), CHANGED)
    free, users = after_leave(channel, ChangeSpec(kind="leave", **LEAVE[leave]), running.values(), NOW)
    assert sorted(each.token for each in free) == sorted(freed)
    assert sorted(each.token for each in users) == kept


def test_instances_of_an_earlier_try_count_as_not_there():
    channel = channel_with()
    mine = instance("i-0000000000000001", "this-change")
    join(channel, mine.host, 0)
    assert needed(channel, 2, [mine]) == 1
    assert needed(channel, 8, [mine]) == 4
    with pytest.raises(BurstError, match=r"need 4 more instances, 1 run already, and ec2.max_instances is 4"):
        needed(channel, 8, [mine, instance("i-0000000000000002")])


NOW = 1_000.0
TIMED = InstanceReceipt(instance_type="m5.large", launched_at=NOW - 90, joined_at=NOW - 60)
CHANGED = ChangeRecord(
    id="m1",
    spec=ChangeSpec(kind="migrate", tier="counts"),
    plan=Plan(moves=(Move(tier="counts", before=None, after=Placement(driver="h1", slots=("h1",))),)),
    state=ChangeState.DONE,
    by="anna",
    started_at=1,
    took={Step.PREPARE: 20, Step.CUT: 5},
)


@pytest.mark.parametrize(
    ("reported_at", "count", "expectation"),
    [
        (NOW, 1, "ready in about 55 s (instances 30 s, change 25 s); enrich clears its lag of 900 records"),
        (NOW, 1, "in about 9 s (100/s arrive, and its 2 workers process 200/s)"),
        (NOW, 0, "ready in about 25 s (the change; no instance is launched)"),
        (NOW - FRESH_SECONDS - 1, 1, "the driver of enrich reports no load"),
    ],
)
def test_a_burst_is_compared_by_measured_times_and_the_fresh_load(reported_at, count, expectation):
    channel = channel_with()
    channel.put(paths.tier("enrich"), tier("enrich", Mode.REALTIME, 0))
    channel.put(paths.change("m1"), CHANGED)
    channel.put(paths.LOCK, MaintenanceLock(change="m1", by="anna", since=1))
    assert "reports no load" in comes_in_time(channel, "enrich", count, [TIMED], NOW).sentence
    channel.put(paths.owner("enrich"), OwnerRecord(owner=3))
    channel.put(
        paths.load("enrich", 3),
        TierLoad(at=reported_at, rate_in=1, rate_done=1, rate_out=1, workers=2, lag=900, lag_seconds=9),
    )
    readings = Readings(at=NOW, rate_in=100, rate_done=1, rate_out=1, best_done=1, per_worker=100)
    channel.put(paths.SCALER_MEMORY, Memory(tiers={"enrich": TierMemory(readings=readings)}))
    assert expectation in comes_in_time(channel, "enrich", count, [TIMED], NOW).sentence
