"""Pruning: which old records are deleted, and which never are."""

import pytest
from simulation.world import World

from sluice_ops.channel import ConflictError, Guard
from sluice_ops.controller.prune import KEEP_CHANGES, KEEP_INCARNATIONS, KEEP_OPERATIONS, prune
from sluice_ops.model import paths
from sluice_ops.model.change import EpochRecord, Result, Step
from sluice_ops.model.incarnation import IncarnationReport
from sluice_ops.model.routing_epochs import begun
from sluice_ops.snapshot.view import read_view


def lead(world: World, epoch: int = 1) -> Guard:
    """Let a controller lead; return the guard of its writes."""
    world.channel.put(paths.EPOCH, EpochRecord(epoch=epoch, leader=f"c{epoch}"))
    return Guard(paths.EPOCH, world.channel.version(paths.EPOCH))


def test_a_deposed_leader_deletes_nothing():
    world = World()
    world.bring_up()
    for number in range(KEEP_CHANGES + 4):
        world.begin(f"c{number:02}", kind=("cordon", "return")[number % 2], host="h3")
        world.until(lambda: world.runbooks[-1].ended)
    before, view = dict(world.channel.nodes), read_view(world.channel)
    deposed = lead(world)
    lead(world, epoch=2)
    with pytest.raises(ConflictError):
        prune(world.channel, view, deposed)
    assert {path for path in world.channel.nodes if path != paths.EPOCH} == before.keys() - {paths.EPOCH}
    prune(world.channel, view, lead(world, epoch=3))
    assert len(world.channel.children("/changes")) == KEEP_CHANGES


def test_the_last_incarnations_stay_and_numbers_are_never_used_again():
    world = World()
    world.bring_up()
    for number in range(24):
        world.begin(f"m{number}", kind="migrate", tier="counts", to=("h1", "h2")[number % 2])
        world.until(lambda: world.runbooks[-1].ended)
    newest = world.owner("counts").owner
    assert len(world.channel.children("/operations")) > KEEP_OPERATIONS
    prune(world.channel, read_view(world.channel), lead(world))
    remaining = sorted(int(name) for name in world.channel.children(paths.incarnations("counts")))
    assert remaining == list(range(newest - KEEP_INCARNATIONS + 1, newest + 1))
    assert len(world.channel.children("/operations")) == KEEP_OPERATIONS
    world.kill_driver("counts")
    world.settle()
    assert world.owner("counts").owner == newest + 1
    world.check_settled()


def test_results_of_an_active_change_stay():
    world = World()
    world.bring_up()
    world.begin("d1", kind="drain", host="h1")
    world.until(lambda: Step.CORDON in world.runbooks[-1].results)
    result = world.channel.read(paths.result("d1.preflight"), Result).value
    for number in range(KEEP_OPERATIONS + 5):
        operation = f"later{number}.preflight"
        world.channel.put(paths.result(operation), result)
    prune(world.channel, read_view(world.channel), lead(world))
    left = world.channel.children("/operations")
    assert {"d1.preflight", "d1.cordon"} <= set(left)
    assert len([name for name in left if name.startswith("later")]) == KEEP_OPERATIONS


def test_the_last_changes_stay_although_the_clock_was_set_back():
    world = World()
    world.bring_up()
    for number in range(KEEP_CHANGES + 4):
        world.ahead = 3600.123 if number < KEEP_CHANGES else 0.0
        world.begin(f"c{number:02}", kind=("cordon", "return")[number % 2], host="h3")
        world.until(lambda: world.runbooks[-1].ended)
    last = world.runbooks[-1].change
    prune(world.channel, read_view(world.channel), lead(world))
    assert world.channel.children("/changes") == [f"c{number:02}" for number in range(4, KEEP_CHANGES + 4)]
    posted = world.channel.children("/operations")
    assert len(posted) == KEEP_OPERATIONS
    assert [name for name in posted if name.startswith(f"{last}.")] == [
        f"{last}.health",
        f"{last}.preflight",
        f"{last}.return",
    ]


def test_the_incarnation_with_the_newest_routing_epochs_stays():
    world = World()
    world.bring_up()
    early = world.owner("entry").owner
    report = world.channel.read(paths.report("entry", early), IncarnationReport).value
    routing = begun({"hits": 4}).widened({"hits": 5}, {"raw/0": 7})
    for number in range(KEEP_INCARNATIONS + 3):
        world.begin(f"m{number}", kind="migrate", tier="entry", to=("h1", "h2")[number % 2])
        world.until(lambda: world.runbooks[-1].ended)
    world.channel.put(paths.report("entry", early), report.model_copy(update={"ways": routing}))
    prune(world.channel, read_view(world.channel), lead(world))
    remaining = {int(name) for name in world.channel.children(paths.incarnations("entry"))}
    assert len(remaining) == KEEP_INCARNATIONS + 1
    assert early in remaining
