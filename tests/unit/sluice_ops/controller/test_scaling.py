"""The controller plans the sizes of tiers from their loads, and follows the scaler's decisions."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.channel import Guard
from sluice_ops.channel.trail_queue import queued as queued_entries
from sluice_ops.controller import scaling as scaling_module
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.controller.scaling import PLAN_SECONDS, Scaling
from sluice_ops.model import paths
from sluice_ops.model.assignment import Observed
from sluice_ops.model.change import SCALER, ChangeState
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.load import FRESH_SECONDS, LOAD_SECONDS, TierLoad
from sluice_ops.model.scaler import (
    Decision,
    Memory,
    Mode,
    ScalerModes,
    ScalerRecord,
    Starvation,
    TierMemory,
)
from sluice_ops.model.share import Layer, Layers, Share
from sluice_ops.model.tier import Mode as TierMode
from sluice_ops.operations.scaling import scaler_changes
from sluice_ops.planning.scaler.observe import observe
from sluice_ops.snapshot.view import read_view


@pytest.fixture
def world():
    rules = replace(RULES, shares={"counts": Share(minimum=1, target=1, maximum=4)}, partitions=8)
    return World(
        hosts=(host("h1", cpu=8),), tiers=[tier("counts", TierMode.BATCH, 0)], rules=rules
    ).bring_up()


def decide(world, wanted, mode=Mode.ACT):
    slots = len(world.placement("counts").slots)
    decision = Decision(mode=mode, slots=slots, wanted=wanted, reason="1 of 3 slots, say", since=0.0)
    world.channel.put(paths.SCALER, ScalerRecord(decisions={"counts": decision}))
    world.settle()


def slots(world):
    return len(world.placement("counts").slots)


def entries(world):
    read = world.channel.read(paths.LAYERS, Layers)
    return [] if read is None else [(entry.layer, entry.owner) for entry in read.value.entries]


def test_in_mode_act_the_tier_gets_the_scalers_number_in_its_layer(world):
    decide(world, 3)
    assert (slots(world), entries(world)) == (3, [(Layer.AUTOSCALER, SCALER)])
    begun = next(queued.entry for queued in queued_entries(world.channel) if queued.entry.by == SCALER)
    assert (begun.layer, begun.sentence) == ("autoscaler", "1 of 3 slots, say"), "the trail has the reason"
    decide(world, 2)
    assert slots(world) == 2
    decide(world, 3)
    assert slots(world) == 3, "a second change to the same number waits for nothing"
    decide(world, 1)
    assert (slots(world), entries(world)) == (1, []), "the site file has the same number"
    world.check_settled()


def test_a_change_has_the_sentence_that_decided_it_not_the_newest_one(world):
    decided = Decision(
        mode=Mode.ACT, slots=1, wanted=3, reason="3 workers stay", since=0.0, because="3 are needed"
    )
    world.channel.put(paths.SCALER, ScalerRecord(decisions={"counts": decided}))
    world.settle()
    (change,) = scaler_changes(world.channel, world.channel.children("/changes"))
    assert change.reason == "3 are needed"


def test_each_change_of_the_scaler_is_found_with_its_reason_and_no_other(world):
    decide(world, 3)
    scale = world.begin("s1", kind="scale", tier="counts", k=2)
    world.settle()
    assert scale.ok
    (change,) = scaler_changes(world.channel, world.channel.children("/changes"))
    assert (change.id, change.reason) == ("scale-counts-to-3-1", "1 of 3 slots, say")
    assert change.run.startswith("scaler__scale-counts-to-3-1-")


@pytest.mark.parametrize("mode", [Mode.ADVISE, Mode.OFF])
def test_in_other_modes_the_scalers_number_is_taken_back(world, mode):
    decide(world, 3, mode)
    assert (slots(world), entries(world)) == (1, [])
    decide(world, 3)
    decide(world, 3, mode)
    assert (slots(world), entries(world)) == (1, [])


@pytest.mark.parametrize("mode", [Mode.ADVISE, Mode.OFF])
def test_the_scalers_number_goes_also_under_a_persons_number(world, mode):
    decide(world, 3)
    world.begin("s1", kind="scale", tier="counts", k=2)
    world.settle()
    decide(world, 3, mode)
    assert (slots(world), entries(world)) == (2, [(Layer.PERSON, "test")])


def test_the_scalers_number_goes_also_if_the_site_file_has_the_same(world):
    decide(world, 3)
    world.rules = replace(world.rules, shares={"counts": Share(minimum=1, target=3, maximum=4)})
    decide(world, 3, Mode.ADVISE)
    assert (slots(world), entries(world)) == (3, [])


def test_a_number_that_the_persons_bounds_refuse_goes_after_them(world):
    decide(world, 3)
    world.begin("s1", kind="scale", tier="counts", k=2, minimum=2)
    world.settle()
    decide(world, 3, Mode.ADVISE)
    assert entries(world) == [(Layer.AUTOSCALER, SCALER), (Layer.PERSON, "test")]
    changes = [change.state for change in read_view(world.channel).changes.values()]
    assert ChangeState.ABORTED not in changes, "nothing is tried in vain"
    world.begin("s2", kind="scale", tier="counts", k=2)
    world.settle()
    assert entries(world) == [(Layer.PERSON, "test")]


def test_a_persons_number_stands_above_the_scalers(world):
    scale = world.begin("s1", kind="scale", tier="counts", k=2)
    world.settle()
    assert scale.ok
    decide(world, 4)
    assert (slots(world), entries(world)) == (2, [(Layer.PERSON, "test")])


@pytest.mark.parametrize("same", [1, 3])
def test_a_persons_number_holds_although_the_scaler_has_the_same(world, same):
    decide(world, same)
    scale = world.begin("s1", kind="scale", tier="counts", k=same)
    world.settle()
    assert scale.ok
    assert entries(world)[-1] == (Layer.PERSON, "test")
    decide(world, 2)
    assert slots(world) == same
    ended = world.begin("s2", kind="scale", tier="counts", k=same, until=world.wall() + 5)
    world.settle()
    assert ended.ok
    world.until(lambda: entries(world)[-1:] != [(Layer.PERSON, "test")])
    decide(world, 2)
    assert slots(world) == 2, "a number with an end gives the tier back to the scaler"


def test_a_tools_number_in_the_same_layer_stays_in_mode_advise(world):
    scale = world.begin("s1", kind="scale", tier="counts", k=2, layer="autoscaler")
    world.settle()
    assert scale.ok
    decide(world, 4, Mode.ADVISE)
    assert (slots(world), entries(world)) == (2, [(Layer.AUTOSCALER, "test")])


def test_a_failed_change_is_not_tried_again_at_once(world):
    world.driver("counts").stuck = True
    decision = Decision(mode=Mode.ACT, slots=1, wanted=2, reason="x", since=0.0)
    world.channel.put(paths.SCALER, ScalerRecord(decisions={"counts": decision}))
    world.until(lambda: slots(world) == 2)
    world.kill_driver("counts")
    world.settle()
    assert slots(world) == 1
    tries = [change for change in read_view(world.channel).changes if change.startswith("scale-counts-to-2-")]
    assert len(tries) == 1


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def turn(world, scaling, *, epoch=True):
    if epoch and not world.channel.exists(paths.EPOCH):
        world.channel.put(paths.EPOCH, Memory())
    view = read_view(world.channel)
    inputs = PassInputs(now=world.wall(), lost=frozenset(), rules=world.rules)
    scaling.turn(view, inputs, Guard(paths.EPOCH, world.channel.version(paths.EPOCH)))
    return world.channel.read(paths.SCALER, ScalerRecord)


def put_load(world, at, **fields):
    usual = {
        "rate_in": 400.0,
        "rate_done": 90.0,
        "rate_out": 90.0,
        "busy": 0.95,
        "lag": 9000,
        "lag_seconds": 60.0,
    }
    load = TierLoad(at=at, workers=slots(world), **{**usual, **fields})
    world.channel.put(paths.load("counts", world.owner("counts").owner), load)


def test_the_leader_publishes_a_decision_with_its_reason_for_each_tier(world):
    clock = Clock()
    scaling = Scaling(world.channel, clock)
    for at in range(8):
        put_load(world, at=float(at))
        record = turn(world, scaling).value
        clock.now += PLAN_SECONDS
        world.now += PLAN_SECONDS
    decision = record.decisions["counts"]
    assert (decision.mode, decision.slots) == (Mode.ADVISE, 1)
    assert decision.wanted > 1
    assert "400" in decision.reason
    assert 0 < record.busy["counts"] <= 1
    assert world.channel.read(paths.SCALER_MEMORY, Memory).value.tiers["counts"].readings is not None


def test_the_time_in_which_instances_boot_is_that_of_their_receipts(world, monkeypatch):
    seen = []

    def observed(*parts, boot, **more):
        seen.append(boot)
        return observe(*parts, boot=boot, **more)

    monkeypatch.setattr(scaling_module, "observe", observed)
    put_load(world, at=0.0)
    turn(world, Scaling(world.channel, Clock()))
    for number, seconds in enumerate((40.0, 50.0, 90.0)):
        timed = InstanceReceipt(instance_type="m5.large", launched_at=100.0, joined_at=100.0 + seconds)
        world.channel.put(paths.instance(f"i-{number}"), timed)
    turn(world, Scaling(world.channel, Clock()))
    assert seen == [None, 50.0]


def test_the_receipt_of_a_timed_instance_is_read_once(world, monkeypatch):
    read_many, asked = world.channel.read_many, []

    def counted(nodes, model, **more):
        asked.extend(node for node in nodes if model is InstanceReceipt)
        return read_many(nodes, model, **more)

    monkeypatch.setattr(world.channel, "read_many", counted)
    put_load(world, at=0.0)
    boots, joins = paths.instance("i-boots"), paths.instance("i-joined")
    launched = InstanceReceipt(instance_type="m5.large", launched_at=100.0)
    for node, joined_at in ((boots, None), (joins, 140.0)):
        world.channel.put(node, launched.model_copy(update={"joined_at": joined_at}))
    clock = Clock()
    scaling = Scaling(world.channel, clock)
    for _ in range(3):
        turn(world, scaling)
        clock.now += PLAN_SECONDS
    assert (asked.count(boots), asked.count(joins)) == (3, 1)


def test_a_tier_whose_hosts_are_all_busy_counts_as_starved(world):
    put_load(world, at=0.0)
    path = paths.observed("h1")
    observed = world.channel.read(path, Observed).value
    for busy_since, starved in ((7.0, True), (None, False)):
        world.channel.put(path, observed.model_copy(update={"busy_since": busy_since}))
        turn(world, Scaling(world.channel, Clock()))
        memory = world.channel.read(paths.SCALER_MEMORY, Memory).value.tiers["counts"]
        assert (memory.starvation is not None) is starved
        world.now += 3600.0


def test_busy_hosts_do_not_limit_a_tier_whose_workers_wait(world):
    put_load(world, at=0.0)
    path = paths.observed("h1")
    observed = world.channel.read(path, Observed).value
    for modest_since, starved in ((None, True), (7.0, False)):
        units = tuple(unit.model_copy(update={"modest_since": modest_since}) for unit in observed.units)
        world.channel.put(path, observed.model_copy(update={"busy_since": 7.0, "units": units}))
        world.channel.put(paths.SCALER_MEMORY, Memory())
        turn(world, Scaling(world.channel, Clock()))
        memory = world.channel.read(paths.SCALER_MEMORY, Memory).value.tiers["counts"]
        assert (memory.starvation is not None) is starved


def test_a_tier_whose_workers_wait_is_not_starved_any_more_at_once(world):
    """After a growth on busy hosts, its new workers are not known to be modest for a minute."""
    put_load(world, at=0.0)
    path = paths.observed("h1")
    observed = world.channel.read(path, Observed).value
    starved = Memory(tiers={"counts": TierMemory(starvation=Starvation(seen=world.wall(), tried=3))})
    for modest_since, forgotten in ((None, False), (7.0, True)):
        units = tuple(unit.model_copy(update={"modest_since": modest_since}) for unit in observed.units)
        world.channel.put(path, observed.model_copy(update={"units": units}))
        world.channel.put(paths.SCALER_MEMORY, starved)
        turn(world, Scaling(world.channel, Clock()))
        memory = world.channel.read(paths.SCALER_MEMORY, Memory).value.tiers["counts"]
        assert (memory.starvation is None) is forgotten


def test_between_two_plans_nothing_is_read_or_written(world):
    clock = Clock()
    scaling = Scaling(world.channel, clock)
    put_load(world, at=0.0)
    turn(world, scaling)
    version = world.channel.version(paths.SCALER)
    clock.now += PLAN_SECONDS - 1
    turn(world, scaling)
    assert world.channel.version(paths.SCALER) == version


def test_an_old_load_is_not_used(world):
    clock = Clock()
    scaling = Scaling(world.channel, clock)
    put_load(world, at=0.0)
    first = turn(world, scaling).value.decisions["counts"].reason
    clock.now += FRESH_SECONDS + 1
    later = turn(world, scaling).value.decisions["counts"].reason
    assert first != later
    assert "figures" in later


def test_the_mode_that_a_person_set_stands_above_the_site_file(world):
    clock = Clock()
    scaling = Scaling(world.channel, clock)
    put_load(world, at=0.0)
    assert turn(world, scaling).value.decisions["counts"].mode is Mode.ADVISE
    modes = ScalerModes(modes={"counts": Mode.OFF}, by="cli:anna")
    world.channel.put(paths.SCALER_MODES, modes)
    clock.now += PLAN_SECONDS
    assert turn(world, scaling).value.decisions["counts"].mode is Mode.OFF


def test_a_new_leader_goes_on_with_the_memory_of_the_former_one(world):
    clock = Clock()
    put_load(world, at=0.0)
    turn(world, Scaling(world.channel, clock))
    before = world.channel.read(paths.SCALER_MEMORY, Memory).value
    clock.now += LOAD_SECONDS
    put_load(world, at=1.0)
    world.now += PLAN_SECONDS
    turn(world, Scaling(world.channel, clock))
    after = world.channel.read(paths.SCALER_MEMORY, Memory).value
    assert before.tiers["counts"].readings != after.tiers["counts"].readings
    assert after.tiers["counts"].week is not None
