"""Light tiers have no workers, through every change and fault; an upgrade makes a tier light, or
light no more.
"""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from simulation.world import RULES, TIERS, World, host

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.repair import Repair
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Standby
from sluice_ops.snapshot.view import read_view

HOUR = 3600.0
OLD, NEW = "r1-aaaaaaaa", "r2-bbbbbbbb"
LIGHT = {"light": True, "driver": Quantum(cpu=1, memory=1500, threads=4)}
EAGER = replace(RULES, repair=Repair(60.0, 9, None))
"""The controller repairs drift after a minute."""


def with_light(*names, **more):
    return tuple(tier.model_copy(update={**LIGHT, **more}) if tier.name in names else tier for tier in TIERS)


@cache
def _settled(standby):
    light = {"enrich": Standby.NONE, "outbound": standby}
    tiers = [
        tier.model_copy(update={**LIGHT, "standby": light[tier.name]}) if tier.name in light else tier
        for tier in TIERS
    ]
    world = World(tiers=tiers, rules=EAGER)
    world.publish(OLD)
    return world.bring_up()


@pytest.fixture
def world():
    """A world in which a realtime tier and a tier at the end are light."""
    return deepcopy(_settled(Standby.NONE))


def publish(world, release, tier="enrich", *, light):
    """Publish a release in which a tier is light, or has workers."""
    spec = world.specs[tier]
    world.specs[tier] = spec.model_copy(update=LIGHT if light else {"light": False})
    world.publish(release)


def pass_time(world, seconds=2 * HOUR):
    for _ in range(12):
        world.tick(seconds / 12)
    world.settle()


def workers(world, tier="enrich"):
    return len(world.placement(tier).slots)


def run(world, change, **spec):
    runbook = world.begin(change, **spec)
    world.settle()
    return runbook


def check(world, *light):
    world.check_settled()
    assert {world.state(name) for name in world.specs} == {State.RUNNING}
    assert {name for name in world.specs if not workers(world, name)} == {*light}


def test_a_light_tier_runs_with_its_driver_alone_and_nothing_changes_it(world):
    before = {name: world.owner(name).owner for name in world.specs}
    pass_time(world)
    check(world, "enrich", "outbound")
    assert {name: world.owner(name).owner for name in world.specs} == before
    units = [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "enrich"]
    assert [(unit.kind, unit.quantum) for unit in units] == [("driver", LIGHT["driver"])]


@pytest.mark.parametrize("how", ["driver", "host", "drain", "stop", "pause", "migrate", "shift"])
def test_a_light_tier_comes_through(world, how):
    old = world.owner("enrich").owner
    match how:
        case "driver":
            world.kill_driver("enrich")
            world.settle()
        case "host":
            lost = world.agents[world.placement("enrich").driver]
            lost.die()
            world.settle()
            lost.register()
        case "drain":
            name = world.placement("enrich").driver
            assert run(world, "c1", kind="drain", host=name).ok
            assert world.host_state(name) is HostState.DRAINED
            assert run(world, "c2", kind="return", host=name).ok
        case "stop":
            world.want("enrich", running=False)
            world.settle()
            world.want("enrich")
        case "pause":
            assert run(world, "c1", kind="pause").ok
            assert world.state("enrich") is State.PAUSED
            assert run(world, "c2", kind="resume").ok
        case "migrate":
            to = next(name for name in world.agents if name != world.placement("enrich").driver)
            assert run(world, "c1", kind="migrate", tier="enrich", to=to).ok
            assert world.placement("enrich").hosts == {to}
        case "shift":
            assert run(world, "c1", kind="shift", shift="night").ok
    world.settle()
    check(world, "enrich", "outbound")
    assert (world.owner("enrich").owner > old) is (how not in {"pause", "shift"})


@pytest.mark.parametrize("standby", [Standby.WARM, Standby.HOT])
def test_a_light_tier_has_a_light_standby_on_another_host(standby):
    world = deepcopy(_settled(standby))
    record = world.owner("outbound")
    beside = world.incarnation("outbound", record.standby).placement
    assert (beside.slots, beside.driver != world.placement("outbound").driver) == ((), True)
    world.kill_driver("outbound")
    world.settle()
    assert world.owner("outbound").owner == record.standby
    check(world, "enrich", "outbound")


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "scale", "k": 2},
        {"kind": "scale", "k": 0, "spare": 1},
        {"kind": "burst"},
        {"kind": "pause", "tier": None, "workers": ("slot-enrich-1-0",)},
        {"kind": "migrate", "to": "h2", "workers": ("slot-enrich-1-0",)},
    ],
)
def test_a_change_that_asks_for_workers_of_a_light_tier_is_refused(world, spec):
    world.add_host(host("e1", zone="ec2"))
    world.tick()
    runbook = run(world, "c1", **{"tier": "enrich", **spec})
    assert runbook.results[Step.PREFLIGHT].sentence == (
        'tier "enrich" is light: its driver does the work, and it has no workers; to give it workers, '
        "declare it without light=True, publish it, and run `sluice upgrade enrich`"
    )
    check(world, "enrich", "outbound")


def test_a_game_day_finds_no_worker_of_a_light_tier(world):
    runbook = run(world, "c1", kind="game-day", fault="kill-worker", tier="enrich")
    assert "has no worker for kill-worker; use kill-driver" in runbook.results[Step.PREFLIGHT].sentence


@pytest.fixture
def ordinary():
    world = World(rules=EAGER)
    world.publish(OLD)
    return world.bring_up()


def test_publishing_a_tier_as_light_changes_it_only_by_an_upgrade(ordinary):
    world, before = ordinary, ordinary.owner("enrich").owner
    publish(world, NEW, light=True)
    pass_time(world)
    assert (workers(world), world.owner("enrich").owner) == (2, before)
    world.kill_driver("enrich")
    world.settle()
    assert workers(world) == 2, "a restart runs the old code, with workers"
    assert run(world, "c1", kind="scale", tier="enrich", k=3).ok
    assert workers(world) == 3
    assert run(world, "c2", kind="upgrade", tier="enrich").ok
    last = world.owner("enrich").owner
    pass_time(world)
    check(world, "enrich")
    assert world.owner("enrich").owner == last, "one handover"


def test_a_tier_that_is_light_no_more_gets_its_workers_by_an_upgrade(world):
    before = world.owner("enrich").owner
    publish(world, NEW, light=False)
    pass_time(world)
    assert (workers(world), world.owner("enrich").owner) == (0, before)
    refused = run(world, "c1", kind="scale", tier="enrich", k=2)
    assert "run `sluice upgrade enrich` first" in refused.results[Step.PREFLIGHT].sentence
    assert run(world, "c2", kind="upgrade", tier="enrich").ok
    last = world.owner("enrich").owner
    pass_time(world)
    check(world, "outbound")
    assert (workers(world), world.owner("enrich").owner) == (2, last), "one handover gives it its share"


def test_a_tier_that_is_light_no_more_gets_its_workers_at_a_restart(world):
    publish(world, NEW, light=False)
    world.kill_driver("enrich")
    world.settle()
    check(world, "outbound")
    assert world.incarnation("enrich", world.owner("enrich").owner).release == OLD


@pytest.mark.parametrize("light", [True, False])
def test_bad_code_is_rolled_back_to_the_old_number_of_workers(ordinary, light):
    world = ordinary
    if not light:
        publish(world, "r0-cccccccc", light=True)
        assert run(world, "c0", kind="upgrade", tier="enrich").ok
    world.logs["enrich"].sets_aside[NEW] = 50
    publish(world, NEW, light=light)
    upgrade = run(world, "c1", kind="upgrade", tier="enrich")
    assert not upgrade.ok
    assert upgrade.results[Step.TRIAL].ok is False
    pass_time(world)
    check(world)
    assert workers(world) == 2


@pytest.mark.parametrize("light", [True, False])
def test_an_abort_of_such_an_upgrade_at_any_moment_ends_well(light):
    first = World(rules=EAGER, tiers=TIERS if light else with_light("enrich"))
    first.publish(OLD)
    first.bring_up()
    publish(first, NEW, light=light)
    for ticks in range(1, 30, 2):
        world = deepcopy(first)
        runbook = world.begin("c1", kind="upgrade", tier="enrich")
        if not runbook.abort_after(ticks):
            break
        assert {world.state(name) for name in world.specs} == {State.RUNNING}
        assert workers(world) == (2 if light or world.owner("enrich").owner > 1 else 0)


def test_a_tier_that_is_published_as_light_first_starts_without_workers():
    world = World(tiers=with_light("enrich"))
    world.bring_up()
    assert workers(world) == 0
    assert read_view(world.channel).tiers["enrich"].spec.release is None
