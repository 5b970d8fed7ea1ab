"""A burst is ready when a worker on each of its hosts has processed records."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simulation.world import RULES, World, host, tier

from sluice_ops.controller.policies.burst_readiness import READY_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Step
from sluice_ops.model.share import Layers, Share
from sluice_ops.model.tier import Mode

IN_PLACE, BY_HANDOVER = {}, {"state": True}
WAYS = pytest.mark.parametrize("way", [IN_PLACE, BY_HANDOVER], ids=["in place", "by handover"])


def world_of(way=None, instances=1):
    """Return a tier at home beside instances with room for one worker and a driver each."""
    return deepcopy(settled(instances, **(way or IN_PLACE)))


@cache
def settled(instances, **way):
    return World(
        hosts=(host("h1", cpu=8), *(host(f"e{number}", zone="ec2", cpu=1) for number in range(instances))),
        tiers=[tier("counts", Mode.BATCH, 0).model_copy(update=way)],
        rules=replace(
            RULES, shares={"counts": Share(minimum=1, target=2, maximum=8)}, shifts={}, partitions=8
        ),
    ).bring_up()


def process(world, records):
    """Set the records that each worker's first task reads from now on."""
    world.logs["counts"].first_records = records


def burst(world, k=1):
    return world.begin("b1", kind="burst", tier="counts", k=k)


def cut_of(runbook):
    return runbook.results[Step.CUT].sentence


def is_undone(world):
    read = world.channel.read(paths.LAYERS, Layers)
    entry = None if read is None else read.value.present_burst("counts")
    state = world.channel.read(paths.change("b1"), ChangeRecord).value.state
    return (
        state is ChangeState.ABORTED
        and world.placement("counts").slots == ("h1", "h1")
        and (entry is None or not entry.extra)
        and not world.agents["e0"].units
    )


def done_burst(way, records):
    """Return the world after a burst whose workers have processed so many records, and its cut."""
    world = world_of(way)
    process(world, records)
    runbook = burst(world)
    world.settle()
    assert runbook.ok, runbook.results
    return world, cut_of(runbook)


@WAYS
def test_a_burst_tells_which_worker_has_processed_records(way):
    world, sentence = done_burst(way, 1240)
    number = world.placement("counts").slots.index("e0")
    worker = f"slot-counts-{world.owner('counts').owner}-{number}"
    assert f"e0 is ready: {worker} has processed 1,240 records" in sentence


@WAYS
def test_a_burst_without_records_says_so(way):
    _, sentence = done_burst(way, 0)
    assert "has run an empty task, because no records flowed" in sentence


@WAYS
def test_a_burst_is_not_ready_before_its_worker_has_processed_records(way):
    world = world_of(way)
    process(world, None)
    runbook = burst(world)
    world.until(lambda: runbook.current is Step.CUT)
    for _ in range(20):
        world.tick()
    assert runbook.current is Step.CUT
    assert (world.owner("counts").owner, world.owner("counts").phase) in {(1, "steady"), (1, "prepare")}
    process(world, 5)
    world.settle()
    assert runbook.ok, runbook.results


@WAYS
def test_a_burst_that_processes_no_record_is_undone(way):
    world = world_of(way)
    process(world, None)
    runbook = burst(world)
    world.until(lambda: Step.CUT in runbook.results)
    world.settle()
    assert not runbook.ok
    assert cut_of(runbook).startswith(
        f"the workers of counts on e0 can take tasks, but processed no record in {READY_SECONDS:.0f} s: "
        "they do not reach Kafka, or Spark gave them no partition; the burst is undone, and counts goes on "
        "without it; read the log: `sluice logs e0/slot-counts-"
    )
    assert cut_of(runbook).endswith("then try again: `sluice burst counts 1`")
    assert is_undone(world)
    world.check_settled()


def test_each_host_of_a_burst_needs_a_worker_that_has_processed_records():
    world = world_of(instances=2)
    process(world, None)
    runbook = burst(world, k=2)
    world.until(lambda: len(world.placement("counts").slots) == 4)
    driver = world.driver("counts")
    driver.first_tasks = {**driver.first_tasks, "slot-counts-1-2": 7}
    for _ in range(10):
        world.tick()
    assert runbook.current is Step.CUT
    driver.first_tasks = {**driver.first_tasks, "slot-counts-1-3": 7}
    driver._report()
    world.settle()
    assert runbook.ok, runbook.results
    assert "e0 is ready" in cut_of(runbook)
    assert "e1 is ready" in cut_of(runbook)


def test_a_driver_of_an_older_version_proves_a_burst_by_its_executors():
    world = world_of()
    driver = world.driver("counts")
    driver.first_tasks = None
    driver._report()
    runbook = burst(world)
    world.settle()
    assert runbook.ok, runbook.results
    assert cut_of(runbook) == "counts goes on with 3 workers"


def test_more_workers_at_home_do_not_wait_for_records():
    world = world_of()
    process(world, None)
    scale = world.begin("s1", kind="scale", tier="counts", k=3)
    world.settle()
    assert scale.ok, scale.results


@given(
    way=st.sampled_from([IN_PLACE, BY_HANDOVER]),
    silent=st.integers(0, 90),
    records=st.integers(0, 3),
    killed=st.none() | st.integers(0, 90),
)
@example(way=BY_HANDOVER, silent=65, records=0, killed=64)
def test_a_burst_succeeds_with_a_proof_or_leaves_nothing_behind(way, silent, records, killed):
    world = world_of(way)
    process(world, None)
    runbook = burst(world)
    for number in range(silent):
        if number == killed:
            world.kill_driver("counts")
        world.tick()
    process(world, records)
    world.settle()
    world.check_settled()
    if not runbook.ok:
        kept = "keeps units on e0 without a burst: take them off with `sluice leave --tier counts`"
        took_over = killed is not None and kept in runbook.results[Step.ABORT].sentence
        assert is_undone(world) or took_over
    elif "is ready: " not in cut_of(runbook):
        assert killed is not None
        assert "e0 has processed no record yet" in cut_of(runbook)
