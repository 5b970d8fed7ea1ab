"""The trail of a simulated pipeline: each change leaves its author and its result, once."""

from dataclasses import replace

import pytest
from simulation.damaged_channel import DamagedChannel
from simulation.world import World

from sluice_ops.channel import trail_queue
from sluice_ops.model import paths
from sluice_ops.model.change import CONTROLLER, ChangeSpec, Operation, Step
from sluice_ops.model.repair import Repair
from sluice_ops.model.scaler import ScalerSettings
from sluice_ops.model.trail import Outcome, SiteSaid, layer_of, what_of
from sluice_ops.operations import requests
from sluice_ops.planning.changes.kinds import KINDS


def settled(channel=None):
    return World(channel=channel).bring_up()


def entries(world, **wanted):
    queued = sorted(trail_queue.queued(world.channel), key=lambda item: item.entry.at)
    return [
        item.entry
        for item in queued
        if all(getattr(item.entry, key) == value for key, value in wanted.items())
    ]


def post(world, change, step, spec, **more):
    identity = requests.operation_id(change, step)
    operation = Operation(
        id=identity, change=change, step=step, spec=spec, by="cli:otto", posted_at=world.now, **more
    )
    world.channel.create(paths.operation(identity), operation)


def test_a_change_is_in_the_trail_at_begin_and_end_with_author_and_layer():
    world = settled()
    assert entries(world) == [], "automatic starts and repairs are no requested changes"
    world.begin("s1", kind="scale", tier="enrich", k=3)
    world.settle()
    assert [entry.outcome for entry in entries(world, change="s1")] == [Outcome.BEGUN, Outcome.DONE]
    assert {(entry.by, entry.layer, entry.what) for entry in entries(world)} == {
        ("test", "person", "scale enrich k=3")
    }
    world.begin("s2", kind="scale", tier="enrich", k=2, layer="autoscaler")
    world.settle()
    assert {entry.layer for entry in entries(world, change="s2")} == {"autoscaler"}
    world.begin("d1", kind="drain", host="h1")
    world.settle()
    assert [(entry.layer, entry.what) for entry in entries(world, change="d1", outcome=Outcome.DONE)] == [
        ("maintenance", "drain h1")
    ]


def test_a_refused_change_is_in_the_trail_and_a_dry_run_is_not():
    world = settled()
    refused = world.begin("s1", kind="scale", tier="nobody", k=3)
    world.settle()
    (entry,) = entries(world)
    assert (entry.outcome, entry.sentence) == (Outcome.REFUSED, refused.results[Step.PREFLIGHT].sentence)
    post(world, "s2", Step.PREFLIGHT, refused.spec.model_copy(update={"tier": "enrich"}), dry_run=True)
    world.settle()
    assert entries(world) == [entry]


def test_the_trail_tells_the_author_of_an_abort_from_that_of_the_change():
    world = settled()
    begun = world.begin("m1", kind="migrate", tier="enrich", to="h2")
    for _ in range(3):
        world.tick()
    assert not begun.ended
    post(world, "m1", Step.ABORT, begun.spec)
    world.settle()
    assert {(entry.outcome, entry.by) for entry in entries(world, change="m1")} == {
        (Outcome.BEGUN, "test"),
        (Outcome.ABORTED, "test"),
        (Outcome.ABORT, "cli:otto"),
    }


def test_a_site_file_change_is_in_the_trail_once_whoever_leads():
    world = settled()
    share = world.rules.shares["enrich"]
    world.rules = replace(
        world.rules,
        shares={**world.rules.shares, "enrich": share.model_copy(update={"maximum": 12})},
        locality={"counts": "zone:onprem"},
        repair=Repair(after=600.0),
        scaler=ScalerSettings.model_validate({"tiers": {"enrich": {"mode": "act"}}}),
    )
    world.settle()
    (entry,) = entries(world)
    assert (entry.by, entry.layer, entry.outcome) == ("site file", "base", Outcome.DONE)
    of_it = f"minimum={share.minimum} target={share.target}"
    assert entry.what == (
        f"shares.enrich: {of_it} maximum={share.maximum} → {of_it} maximum=12; "
        "locality.counts: nothing → zone:onprem; scaler.tiers.enrich.mode: nothing → act; "
        "repair: nothing → after=600 changes_per_hour=6"
    )
    world.rules = replace(world.rules, locality={})
    world.settle()
    assert [entry.what for entry in entries(world)][1:] == ["locality.counts: zone:onprem → nothing"]


def test_an_unreadable_note_of_the_site_file_is_written_again():
    world = settled(DamagedChannel())
    before = world.channel.read(paths.SITE, SiteSaid).value
    world.channel.damage(paths.SITE)
    world.settle()
    assert paths.SITE not in world.channel.damaged
    assert world.channel.read(paths.SITE, SiteSaid).value == before
    assert entries(world) == []


def test_starts_and_pauses_of_tiers_are_in_the_trail_once():
    world = settled()
    for _ in range(2):
        requests.want(world.channel, "enrich", by="cli:anna", running=False)
    requests.want(world.channel, "enrich", by="cli:otto", paused=True)
    trail = sorted((entry.by, entry.what, entry.layer) for entry in entries(world))
    assert trail == [("cli:anna", "stop enrich", "person"), ("cli:otto", "pause enrich", "person")]


def test_every_kind_of_change_except_the_controllers_has_a_layer():
    for kind in KINDS.values():
        assert layer_of(kind.layer, "cli:anna") is not None
        assert layer_of(kind.layer, CONTROLLER) is None
    assert layer_of(KINDS["shift"].layer, "airflow:day_shift/1") == "schedule"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            ChangeSpec(kind="pause", workers=("slot-counts-1-0", "slot-counts-1-1")),
            "pause slot-counts-1-0 slot-counts-1-1",
        ),
        (
            ChangeSpec(kind="repartition", tier="counts", partitions=8),
            "repartition counts partitions=8",
        ),
        (ChangeSpec(kind="drain", host="h1"), "drain h1"),
        (
            ChangeSpec(kind="scale", tier="enrich", k=3, until=1795845600.0),
            "scale enrich k=3 until=2026-11-28T06:00Z",
        ),
    ],
)
def test_an_entry_describes_the_whole_request(spec, text):
    assert what_of(spec) == text
