"""Beside a newer version: unknown fields are kept, unreadable nodes stay unchanged, and unknown
operations are refused.
"""

import json
from dataclasses import replace

import pytest
from simulation.world import settled

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Result, Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Share

ADDED = "of_next"


@pytest.fixture
def world():
    return settled()


def rewrite(world, path, change):
    """Change the content of a node, as JSON."""
    data, version, _ = world.channel.nodes[path]
    world.channel.nodes[path] = (json.dumps(change(json.loads(data))), version + 1, None)


def with_added_field(data):
    """Return the data with an added field in each record."""
    if isinstance(data, list):
        return [with_added_field(item) for item in data]
    return (
        {**{name: with_added_field(item) for name, item in data.items()}, ADDED: 1}
        if isinstance(data, dict)
        else data
    )


def test_fields_of_a_newer_version_are_kept(world):
    host = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=host)
    world.until(lambda: world.next_driver("counts") is not None or world.next_driver("entry") is not None)
    records = [
        path
        for path in world.channel.nodes
        if path.startswith(("/tiers/", "/assignments/", "/config/wanted/", "/changes/d1"))
    ]
    checked_paths = [path for path in records if not path.endswith("/report")]
    versions = {path: world.channel.nodes[path][1] + 1 for path in checked_paths}
    for path in checked_paths:
        rewrite(world, path, lambda data: {**data, ADDED: 1})
    for name in world.agents:
        rewrite(
            world, paths.assignment(name), lambda data: {**data, "units": with_added_field(data["units"])}
        )
    before = {unit.id for name in world.agents for unit in world.assigned(name)}
    world.settle()
    assert runbook.ok, runbook.results
    changed = [path for path in checked_paths if world.channel.nodes[path][1] > versions[path]]
    assert {path.split("/")[1] for path in changed} == {"tiers", "assignments", "changes"}
    assert all(json.loads(world.channel.nodes[path][0]).get(ADDED) == 1 for path in checked_paths)
    for name in world.agents:
        for unit in json.loads(world.channel.nodes[paths.assignment(name)][0])["units"]:
            assert (unit.get(ADDED), unit["quantum"].get(ADDED)) == (
                (1, 1) if unit["id"] in before else (None, None)
            )


@pytest.mark.parametrize(
    "path",
    [paths.tier("counts"), paths.owner("counts"), paths.wanted("counts"), paths.incarnation("counts", 1)],
)
def test_an_unreadable_tier_continues_unchanged(world, path):
    driver = world.driver("counts")
    good, version, _ = world.channel.nodes[path]
    world.channel.nodes[path] = (
        '{"mode": "of the next version", "phase": "x", "running": "perhaps"}',
        version + 1,
        None,
    )
    units = {
        name: [unit for unit in world.assigned(name) if unit.tenant == "counts"] for name in world.agents
    }
    world.kill_driver("enrich")
    refused = world.begin("d1", kind="drain", host="h1")
    world.until(lambda: refused.ended)
    assert "counts cannot be read" in refused.results[Step.PREFLIGHT].sentence
    world.until(lambda: world.state("enrich") is State.RUNNING)
    for _ in range(30):
        world.tick()
    assert (
        "counts cannot be read: running units continue, and nothing is decided for them; " + path
        in world.sentences[-1]
    )
    assert {
        name: [unit for unit in world.assigned(name) if unit.tenant == "counts"] for name in world.agents
    } == units
    assert (driver.state, world.driver("counts", driver.number)) == (State.RUNNING, driver)
    world.channel.nodes[path] = (good, version + 2, None)
    again = world.begin("d2", kind="drain", host="h1")
    world.settle()
    assert again.ok, again.results
    assert world.host_state("h1") is HostState.DRAINED
    world.check_settled()


def test_a_tier_that_becomes_unreadable_ends_its_change(world):
    runbook = world.begin("d1", kind="drain", host=world.placement("counts").driver)
    world.until(lambda: world.next_driver("counts") is not None)
    good, version, _ = world.channel.nodes[paths.owner("counts")]
    world.channel.nodes[paths.owner("counts")] = ('{"phase": "of the next version"}', version + 1, None)
    world.until(lambda: runbook.ended)
    assert "counts can no longer be read" in " ".join(result.sentence for result in runbook.results.values())
    world.channel.nodes[paths.owner("counts")] = (good, version + 2, None)
    world.settle()
    world.check_settled()


def test_a_repartition_of_a_tier_that_becomes_unreadable_is_aborted(world):
    runbook = world.begin("s1", kind="repartition", tier="counts", partitions=6)
    world.until(lambda: world.next_driver("counts") is not None)
    good, version, _ = world.channel.nodes[paths.owner("counts")]
    world.channel.nodes[paths.owner("counts")] = ('{"phase": "of the next version"}', version + 1, None)
    world.until(lambda: runbook.ended)
    assert runbook.results[Step.ABORT].ok
    world.channel.nodes[paths.owner("counts")] = (good, version + 2, None)
    world.settle()
    world.check_settled()


def test_a_pause_of_all_tiers_does_not_skip_an_unreadable_one(world):
    pause = world.begin("p1", kind="pause")
    world.until(lambda: Step.PREFLIGHT in pause.results)
    good, version, _ = world.channel.nodes[paths.owner("counts")]
    world.channel.nodes[paths.owner("counts")] = ('{"phase": "of the next version"}', version + 1, None)
    world.until(lambda: pause.ended)
    assert "counts can no longer be read" in pause.results[Step.PAUSE].sentence
    world.channel.nodes[paths.owner("counts")] = (good, version + 2, None)
    world.settle()
    world.check_settled()


def test_with_an_unreadable_tier_the_controller_begins_no_change_itself(world):
    scaled = world.begin("s1", kind="scale", tier="enrich", k=3, until=world.wall() + 300)
    world.settle()
    assert scaled.ok, scaled.results
    good, version, _ = world.channel.nodes[paths.owner("counts")]
    world.channel.nodes[paths.owner("counts")] = ('{"phase": "of the next version"}', version + 1, None)
    world.now += 400
    for _ in range(30):
        world.tick()
    assert world.channel.children("/changes") == ["s1"]
    world.channel.nodes[paths.owner("counts")] = (good, version + 2, None)
    world.until(lambda: len(world.placement("enrich").slots) == 2)
    world.settle()
    world.check_settled()


def test_a_tier_kept_apart_from_an_unreadable_tier_is_not_placed_there(world):
    where = {host for host in world.agents if any(unit.tenant == "counts" for unit in world.assigned(host))}
    world.rules = replace(world.rules, separate=(frozenset({"counts", "enrich"}),))
    good, version, _ = world.channel.nodes[paths.owner("counts")]
    world.channel.nodes[paths.owner("counts")] = ('{"phase": "of the next version"}', version + 1, None)
    world.kill_driver("enrich")
    world.until(lambda: world.owner("enrich").owner > 1 and world.state("enrich") is State.RUNNING)
    assert not where & {*world.placement("enrich").slots, world.placement("enrich").driver}
    world.channel.nodes[paths.owner("counts")] = (good, version + 2, None)
    world.settle()


def test_an_operation_of_a_newer_version_is_refused_by_its_name(world):
    spec = {"kind": "survey", "depth": 3}
    posted = {
        "id": "s1.survey",
        "change": "s1",
        "step": "survey",
        "spec": spec,
        "by": "test",
        "posted_at": world.wall(),
    }
    world.channel.put(paths.operation("s1.survey"), Result(ok=True, sentence="", finished_at=0))
    rewrite(world, paths.operation("s1.survey"), lambda _: posted)
    world.tick()
    result = world.channel.read(paths.result("s1.survey"), Result).value
    assert not result.ok
    assert "operation s1.survey was not done: the leading controller cannot read it" in result.sentence
    drain = world.begin("d1", kind="drain", host="h1")
    world.settle()
    assert drain.ok, drain.results


def garble(world, path):
    _, version, _ = world.channel.nodes[path]
    world.channel.nodes[path] = (
        '{"phase": "of the next version", "running": "perhaps", "mode": "x"}',
        version + 1,
        None,
    )


@pytest.mark.parametrize(
    "path",
    [paths.tier("counts"), paths.owner("counts"), paths.wanted("counts"), paths.incarnation("counts", 1)],
)
def test_changes_that_do_not_touch_an_unreadable_tier_succeed(world, path):
    garble(world, path)
    units = {
        name: [unit for unit in world.assigned(name) if unit.tenant == "counts"] for name in world.agents
    }
    for number, (kind, fields) in enumerate(
        [
            ("cordon", {"host": "h1"}),
            ("return", {"host": "h1"}),
            ("pause", {"tier": "enrich"}),
            ("resume", {"tier": "enrich"}),
        ]
    ):
        runbook = world.begin(f"c{number}", kind=kind, **fields)
        world.until(lambda runbook=runbook: runbook.ended)
        assert runbook.ok, runbook.results
    assert (world.host_state("h1"), world.state("enrich")) == (HostState.UP, State.RUNNING)
    assert {
        name: [unit for unit in world.assigned(name) if unit.tenant == "counts"] for name in world.agents
    } == units


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("pause", {"tier": "counts"}, "this pause concerns counts: "),
        ("resume", {}, "this resume concerns counts: "),
        ("pause", {"workers": ("slot-counts-1-0",)}, "this pause concerns counts: "),
        (
            "migrate",
            {"tier": "enrich", "to": "h3"},
            "a migrate needs room, and the room of counts is unknown: ",
        ),
    ],
)
def test_changes_that_touch_an_unreadable_tier_are_refused_by_its_name(world, kind, fields, reason):
    garble(world, paths.owner("counts"))
    runbook = world.begin("c1", kind=kind, **fields)
    world.until(lambda: runbook.ended)
    sentence = runbook.results[Step.PREFLIGHT].sentence
    assert sentence.startswith(f"{reason}counts cannot be read: running units continue")
    assert paths.owner("counts") in sentence


def test_a_lost_host_with_an_unreadable_tier_is_written_off_for_the_others(world):
    host = world.placement("counts").slots[0]
    garble(world, paths.owner("counts"))
    units_before = [unit for unit in world.assigned(host) if unit.tenant == "counts"]
    world.agents[host].die()
    for _ in range(20):
        world.tick()
    runbook = world.begin("w1", kind="write-off", host=host)
    world.until(lambda: runbook.ended)
    assert runbook.ok, runbook.results
    assert (
        "except units of counts: they stay until the tier can be read"
        in runbook.results[Step.WRITE_OFF].sentence
    )
    for _ in range(40):
        world.tick()
    assert [unit for unit in world.assigned(host) if unit.tenant == "counts"] == units_before
    assert {unit.tenant for unit in world.assigned(host)} == {"counts"}


def make_unreadable(world, host="h2"):
    """Make a node of a host unreadable; return its former content."""
    good = world.channel.nodes[paths.host(host)]
    world.channel.nodes[paths.host(host)] = ('{"cpu": "of the next version"}', good[1] + 1, None)
    return good


def everything(world):
    return {name: world.assigned(name) for name in world.agents}


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("drain", {"host": "h2"}, "the facts of h2 cannot be read: running units continue"),
        ("cordon", {"host": "h2"}, "the facts of h2 cannot be read: running units continue"),
        ("return", {"host": "h2"}, "the facts of h2 cannot be read: running units continue"),
        (
            "drain",
            {"host": "h1"},
            "a drain needs room, and the free room is unknown: the facts of h2 cannot be read",
        ),
        (
            "scale",
            {"tier": "enrich", "k": 3},
            "a scale needs room, and the free room is unknown: the facts of h2 cannot be read",
        ),
    ],
)
def test_a_change_that_needs_an_unreadable_host_or_room_is_refused(world, kind, fields, reason):
    make_unreadable(world)
    before = everything(world)
    runbook = world.begin("c1", kind=kind, **fields)
    world.until(lambda: runbook.ended)
    sentence = runbook.results[Step.PREFLIGHT].sentence
    assert sentence.startswith(reason)
    assert f"{paths.host('h2')}: restart the host's agent, which writes the node again" in sentence
    assert everything(world) == before


def test_beside_an_unreadable_host_others_continue_and_its_agent_mends_it(world):
    make_unreadable(world)
    assigned_before = world.assigned("h2")
    assert assigned_before
    for number, (kind, fields) in enumerate([("cordon", {"host": "h1"}), ("return", {"host": "h1"})]):
        runbook = world.begin(f"c{number}", kind=kind, **fields)
        world.until(lambda runbook=runbook: runbook.ended)
        assert runbook.ok, runbook.results
    for _ in range(30):
        world.tick()
    assert world.assigned("h2") == assigned_before
    assert (
        "the facts of h2 cannot be read: running units continue, and nothing new is placed there; "
        f"{paths.host('h2')}" in world.sentences[-1]
    )
    world.channel.delete(paths.live("h2"))
    world.agents["h2"].register()
    drain = world.begin("d1", kind="drain", host="h2")
    world.settle()
    assert drain.ok, drain.results
    assert "cannot be read" not in world.sentences[-1]
    world.check_settled()


def test_a_host_that_becomes_unreadable_during_its_change_ends_it(world):
    drain = world.begin("d1", kind="drain", host=world.placement("counts").driver)
    world.until(lambda: world.next_driver("counts") is not None)
    good = make_unreadable(world, drain.spec.host)
    world.until(lambda: drain.ended)
    assert f"the facts of {drain.spec.host} cannot be read" in " ".join(
        result.sentence for result in drain.results.values()
    )
    world.channel.nodes[paths.host(drain.spec.host)] = good
    world.settle()
    world.check_settled()


def test_no_tier_is_moved_while_the_whole_of_a_percentage_is_unknown(world):
    shares = {
        **world.rules.shares,
        "batch": Share(minimum=0, target="17%", maximum="100%"),
        "enrich": Share(minimum=1, target="9%"),
    }
    world.rules = replace(world.rules, shares=shares)
    world.settle()
    lent, slots = (
        sum(unit.tenant == "batch" for name in world.agents for unit in world.assigned(name)),
        world.placement("enrich").slots,
    )
    assert (lent, len(slots)) == (4, 2)
    good = make_unreadable(world)
    for _ in range(25):
        world.tick()
    assert world.channel.children("/operations") == []
    assert sum(unit.tenant == "batch" for name in world.agents for unit in world.assigned(name)) == lent
    assert world.placement("enrich").slots == slots
    world.channel.nodes[paths.host("h2")] = good
    world.settle()
    assert world.channel.children("/changes") == []


def test_with_an_unreadable_host_the_controller_begins_no_change_itself(world):
    scaled = world.begin("s1", kind="scale", tier="enrich", k=3, until=world.wall() + 300)
    world.settle()
    assert scaled.ok, scaled.results
    good, posted = make_unreadable(world), world.channel.children("/operations")
    world.now += 400
    for _ in range(10):
        world.tick()
    assert world.channel.children("/operations") == posted
    world.channel.nodes[paths.host("h2")] = good
    world.until(lambda: len(world.placement("enrich").slots) == 2)


@pytest.mark.parametrize(("garbled", "release"), [("r2-b", "r2-b"), ("r1-a", "r2-b")])
def test_an_unreadable_release_is_not_reported_as_missing(world, garbled, release):
    world.publish("r1-a")
    up = world.begin("u0", kind="upgrade", tier="enrich", release="r1-a")
    world.settle()
    assert up.ok, up.results
    world.publish("r2-b")
    _, version, _ = world.channel.nodes[paths.release(garbled)]
    world.channel.nodes[paths.release(garbled)] = ('{"tiers": "of the next version"}', version + 1, None)
    runbook = world.begin("u1", kind="upgrade", tier="enrich", release=release)
    world.settle()
    assert runbook.results[Step.PREFLIGHT].sentence.startswith(
        f"release {garbled} cannot be read; /releases/{garbled}: if a newer version"
    )
    assert f"release {garbled} cannot be read" in world.sentences[-1]
