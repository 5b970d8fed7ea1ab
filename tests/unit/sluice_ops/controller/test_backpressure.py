"""Which tier is throttled for which culprit: from declarations, and with simulated drivers."""

from copy import deepcopy
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.world import World

from sluice_ops.controller.policies.backpressure import lagging_after, upstream
from sluice_ops.model import paths
from sluice_ops.model.backpressure import Holds, Lag, Pressure
from sluice_ops.model.incarnation import IncarnationReport, State
from sluice_ops.model.status import ControllerStatus, TierState
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.planning.placement.cluster import Rules


def declared(name, inputs, outputs, distance, mode=Mode.BATCH):
    return TierSpec(
        name=name,
        kind=Kind.PROCESSING,
        mode=mode,
        delivery=Delivery.AT_LEAST_ONCE,
        inputs=inputs,
        outputs=outputs,
        distance=distance,
    )


HITS = {
    spec.name: spec
    for spec in (
        declared("entry", ("raw",), ("hits",), 2, Mode.REALTIME),
        declared("enrich", ("hits",), ("enriched",), 1, Mode.REALTIME),
        declared("counts", ("enriched",), (), 0),
        declared("outbound", ("enriched",), (), 0),
    )
}
LOOP = {
    spec.name: spec
    for spec in (
        declared("first", ("raw", "back"), ("forth",), 1),
        declared("second", ("raw-too", "forth"), ("back",), 0),
    )
}


def pressure(stream, since=1.0, records=200_000, wanted=300):
    return Pressure(
        stream=stream,
        lag=Lag(records=records, seconds=150),
        since=since,
        rate_in=800,
        rate_done=400,
        rate_wanted=wanted,
    )


@st.composite
def pipelines(draw):
    """Draw tiers in order, each reading streams of other tiers or from outside; some streams lead
    back.
    """
    names = [f"t{number}" for number in range(draw(st.integers(1, 6)))]
    specs = {}
    for number, name in enumerate(names):
        others = [f"s-{other}" for other in names if other != name]
        inputs = draw(
            st.lists(st.sampled_from([*others, "raw", "raw-too"]), min_size=1, max_size=3, unique=True)
        )
        spec = declared(name, tuple(inputs), (f"s-{name}",), len(names) - number)
        specs[name] = spec.model_copy(update={"holds": draw(st.booleans())})
    pressing = {
        name: pressure(draw(st.sampled_from(specs[name].inputs)))
        for name in draw(st.sets(st.sampled_from(names)))
    }
    return specs, pressing


@given(pipelines())
def test_only_gates_upstream_of_a_culprit_hold_unless_they_lag_themselves(
    drawn,
):
    specs, all_pressing = drawn
    written = {stream for spec in specs.values() for stream in spec.outputs}
    held = lagging_after(specs, all_pressing)
    pressing = {name: pressure for name, pressure in all_pressing.items() if specs[name].holds}
    for name, culprits in held.items():
        assert set(culprits) == {other for other in pressing if name in upstream(specs, other)} - {name}
        distances = [specs[culprit].distance for culprit in culprits]
        assert distances == sorted(distances), "the tier nearest the end is the culprit"
        assert set(specs[name].inputs) - written, "a gate reads a stream from outside"
    for culprit, tier_pressure in pressing.items():
        if tier_pressure.stream in written:
            assert culprit not in held, "no tier waits for a tier that is throttled itself"
    free = {name for name in specs if set(specs[name].inputs) - written} - {
        name for name in pressing if pressing[name].stream in written
    }
    assert set(held) == {
        name for name in free if any(name in upstream(specs, culprit) for culprit in pressing)
    }


def test_a_tier_that_may_lag_throttles_no_gate():
    specs = HITS | {"outbound": HITS["outbound"].model_copy(update={"holds": False})}
    pressing = {"outbound": pressure("enriched")}
    assert lagging_after(specs, pressing) == {}
    assert lagging_after(specs, pressing | {"counts": pressure("enriched")}) == {"entry": ("counts",)}


def test_the_culprit_is_the_lagging_tier_nearest_the_end():
    pressing = {"enrich": pressure("hits"), "outbound": pressure("enriched"), "entry": pressure("raw")}
    assert lagging_after(HITS, pressing) == {"entry": ("outbound", "enrich")}
    del pressing["outbound"]
    assert lagging_after(HITS, pressing) == {"entry": ("enrich",)}
    del pressing["enrich"]
    assert lagging_after(HITS, pressing) == {}


def test_two_tiers_that_feed_each_other_do_not_wait_for_each_other():
    assert lagging_after(LOOP, {"first": pressure("back"), "second": pressure("forth")}) == {}
    assert lagging_after(LOOP, {"second": pressure("forth")}) == {"first": ("second",)}


# -- with simulated drivers


@cache
def settled():
    return World(tiers=tuple(HITS.values()), rules=Rules(partitions=1)).bring_up()


@pytest.fixture
def world():
    return deepcopy(settled())


def report_pressure(world, tier, tier_pressure, **more):
    """Let a tier's driver report its lag."""
    path = paths.report(tier, world.owner(tier).owner)
    report = world.channel.read(path, IncarnationReport).value
    world.channel.put(path, report.model_copy(update={"measured": True, "pressure": tier_pressure, **more}))


def report_taken(world, rate):
    """Let the entry's driver report the rate at which it takes records while it is metered."""
    path = paths.report("entry", world.owner("entry").owner)
    report = world.channel.read(path, IncarnationReport).value
    world.channel.put(path, report.model_copy(update={"rate_taken": rate}))


def held(world):
    return {name: record.held_for for name in world.specs if (record := world.owner(name)).held_for}


def status(world):
    """Write the status as a leader does, for the next pass to read."""
    world.channel.put(
        paths.CONTROLLER_STATUS,
        ControllerStatus(leader="c1", epoch=1, at=world.now, sentence="", tiers=world.statuses),
    )


def test_entry_is_held_while_a_later_tier_lags_and_then_released(world):
    report_pressure(world, "counts", pressure("enriched"))
    world.controller_pass()
    assert held(world) == {"entry": "counts"}
    assert (
        "entry is throttled: counts is 200000 records, 150 s behind in enriched; "
        "800/s came in and 400/s were done" in world.sentences[-1]
    )
    report_pressure(world, "counts", None)
    world.controller_pass()
    assert held(world) == {}
    (hold,) = world.channel.read(paths.HOLDS, Holds).value.last
    assert (hold.tier, hold.culprit, hold.begun, hold.ended) == ("entry", "counts", world.now, world.now)
    assert world.owner("entry").admitted == 0


def test_the_entry_takes_records_at_the_rate_that_the_culprit_wants(world):
    report_pressure(world, "counts", pressure("enriched"))
    world.controller_pass()
    assert world.owner("entry").admitted == 30, "the rate of the entry is not known yet"
    report_taken(world, 1600.0)
    world.controller_pass()
    assert world.owner("entry").admitted == 600, "two raw records came for each record of counts"
    epoch = world.owner("entry").epoch
    report_pressure(world, "counts", pressure("enriched", wanted=310))
    world.controller_pass()
    assert world.owner("entry").epoch == epoch, "a small difference is not written"
    report_pressure(world, "enrich", pressure("hits", wanted=100))
    world.controller_pass()
    assert (held(world), world.owner("entry").admitted) == ({"entry": "counts"}, 200)
    assert len(world.channel.read(paths.HOLDS, Holds).value.last) == 1, "another rate is no other hold"


def test_an_entry_that_is_too_slow_is_named_and_nothing_is_held(world):
    report_pressure(world, "entry", pressure("raw"))
    world.controller_pass()
    assert world.statuses["entry"].pressure.stream == "raw"
    assert held(world) == {}


def test_a_dead_culprit_stays_a_culprit_until_its_next_incarnation_reports(world):
    report_pressure(world, "counts", pressure("enriched"))
    world.controller_pass()
    status(world)
    owner = world.owner("counts").owner
    world.kill_driver("counts")
    while world.owner("counts").owner == owner or world.state("counts") is not State.RUNNING:
        world.tick()
        status(world)
        assert held(world) == {"entry": "counts"}
    assert world.owner("entry").admitted == 0, "a tier that does not run wants no records"
    world.controller_pass()
    assert held(world) == {"entry": "counts"}, "the next incarnation has not measured its lag yet"
    report_pressure(world, "counts", None)
    world.controller_pass()
    assert held(world) == {}


def test_a_tier_down_for_longer_than_its_high_watermark_is_a_culprit(world):
    fails = {State.STARTING, State.RUNNING}
    driver = world.driver("counts")
    driver.broken = fails
    begun = world.now
    while world.now < begun + HITS["counts"].patience + 10:
        world.tick()
        status(world)
        if (driver := world.driver("counts")) is not None:
            driver.broken = fails
    assert held(world) == {"entry": "counts"}
    assert world.statuses["counts"].pressure.sentence == "does not run, and takes nothing from enriched"
    world.channel.put(paths.wanted("counts"), world.wanted("counts").model_copy(update={"running": False}))
    world.until(lambda: not held(world))
    assert world.statuses["counts"].state in {TierState.STOPPING, TierState.STOPPED}


def test_a_paused_tier_throttles_no_other_tier(world):
    report_pressure(world, "counts", pressure("enriched"))
    world.controller_pass()
    assert held(world)
    world.begin("p1", kind="pause")
    world.settle()
    assert held(world) == {}
