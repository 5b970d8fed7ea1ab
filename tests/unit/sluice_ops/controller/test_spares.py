"""Spare workers: they hold slots without work, and work at once when a number or a loss asks."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.model.change import Step
from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.tier import Mode, Standby


def pipeline(*hosts, target=2, spare=1, batch=0, mode=Mode.BATCH, **fields):
    """Return a settled pipeline with the tier `counts`; its day shift has three workers."""
    shares = {
        "counts": Share(minimum=1, target=target, maximum=8, spare=spare),
        BATCH: Share(minimum=0, target=batch, maximum=8),
    }
    world = World(
        hosts=hosts,
        tiers=[tier("counts", mode, 0).model_copy(update=fields)],
        rules=replace(RULES, shares=shares, shifts={"day": {"counts": Numbers(target=3)}}, partitions=8),
    )
    world.bring_up()
    world.tick()
    return world


def scale(world, k, **more):
    change = world.begin(f"to-{k}", kind="scale", tier="counts", k=k, **more)
    world.settle()
    assert change.ok, sentences(change)
    return change


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world):
    return len(world.placement("counts").slots)


def spares(world):
    return sorted(world.driver("counts").spares)


def at_work(world):
    return slots(world) - len(spares(world))


def test_a_tier_starts_with_its_spare_in_the_last_slot():
    world = pipeline(host("h1"))
    assert (slots(world), world.owner("counts").active) == (3, 2)
    assert spares(world) == ["slot-counts-1-2"]
    assert world.sentences[-1].startswith("all 1 tiers run")
    world.check_settled()


def test_without_spares_the_owner_record_has_no_number():
    assert pipeline(host("h1"), spare=0).owner("counts").active is None


def test_more_workers_wake_the_spare_and_a_new_spare_joins():
    world = pipeline(host("h1"))
    change = scale(world, 3)
    assert "counts wakes 1 spare: 3 workers work within 2 s" in sentences(change)[Step.PREFLIGHT]
    assert (slots(world), at_work(world), world.owner("counts").owner) == (4, 3, 1)
    world.check_settled()


def test_the_spare_works_before_the_new_spare_has_joined():
    world = pipeline(host("h1"))
    world.begin("c1", kind="scale", tier="counts", k=3)
    world.until(lambda: at_work(world) == 3)
    assert not spares(world)
    world.settle()
    assert spares(world) == ["slot-counts-1-3"]


def test_without_room_for_a_new_spare_the_number_is_right_all_the_same():
    world = pipeline(host("h1", cpu=3.5))
    change = scale(world, 3)
    assert "1 fewer than its share: room is short" in sentences(change)[Step.PREFLIGHT]
    assert (slots(world), at_work(world), world.owner("counts").owner) == (3, 3, 1)
    world.check_settled()


def test_a_missing_spare_comes_when_there_is_room():
    world = pipeline(host("h1", cpu=3.5))
    scale(world, 3)
    world.add_host(host("h2"))
    world.tick(700)
    world.settle()
    assert (slots(world), at_work(world), world.owner("counts").owner) == (4, 3, 1)


def test_fewer_workers_rest_and_the_surplus_spare_leaves():
    world = pipeline(host("h1"), target=3)
    scale(world, 2)
    assert (slots(world), at_work(world), world.owner("counts").owner) == (3, 2, 1)
    assert world.owner("counts").paused_workers == ("slot-counts-1-3",)
    world.check_settled()


def test_a_shift_wakes_spares():
    world = pipeline(host("h1"))
    day = world.begin("d1", kind="shift", shift="day")
    world.settle()
    assert day.ok, sentences(day)
    assert (slots(world), at_work(world)) == (4, 3)


@pytest.mark.parametrize(("spare", "expected"), [(0, 2), (2, 4)])
def test_a_person_sets_the_number_of_spares(spare, expected):
    world = pipeline(host("h1"))
    scale(world, 2, spare=spare)
    assert (slots(world), at_work(world)) == (expected, 2)
    world.check_settled()


def test_spares_that_find_no_room_are_refused():
    world = pipeline(host("h1", cpu=3.5))
    change = world.begin("c1", kind="scale", tier="counts", k=2, spare=5)
    world.settle()
    assert not change.ok
    assert "no room" in sentences(change)[Step.PREFLIGHT]
    assert slots(world) == 3


def test_a_lost_host_wakes_the_spare_and_its_worker_comes_back_as_one():
    world = pipeline(host("h1", cpu=1.5), *(host(f"h{number}", cpu=1) for number in (2, 3, 4)))
    driver, slots_before = world.placement("counts").driver, world.placement("counts").slots
    number = next(number for number, name in enumerate(slots_before[:2]) if name != driver)
    world.agents[slots_before[number]].die()
    world.until(lambda: not spares(world))
    assert world.placement("counts").slots == slots_before, "the spare needs no controller"
    world.settle()
    world.tick()
    assert slots_before[number] not in world.placement("counts").slots
    assert (world.owner("counts").owner, spares(world)) == (1, [f"slot-counts-1-{number}"])


def test_a_handover_keeps_the_spare():
    world = pipeline(host("h1"), host("h2"), host("h3"))
    drain = world.begin("c1", kind="drain", host=world.placement("counts").driver)
    world.settle()
    assert drain.ok, sentences(drain)
    world.tick()
    assert (slots(world), at_work(world), world.owner("counts").owner) == (3, 2, 2)
    world.check_settled()


def test_a_dead_driver_is_followed_by_one_with_a_spare():
    world = pipeline(host("h1"))
    world.kill_driver("counts")
    world.settle()
    world.tick()
    assert (slots(world), at_work(world), world.owner("counts").owner) == (3, 2, 2)


def test_a_realtime_tier_wakes_its_spare_and_gets_another_in_place():
    world = pipeline(host("h1", cpu=16), mode=Mode.REALTIME, target=4)
    change = scale(world, 5)
    assert (slots(world), at_work(world), world.owner("counts").owner) == (6, 5, 1)
    assert "counts wakes 1 spare: 5 workers work within 2 s" in sentences(change)[Step.PREFLIGHT]
    world.check_settled()


@pytest.mark.parametrize("fields", [{"state": True}, {"standby": Standby.WARM}])
def test_tiers_with_state_or_a_standby_have_no_spares(fields):
    world = pipeline(host("h1", cpu=16), host("h2", cpu=16), **fields)
    assert (slots(world), world.owner("counts").active) == (2, None)
    world.tick()
    assert "shares.counts in the site file has spare: 1, but the tier cannot" in world.sentences[-1]
    change = world.begin("c1", kind="scale", tier="counts", k=2, spare=1)
    world.settle()
    assert 'tier "counts" cannot have spares' in sentences(change)[Step.PREFLIGHT]


def test_a_driver_of_an_older_version_works_with_all_workers():
    world = pipeline(host("h1"))
    driver = world.driver("counts")
    driver.knows_spares = False
    driver._report()
    scale(world, 3)
    assert slots(world) == 4


def test_a_change_waits_until_its_spares_work():
    world = pipeline(host("h1", cpu=3.5))
    world.driver("counts").stuck = True
    change = world.begin("c1", kind="scale", tier="counts", k=3)
    for _ in range(8):
        world.tick()
    assert not change.ended
    assert "waiting until counts has woken spares: 2 of 3 workers work" in " ".join(world.sentences)
    world.driver("counts").stuck = False
    world.settle()
    assert change.ok


def test_an_aborted_change_lets_the_worker_rest_again():
    world = pipeline(host("h1"))
    change = world.begin("c1", kind="scale", tier="counts", k=3)
    world.until(lambda: at_work(world) == 3)
    change.abort()
    world.settle()
    world.tick()
    assert (slots(world), at_work(world), world.owner("counts").active) == (3, 2, 2)


def test_spares_go_before_the_minimum_of_another_tier():
    shares = {
        "counts": Share(minimum=1, target=2, maximum=8, spare=1),
        "enrich": Share(minimum=2, target=2, maximum=8),
    }
    world = World(
        hosts=[host("h1", cpu=2.5), host("h2", cpu=2.5), host("h3", cpu=1)],
        tiers=[tier("enrich", Mode.BATCH, 1), tier("counts", Mode.BATCH, 0)],
        rules=replace(RULES, shares=shares, dedicated={"h3": frozenset({"enrich"})}, partitions=8),
    )
    world.bring_up()
    world.tick()
    assert (slots(world), "h3" in world.placement("enrich").slots) == (3, True)
    world.agents["h3"].die()
    world.settle()
    world.tick(30)
    world.settle()
    assert "h3" not in world.placement("enrich").slots
    assert (slots(world), at_work(world), world.owner("counts").owner) == (2, 2, 1)
