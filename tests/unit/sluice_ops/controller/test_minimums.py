"""Minimums come before surplus: a running tier gives up workers for a tier that is down, and gets
them back later.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from simulation.world import RULES, World, host, tier

from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import batch, settling
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.policies.settling import ATTEMPT_INTERVAL_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState, Step
from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import Share
from sluice_ops.model.status import TierState
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.placement.cluster import moved
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.shortage.fitting import fewest_slots, requests_for_minimums, why_no_room_together
from sluice_ops.planning.shortage.in_place import why_handed_over
from sluice_ops.snapshot.view import read_view

pytestmark = pytest.mark.timeout(240)


def site(*hosts, kinds=None, rules=None, start=True, **shares):
    """Return a world with tiers on the hosts; a tier's share is its minimum, its target, and
    perhaps its place.
    """
    kinds = kinds or {}
    all_rules = replace(
        RULES,
        shares={name: Share(minimum=low, target=aim, maximum=8) for name, (low, aim, *_) in shares.items()},
        locality={name: place for name, (_, _, *places) in shares.items() for place in places},
        partitions=8,
        **(rules or {}),
    )
    names = [name for name in shares if name != BATCH]
    specs = [
        tier(name, **{"mode": Mode.BATCH, "distance": number, **kinds.get(name, {})})
        for number, name in enumerate(names)
    ]
    world = World(hosts=hosts, tiers=specs, rules=all_rules)
    if start:
        world.bring_up()
    return world


def ticks(world, seconds):
    for _ in range(int(seconds)):
        world.tick()


def slots(world):
    """Return the number of each tier's workers on live hosts; None for a tier that is down."""
    workers = {}
    for name in world.specs:
        record = world.owner(name)
        spec = None if record.owner is None else world.incarnation(name, record.owner)
        down = spec is None or spec.retired
        workers[name] = (
            None if down else sum(world.agents[host_name].alive for host_name in spec.placement.slots)
        )
    return workers


def own_changes(world):
    """Return the controller's own changes, in the order in which they began."""
    read = (
        world.channel.read(paths.change(name), ChangeRecord) for name in world.channel.children("/changes")
    )
    own = (change.value for change in read if change is not None and change.value.by == CONTROLLER)
    return sorted(own, key=lambda change: change.started_at)


def lost(*hosts, gone="h2", **more):
    """Kill a host with a tier that has no room on the other hosts."""
    world = site(*hosts, **more)
    world.agents[gone].die()
    ticks(world, 45)
    return world


def full(**more):
    """Return a world in which a tier with four workers fills one host, and another tier died with
    its host. A third host is too small for both.
    """
    return lost(
        host("h1", cpu=4.5),
        host("h2", cpu=2, rack="r3"),
        host("h3", cpu=0.4, rack="r3"),
        **{"counts": (1, 4, "h1"), "enrich": (1, 1), **more},
    )


def test_a_running_tier_gives_up_the_fewest_workers_for_anothers_minimum():
    world = full()
    assert slots(world) == {"counts": 2, "enrich": 1}
    (change,) = own_changes(world)
    assert (change.id, change.state, change.spec.kind) == (
        "settle-counts-for-enrich-1",
        ChangeState.DONE,
        "settle",
    )
    assert world.owner("counts").owner == 1, "the workers are released in place"
    assert any(
        "enrich lacks some of its minimum; it gets room when counts goes on with 2 workers" in sentence
        for sentence in world.sentences
    )
    world.check_settled()


def test_given_up_workers_return_once_there_is_room_and_then_nothing_moves():
    world = full()
    world.rules = replace(world.rules, locality={})
    world.add_host(host("h3"))
    for _ in range(2):
        ticks(world, 2 * ATTEMPT_INTERVAL_SECONDS)
        assert slots(world) == {"counts": 4, "enrich": 1}
        assert [change.spec.k for change in own_changes(world)] == [2, None]


@pytest.mark.parametrize(("cpu", "batch"), [(6, (0, 0)), (7, (1, 3)), (6, (0, 2))])
def test_no_tier_gives_up_workers_while_room_or_batch_surplus_exists(cpu, batch):
    world = lost(host("h1", cpu=cpu), host("h2", cpu=2), counts=(1, 4, "h1"), enrich=(1, 1), batch=batch)
    assert slots(world) == {"counts": 4, "enrich": 1}
    assert not own_changes(world)


def test_a_tier_uses_slots_of_batch_and_of_another_tier_together():
    world = lost(host("h1", cpu=5.5), host("h2", cpu=2), counts=(1, 4, "h1"), enrich=(1, 1), batch=(0, 1))
    assert slots(world) == {"counts": 3, "enrich": 1}


def test_a_giving_tier_leaves_the_room_to_the_other_tier_while_it_waits():
    hosts = (host("h1", cpu=4.5), host("h2", cpu=4.5), host("h3", cpu=3.5))
    world = site(*hosts, counts=(1, 4, "h1"), last=(1, 3, "h3"), enrich=(4, 4, "h2"))
    world.agents["h2"].die()
    world.until(lambda: own_changes(world))
    assert own_changes(world)[0].id == "settle-counts-for-enrich-1"
    world.want("last", paused=True)
    for _ in range(3):
        ticks(world, 30)
        assert slots(world) == {"counts": 1, "last": 3, "enrich": None}
        world.now += ATTEMPT_INTERVAL_SECONDS
    world.want("last", paused=False)
    ticks(world, 60)
    assert slots(world) == {"counts": 1, "last": 1, "enrich": 4}


def test_a_tier_above_its_share_is_lowered_and_makes_enough_room():
    world = site(
        host("h1", cpu=4.5), host("h2", cpu=2), host("h3", cpu=0.4), counts=(1, 4, "h1"), enrich=(1, 1)
    )
    world.rules = replace(
        world.rules, shares={**world.rules.shares, "counts": Share(minimum=1, target=1, maximum=8)}
    )
    ticks(world, 5)
    assert slots(world)["counts"] == 4, "a new share alone moves no tier"
    world.agents["h2"].die()
    ticks(world, 45)
    assert slots(world) == {"counts": 1, "enrich": 1}


def test_given_up_room_stays_free_while_the_other_waits_for_batch():
    small = [host(f"h{number}", cpu=0.4) for number in (4, 5, 6, 8)]
    hosts = (host("h1", cpu=4.5), host("h2", cpu=3.5), host("h3", cpu=5.5), host("h7", cpu=1), *small)
    world = site(*hosts, counts=(1, 4, "h1"), enrich=(3, 3, "h2"), other=(5, 5, "h3"), batch=(0, 1, "h7"))
    world.rules = replace(world.rules, locality={"counts": "h1", "other": "h3", "batch": "h7"})
    world.agents["h7"].task_seconds = 100.0
    for name in ("h2", "h3"):
        world.agents[name].die()
    ticks(world, 60)
    assert slots(world) == {"counts": 1, "enrich": None, "other": None}
    assert [change.id for change in own_changes(world)] == ["settle-counts-for-enrich-1"]
    ticks(world, 80)
    assert slots(world) == {"counts": 1, "enrich": 3, "other": None}


def test_workers_given_up_long_ago_do_not_block_a_tier_now():
    world = full()
    world.rules = replace(world.rules, locality={})
    world.add_host(host("h3"))
    ticks(world, 2 * ATTEMPT_INTERVAL_SECONDS)
    assert slots(world) == {"counts": 4, "enrich": 1}
    view = read_view(world.channel)
    draft = Draft(view, PassInputs(now=world.wall(), lost=world.absences.lost(view), rules=world.rules))
    draft.shortage.needy.append("enrich")
    assert not settling._has_given(draft, "counts"), "the tier got its workers back"


def test_a_tier_whose_name_begins_with_anothers_is_told_apart():
    assert settling._number("settle-a-for-b-2-1", settling._gift_prefix("a", "b")) is None
    assert settling._number("settle-a-for-b-2-1", settling._gift_prefix("a", "b-2")) == 1


def test_several_tiers_give_up_workers_where_one_is_not_enough():
    world = lost(
        host("h1", cpu=3),
        host("h2", cpu=4),
        host("h3", cpu=2.5),
        counts=(1, 2, "h1"),
        enrich=(2, 2, "h2"),
        other=(1, 2, "h3"),
    )
    ticks(world, ATTEMPT_INTERVAL_SECONDS)
    assert slots(world) == {"counts": 1, "enrich": 2, "other": 1}
    assert len(own_changes(world)) == 2


OBSTACLES = {
    "its minimum": {"counts": (4, 4, "h1")},
    "its budget": {"rules": {"budget": {"counts": 0}}},
    "its standby": {"kinds": {"counts": {"standby": Standby.WARM}}},
    "its state": {"kinds": {"counts": {"state": True}}},
    "its partitions": {"kinds": {"counts": {"mode": Mode.REALTIME, "partitions": 16}}},
    "workers of no use": {"enrich": (1, 1, "rack:r3")},
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_tier_that_cannot_give_up_useful_workers_keeps_them(obstacle):
    world = full(**OBSTACLES[obstacle])
    assert slots(world) == {"counts": 4, "enrich": None}
    assert not own_changes(world)
    assert "cannot start: " in world.statuses["enrich"].sentence


def test_giving_up_waits_for_running_changes_and_paused_pipelines():
    world = site(
        host("h1", cpu=4.5), host("h2", cpu=2), host("h3", cpu=0.4), counts=(1, 4, "h1"), enrich=(1, 1)
    )
    drain = world.begin("d1", kind="drain", host="h3")
    world.until(lambda: Step.PREFLIGHT in drain.results)
    drain.left = []
    world.agents["h2"].die()
    ticks(world, 45)
    assert slots(world) == {"counts": 4, "enrich": None}
    world.want(paused=True)
    ticks(world, 5)
    drain.post(Step.ABORT)
    ticks(world, 45)
    assert slots(world) == {"counts": 4, "enrich": None}
    world.want(paused=False)
    ticks(world, 45)
    assert slots(world) == {"counts": 2, "enrich": 1}


def test_no_worker_is_given_up_while_the_brake_holds():
    world = site(
        host("h1", cpu=4.5),
        *(host(f"h{number}", cpu=1.5) for number in (2, 3)),
        counts=(1, 4, "h1"),
        enrich=(1, 1),
        other=(1, 1),
    )
    for name in ("h2", "h3"):
        world.agents[name].die()
    ticks(world, 45)
    assert world.sentences[-1].startswith("BRAKE")
    assert slots(world)["counts"] == 4
    world.begin("w1", kind="write-off")
    ticks(world, 60)
    assert slots(world) == {"counts": 1, "enrich": 1, "other": 1}


def test_lost_slots_below_a_minimum_come_back_in_the_room_of_another_tier():
    world = site(host("h1", cpu=5), host("h2", cpu=2), counts=(1, 3, "h1"), enrich=(3, 3))
    assert world.placement("enrich").driver == "h1"
    world.agents["h2"].die()
    ticks(world, 45)
    assert slots(world) == {"counts": 1, "enrich": 3}
    assert world.owner("enrich").owner == 1


def test_lost_slots_below_a_minimum_come_back_from_batchs_surplus():
    world = site(
        host("h1", cpu=2.5),
        host("h2", cpu=3),
        host("h3", cpu=3),
        counts=(1, 2),
        enrich=(1, 2),
        batch=(1, 3),
        start=False,
    )
    for name in ("counts", "enrich"):
        world.want(name)
        ticks(world, 10)
    assert (world.placement("enrich").driver, world.placement("enrich").slots) == ("h1", ("h3", "h3"))
    world.agents["h3"].die()
    ticks(world, 45)
    assert slots(world) == {"counts": 2, "enrich": 1}


@pytest.mark.parametrize(
    ("slow", "given_up"), [({}, {"slow": 2, "fast": 2}), ({"state": True}, {"slow": 3, "fast": 1})]
)
def test_a_realtime_tier_gives_up_workers_only_where_no_other_can(slow, given_up):
    kinds = {"fast": {"mode": Mode.REALTIME, "partitions": 4}, "slow": slow}
    shares = {"slow": (1, 3, "h1"), "fast": (1, 2, "h1"), "enrich": (1, 1)}
    world = lost(host("h1", cpu=6.5), host("h2", cpu=1.5), kinds=kinds, **shares)
    assert slots(world) == {**given_up, "enrich": 1}


@st.composite
def sites(draw):
    """Draw hosts, tiers that want more than the hosts have, and the host to lose.

    Some tiers can release workers in place.
    """
    names = [f"h{number}" for number in range(1, draw(st.integers(2, 3)) + 1)]
    hosts = [
        host(name, cpu=draw(st.sampled_from([2.5, 3.0, 4.5])), rack=draw(st.sampled_from(["r1", "r2"])))
        for name in names
    ]
    kinds, shares = {}, {}
    for number in range(draw(st.integers(2, 4))):
        kinds[f"t{number}"] = {
            "mode": draw(st.sampled_from([Mode.BATCH, Mode.BATCH, Mode.REALTIME])),
            "state": draw(st.sampled_from([False, False, False, True])),
            "partitions": draw(st.sampled_from([4, 8])),
        }
        shares[f"t{number}"] = (
            draw(st.integers(1, 2)),
            draw(st.integers(2, 4)),
            *draw(st.sampled_from([(), (), (), ("rack:r1",)])),
        )
    shares[BATCH] = (draw(st.integers(0, 1)), draw(st.integers(1, 3)))
    return hosts, kinds, shares, draw(st.sampled_from(names))


def needlessly_short(world):
    """Return the tiers below their minimum that could have it if every tier that can release
    workers in place kept only its minimum.
    """
    view = read_view(world.channel)
    draft = Draft(view, PassInputs(now=world.wall(), lost=world.absences.lost(view), rules=world.rules))
    batch.slots_to_keep(draft).apply(draft)
    now = cluster_of_draft(draft)
    wronged_tiers = []
    for name in world.specs:
        requests = [request for request in requests_for_minimums(now) if request.tenant == name]
        hosts = now.hosts
        for other, tier_now in now.tiers.items():
            if (
                other == name
                or tier_now.placement is None
                or world.statuses[other].state is not TierState.RUNNING
            ):
                continue
            few = tier_now.placement.model_copy(
                update={"slots": tier_now.placement.slots[: fewest_slots(tier_now.spec, now.rules)]}
            )
            if why_handed_over(tier_now, target(other, now.rules), few, now) is None:
                hosts = moved(hosts, tier_now.spec, tier_now.placement, few)
        if requests and why_no_room_together(requests, hosts) is None:
            wronged_tiers.append(name)
    return wronged_tiers


@settings(max_examples=25, suppress_health_check=[*HealthCheck])
@given(sites())
def test_at_rest_no_tier_lacks_a_minimum_that_anothers_surplus_could_fill(drawn):
    hosts, kinds, shares, gone = drawn
    world = site(*hosts, kinds=kinds, start=False, **shares)
    world.checks_baseline = False
    for name in world.specs:
        world.want(name)
        ticks(world, 10)
    world.agents[gone].die()
    for _ in range(3):
        ticks(world, 20)
        world.now += ATTEMPT_INTERVAL_SECONDS
    ticks(world, 15)
    assert not world.channel.exists(paths.LOCK)
    assert needlessly_short(world) == []
    gave, changes = sum("-for-" in change.id for change in own_changes(world)), len(own_changes(world))
    event(f"{gave} gave up workers")
    for _ in range(3):
        world.now += ATTEMPT_INTERVAL_SECONDS
        ticks(world, 5)
    assert len(own_changes(world)) == changes, "workers do not move back and forth"
