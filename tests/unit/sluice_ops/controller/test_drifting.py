"""Kept apart, drift and its repair, and budgets, carried out by the controller."""

from dataclasses import replace

import pytest
from simulation.world import HOSTS, RULES, World, host, tier

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.share import Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Mode


def pipeline(*hosts, shares, **rules):
    """Have tiers run on hosts under these rules; a tier's share is its minimum and its target."""
    made = {name: Share(minimum=low, target=wanted, maximum=8) for name, (low, wanted) in shares.items()}
    tiers = [tier(name, Mode.BATCH, number) for number, name in enumerate(shares)]
    world = World(hosts=hosts, tiers=tiers, rules=replace(RULES, shares=made, partitions=8, **rules))
    world.want()
    world.settle()
    return world


def said(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world, name):
    return sorted(world.placement(name).slots)


def test_workers_spread_over_racks_and_a_lost_one_waits_for_its_place():
    racks = [host(f"h{number}", rack=f"r{number % 2}") for number in range(4)]
    world = pipeline(*racks, shares={"counts": (1, 2)}, spread={"counts": Spread(rack=1)})
    assert len({name in {"h0", "h2"} for name in slots(world, "counts")}) == 2
    lost = next(name for name in slots(world, "counts") if name != world.placement("counts").driver)
    world.agents[lost].die()
    world.settle()
    for _ in range(20):
        world.tick()
    beside = {"h0": "h2", "h2": "h0", "h1": "h3", "h3": "h1"}[lost]
    assert beside in slots(world, "counts")
    world.agents[beside].die()
    for _ in range(20):
        world.tick()
    assert "with at most 1 in a rack (spread.counts)" in world.statuses["counts"].sentence


def test_tiers_that_have_to_be_separate_share_no_host_through_a_drain():
    world = pipeline(
        *HOSTS,
        host("h4"),
        shares={"counts": (1, 1), "enrich": (1, 1)},
        separate=(frozenset({"counts", "enrich"}),),
    )
    drain = world.begin("d1", kind="drain", host=world.placement("counts").driver)
    while not drain.ended:
        for name in world.agents:
            assert len({unit.tenant for unit in world.assigned(name)}) <= 1
        world.tick()
    assert drain.ok, said(drain)
    world.check_settled()


def test_a_host_that_joins_is_drift_and_the_repair_brings_one_worker_there():
    world = pipeline(host("h1"), host("h2"), shares={"counts": (1, 3), "enrich": (1, 1)})
    world.add_host(host("h3"))
    world.tick()
    looked = world.begin("look", kind="repair")
    looked.left, looked.dry_run = [Step.PREFLIGHT], True
    world.until(lambda: looked.ended)
    (move,) = looked.results[Step.PREFLIGHT].details["plan"]["moves"]
    assert "there is room to have at most 1 on each host" in move["why"]
    assert slots(world, "counts").count("h3") == 0, "to look moves nothing"
    repair = world.begin("r1", kind="repair")
    world.settle()
    assert repair.ok, said(repair)
    assert slots(world, "counts") == ["h1", "h2", "h3"]
    again = world.begin("r2", kind="repair")
    world.settle()
    assert "nothing has drifted" in said(again)[Step.PREFLIGHT]
    world.check_settled()


def test_a_changed_locality_is_drift_until_it_is_repaired():
    world = pipeline(
        host("h1", labels=("fast",)),
        host("h2"),
        host("h3"),
        shares={"counts": (1, 2)},
        locality={"counts": "zone:onprem"},
    )
    world.rules = replace(world.rules, locality={"counts": "label:fast"})
    repair = world.begin("r1", kind="repair")
    world.settle()
    assert repair.ok, said(repair)
    assert world.placement("counts").hosts == {"h1"}


@pytest.mark.parametrize("how", ["its driver dies", "it gets other code", "it is started again"])
def test_a_changed_locality_moves_nothing_and_guides_the_next_placement(how):
    world = pipeline(
        host("h1", labels=("fast",)),
        host("h2"),
        host("h3"),
        shares={"counts": (1, 2)},
        locality={"counts": "zone:onprem"},
    )
    before = world.placement("counts")
    assert before.hosts != {"h1"}
    world.rules = replace(world.rules, locality={"counts": "label:fast"})
    for _ in range(600):
        world.tick()
    assert world.placement("counts") == before
    if how == "its driver dies":
        world.kill_driver("counts")
    elif how == "it gets other code":
        world.publish("r2-bbbbbbbb")
        world.begin("u1", kind="upgrade", tier="counts")
    else:
        world.want("counts", running=False)
        world.settle()
        world.want("counts")
    world.settle()
    assert world.placement("counts").hosts == {"h1"}
    world.check_settled()


def test_a_rule_for_a_tier_that_is_not_published_is_said_with_its_key():
    world = pipeline(*HOSTS, shares={"counts": (1, 1)}, spread={"countz": Spread(host=1)})
    world.tick()
    assert 'spread in the site file names "countz", which is no tier' in world.sentences[-1]


def test_dedicated_hosts_are_left_to_those_they_are_for():
    world = pipeline(
        *HOSTS, shares={"counts": (1, 4), "enrich": (1, 4)}, dedicated={"h3": frozenset({"counts"})}
    )
    assert "h3" in slots(world, "counts")
    assert "h3" not in world.placement("enrich").hosts
    drain = world.begin("d1", kind="drain", host="h2")
    world.settle()
    assert drain.ok, said(drain)
    assert world.placement("enrich").hosts == {"h1"}


def test_a_drain_against_a_disruption_budget_is_refused_naming_the_budget():
    world = pipeline(
        host("h1", cpu=7),
        host("h2", cpu=7),
        shares={"counts": (1, 3), "enrich": (1, 3)},
        budget={"counts": 0, "enrich": 0},
    )
    drain = world.begin("d1", kind="drain", host="h2")
    world.settle()
    assert not drain.ok
    assert "as budget.counts allows 0 of its 3 to be missing" in said(drain)[Step.PREFLIGHT]
    assert world.host_state("h2") is HostState.UP


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_handover_waits_while_more_slots_are_lost_than_the_budget_allows(allowed):
    world = pipeline(
        *(host(name, cpu=5) for name in ("h1", "h2", "h3", "h4")),
        shares={"counts": (1, 3)},
        spread={"counts": Spread(host=1)},
        budget={"counts": allowed},
    )
    first = world.placement("counts")
    away = next(name for name in first.slots if name != first.driver)
    drain = world.begin("d1", kind="drain", host=away)
    world.until(lambda: world.owner("counts").next is not None)
    nextone = world.incarnation("counts", world.owner("counts").next).placement
    lost = next(name for name in nextone.slots if name not in first.hosts)
    world.agents[lost].die()
    world.absences._since[lost] = world.now - 100
    for _ in range(40):
        world.tick()
    if allowed:
        assert drain.ended
        return
    assert not drain.ended
    assert any("1 of 3 would be away, budget.counts allows 0" in sentence for sentence in world.sentences)
    world.agents[lost].register()
    world.settle()
    assert drain.ok, said(drain)
