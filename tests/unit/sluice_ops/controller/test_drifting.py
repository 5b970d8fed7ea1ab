"""Rules that keep tiers apart, drift and its repair, and budgets, carried out by the controller."""

from dataclasses import replace

import pytest
from simulation.world import HOSTS, RULES, World, host, tier

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.share import Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Mode


def pipeline(*hosts, shares, **rules):
    """Return a pipeline on the hosts under these rules; a tier's share is its minimum and its
    target.
    """
    tier_shares = {
        name: Share(minimum=minimum, target=wanted, maximum=8) for name, (minimum, wanted) in shares.items()
    }
    tiers = [tier(name, Mode.BATCH, number) for number, name in enumerate(shares)]
    return World(
        hosts=hosts, tiers=tiers, rules=replace(RULES, shares=tier_shares, partitions=8, **rules)
    ).bring_up()


def sentences_of(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world, name):
    return sorted(world.placement(name).slots)


def test_workers_spread_over_racks_and_a_lost_worker_waits_for_its_rack():
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


def test_separate_tiers_share_no_host_during_a_drain():
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
    assert drain.ok, sentences_of(drain)
    world.check_settled()


def test_a_new_host_is_drift_and_the_repair_moves_one_worker_there():
    world = pipeline(host("h1"), host("h2"), shares={"counts": (1, 3), "enrich": (1, 1)})
    world.add_host(host("h3"))
    world.tick()
    looked = world.begin("look", kind="repair")
    looked.left, looked.dry_run = [Step.PREFLIGHT], True
    world.until(lambda: looked.ended)
    (move,) = looked.results[Step.PREFLIGHT].details["plan"]["moves"]
    assert "there is room to have at most 1 on each host" in move["why"]
    assert slots(world, "counts").count("h3") == 0, "looking for drift moves nothing"
    repair = world.begin("r1", kind="repair")
    world.settle()
    assert repair.ok, sentences_of(repair)
    assert slots(world, "counts") == ["h1", "h2", "h3"]
    again = world.begin("r2", kind="repair")
    world.settle()
    assert "nothing has drifted" in sentences_of(again)[Step.PREFLIGHT]
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
    assert repair.ok, sentences_of(repair)
    assert world.placement("counts").hosts == {"h1"}


@pytest.mark.parametrize("event", ["its driver dies", "it gets other code", "it is started again"])
def test_a_changed_locality_moves_nothing_and_guides_the_next_placement(event):
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
    if event == "its driver dies":
        world.kill_driver("counts")
    elif event == "it gets other code":
        world.publish("r2-bbbbbbbb")
        world.begin("u1", kind="upgrade", tier="counts")
    else:
        world.want("counts", running=False)
        world.settle()
        world.want("counts")
    world.settle()
    assert world.placement("counts").hosts == {"h1"}
    world.check_settled()


def test_a_rule_for_an_unpublished_tier_is_reported_with_its_key():
    world = pipeline(*HOSTS, shares={"counts": (1, 1)}, spread={"countz": Spread(host=1)})
    world.tick()
    assert 'spread in the site file names "countz", which is no tier' in world.sentences[-1]


def test_dedicated_hosts_take_only_their_tenants():
    world = pipeline(
        *HOSTS, shares={"counts": (1, 4), "enrich": (1, 4)}, dedicated={"h3": frozenset({"counts"})}
    )
    assert "h3" in slots(world, "counts")
    assert "h3" not in world.placement("enrich").hosts
    drain = world.begin("d1", kind="drain", host="h2")
    world.settle()
    assert drain.ok, sentences_of(drain)
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
    assert (
        "because budget.counts allows 0 of its 3 slots to be missing" in sentences_of(drain)[Step.PREFLIGHT]
    )
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
    assert drain.ok, sentences_of(drain)
