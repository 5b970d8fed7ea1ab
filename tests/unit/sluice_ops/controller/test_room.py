"""Short room: batch gives slots back, minimums come first, and given-up workers return
automatically.
"""

from dataclasses import replace

from simulation.world import RULES, World, host, tier

from sluice_ops.model.assignment import HostState, UnitState
from sluice_ops.model.change import Step
from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.queries.progress import STUCK_SECONDS, Verdict, progress
from sluice_ops.snapshot.view import read_view

TASKS = 30.0


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world, name):
    return len(world.placement(name).slots)


def lent(world):
    return [unit.id for name in world.agents for unit in world.assigned(name) if unit.tenant == BATCH]


def pipeline(*hosts, batch=(0, 2), state=False, **shares):
    """Return a pipeline on the hosts, with batch lent its share; a tier's share is its minimum and
    its target.
    """
    rules = replace(
        RULES,
        shares={
            **{name: Share(minimum=low, target=wanted, maximum=8) for name, (low, wanted) in shares.items()},
            BATCH: Share(minimum=batch[0], target=batch[1], maximum=8),
        },
        partitions=8,
    )
    tiers = [tier(name, Mode.BATCH, number, state=state) for number, name in enumerate(shares)]
    world = World(hosts=hosts, tiers=tiers, rules=rules)
    for agent in world.agents.values():
        agent.task_seconds = TASKS
    return world.bring_up()


def pass_time(world, seconds):
    for _ in range(int(seconds)):
        world.tick()


def test_a_raised_share_takes_free_room_before_batchs_slots():
    world = pipeline(host("h1", cpu=9), counts=(1, 1))
    assert len(lent(world)) == 2
    runbook = world.begin("s1", kind="scale", tier="counts", k=3)
    world.settle()
    assert runbook.ok, sentences(runbook)
    assert (slots(world, "counts"), len(lent(world))) == (3, 2)


def test_a_raised_share_waits_for_as_few_batch_tasks_as_possible():
    world = pipeline(host("h1", cpu=6.5), batch=(0, 3), state=True, counts=(1, 1))
    assert len(lent(world)) == 3
    runbook = world.begin("s1", kind="scale", tier="counts", k=2)
    world.until(
        lambda: any(
            "slot(s) of batch on h1, whose tasks may run for 50 s more" in sentence
            for sentence in world.sentences
        )
    )
    began = world.now
    assert slots(world, "counts") == 1, "the running worker continues"
    assert len(lent(world)) == 2
    world.until(lambda: runbook.ended)
    assert runbook.ok, sentences(runbook)
    assert "batch gives back 1 slot, within 60 s" in sentences(runbook)[Step.PREFLIGHT]
    assert world.now - began >= TASKS - 2
    world.settle()
    assert (slots(world, "counts"), len(lent(world))) == (2, 3), (
        "the room of the old incarnation is lent again"
    )


def test_a_wait_for_batch_tasks_is_not_stuck_within_their_time_limit():
    world = pipeline(host("h1", cpu=6.5), batch=(0, 3), state=True, counts=(1, 1))
    for agent in world.agents.values():
        agent.task_seconds = 2 * STUCK_SECONDS
    runbook = world.begin("s1", kind="scale", tier="counts", k=2)
    verdicts = set()
    while not runbook.ended:
        world.tick()
        if any(
            state is UnitState.STOPPING
            for agent in world.agents.values()
            for state, *_ in agent.units.values()
        ):
            verdicts.add(progress(read_view(world.channel), "s1", world.now).verdict)
    assert runbook.ok, sentences(runbook)
    assert verdicts == {Verdict.ON_TIME}


def test_batch_keeps_its_minimum_and_the_refusal_names_the_free_room():
    world = pipeline(host("h1", cpu=6.5), batch=(3, 3), state=True, counts=(1, 1))
    runbook = world.begin("s1", kind="scale", tier="counts", k=2)
    world.settle()
    assert not runbook.ok
    assert "find no room; free: h1 0 cpu" in sentences(runbook)[Step.PREFLIGHT]
    assert len(lent(world)) == 3
    world.check_settled()


def test_a_started_tier_takes_the_room_of_batch():
    world = pipeline(host("h1", cpu=4), batch=(0, 4), counts=(1, 2))
    world.want("counts", running=False)
    world.settle()
    pass_time(world, 5)
    assert len(lent(world)) == 4
    world.want("counts", running=True)
    world.until(lambda: "slot(s) of batch on h1" in world.statuses["counts"].sentence)
    world.settle()
    assert slots(world, "counts") == 2
    pass_time(world, 5)
    assert len(lent(world)) == 1


def test_after_lost_hosts_minimums_come_first_and_full_shares_on_return():
    world = pipeline(host("h1", cpu=4.5), host("h2", cpu=4.5), batch=(0, 0), counts=(1, 3), enrich=(1, 3))
    assert {slots(world, name) for name in world.specs} == {3}
    for name in world.specs:
        world.want(name, running=False)
    world.settle()
    world.agents["h2"].die()
    pass_time(world, 15)
    world.want(running=True)
    world.settle()
    assert {name: slots(world, name) for name in world.specs} == {"counts": 2, "enrich": 1}
    world.agents["h2"].register()
    world.settle()
    pass_time(world, 60)
    assert {name: slots(world, name) for name in world.specs} == {"counts": 3, "enrich": 3}
    world.check_settled()


def test_a_tier_below_its_minimum_says_so_and_other_tiers_keep_theirs():
    world = pipeline(host("h1", cpu=4), batch=(1, 1), counts=(1, 1))
    world.declare(tier("enrich", Mode.BATCH, 1))
    world.logs["enrich"] = type(world.logs["counts"])()
    world.rules = replace(world.rules, shares={**world.rules.shares, "enrich": Share(minimum=2, target=3)})
    world.want("enrich")
    pass_time(world, 10)
    assert (
        'cannot start: tier "enrich": 1 of 2 units (1 cpu, 1024 MiB each) find no room'
        in world.statuses["enrich"].sentence
    )
    assert (slots(world, "counts"), len(lent(world))) == (1, 1)


def test_a_drain_with_little_room_keeps_minimums_and_restores_the_rest():
    world = pipeline(host("h1", cpu=6.5), host("h2", cpu=6.5), batch=(0, 0), counts=(1, 3), enrich=(1, 3))
    drain = world.begin("d1", kind="drain", host="h2")
    world.settle()
    assert drain.ok, sentences(drain)
    assert world.host_state("h2") is HostState.DRAINED
    held = {name: slots(world, name) for name in world.specs}
    assert all(1 <= k <= 3 for k in held.values())
    assert sum(held.values()) < 6
    assert "fewer than its share: room is short" in sentences(drain)[Step.PREFLIGHT]
    back = world.begin("r1", kind="return", host="h2")
    world.settle()
    assert back.ok, sentences(back)
    pass_time(world, 100)
    assert {name: slots(world, name) for name in world.specs} == {"counts": 3, "enrich": 3}
    world.check_settled()


def test_a_drain_that_breaks_a_minimum_is_refused_with_names_and_numbers():
    world = pipeline(host("h1", cpu=7), host("h2", cpu=7), batch=(0, 0), counts=(3, 3), enrich=(3, 3))
    drain = world.begin("d1", kind="drain", host="h2")
    world.settle()
    reason = sentences(drain)[Step.PREFLIGHT]
    assert "there is no room for the minimum of each tier that moves (" in reason
    assert "counts 3" in reason or "enrich 3" in reason
    assert "find no room" in reason
    assert world.host_state("h2") is HostState.UP


def test_batch_returns_at_once_the_slots_that_tiers_lost_with_one_host():
    world = pipeline(
        host("h1", cpu=8), host("h2", cpu=6.5), host("h3", cpu=7), batch=(0, 0), counts=(1, 4), enrich=(1, 4)
    )
    world.rules = replace(
        world.rules, shares={**world.rules.shares, BATCH: Share(minimum=0, target=20, maximum=20)}
    )
    pass_time(world, 10)
    lost = {name: world.placement(name).slots.count("h2") for name in world.specs}
    assert lost == {"counts": 1, "enrich": 2}
    assert not {world.placement(name).driver for name in world.specs} & {"h2"}
    elsewhere = {unit.id for name in ("h1", "h3") for unit in world.assigned(name) if unit.tenant == BATCH}
    world.agents["h2"].die()
    world.until(lambda: any("whose tasks may run" in status.sentence for status in world.statuses.values()))
    assert len(elsewhere - {*lent(world)}) == 3
    pass_time(world, TASKS + 5)
    assert not any("h2" in world.placement(name).slots for name in world.specs), (
        "tiers do not wait for a second round of tasks"
    )
    assert len(elsewhere - {*lent(world)}) == 3


def test_batch_keeps_slots_that_a_starting_tier_may_not_use():
    world = pipeline(host("h1", cpu=3), host("h2", cpu=20), batch=(0, 0), counts=(1, 2))
    world.want("counts", running=False)
    world.settle()
    world.rules = replace(
        world.rules,
        shares={**world.rules.shares, BATCH: Share(minimum=0, target=4, maximum=8)},
        dedicated={"h2": frozenset({BATCH})},
    )
    pass_time(world, 5)
    held = {name: [unit.id for unit in world.assigned(name) if unit.tenant == BATCH] for name in world.agents}
    assert all(held.values()), held
    world.want("counts", running=True)
    world.until(lambda: "slot(s) of batch on h1" in world.statuses["counts"].sentence)
    assert held["h2"] == [unit.id for unit in world.assigned("h2")]


def test_a_shift_lowers_a_tier_on_a_full_host_in_two_handovers():
    world = pipeline(host("h1", cpu=7), batch=(0, 0), state=True, counts=(1, 4))
    world.rules = replace(world.rules, shifts={"night": {"counts": Numbers(target=3)}})
    night = world.begin("n1", kind="shift", shift="night")
    world.until(lambda: night.ended)
    assert night.ok, sentences(night)
    assert slots(world, "counts") == 2
    assert (
        "counts gets 2 slots, 1 fewer than its share, until its 4 old slots are released"
        in sentences(night)[Step.PREFLIGHT]
    )
    pass_time(world, 60)
    assert slots(world, "counts") == 3
    world.check_settled()


def test_the_alternatives_that_a_refusal_names_work():
    world = pipeline(host("h1", cpu=7), batch=(0, 0), state=True, counts=(1, 4))
    refused = world.begin("s1", kind="scale", tier="counts", k=3)
    world.settle()
    assert (
        "run `sluice scale counts 2` and then `sluice scale counts 3`; or accept a gap in the output"
        in sentences(refused)[Step.PREFLIGHT]
    )
    for number, k in enumerate((2, 3), start=2):
        step = world.begin(f"s{number}", kind="scale", tier="counts", k=k)
        world.settle()
        assert step.ok, sentences(step)
        assert slots(world, "counts") == k


def test_a_stop_and_a_start_lower_a_number_on_a_full_host():
    world = pipeline(host("h1", cpu=4.5), batch=(0, 0), state=True, counts=(1, 4))
    world.want("counts", running=False)
    world.settle()
    scale = world.begin("s1", kind="scale", tier="counts", k=3)
    world.settle()
    assert scale.ok, sentences(scale)
    world.want("counts", running=True)
    world.settle()
    assert slots(world, "counts") == 3


def test_a_change_leaves_room_for_the_minimum_of_a_stopped_tier():
    world = pipeline(host("h1", cpu=6.5), batch=(0, 0), counts=(1, 1), enrich=(2, 2))
    world.kill_driver("enrich")
    for _ in range(3):  # waits longer after each failure
        world.until(lambda: world.state("enrich") is None or world.driver("enrich") is not None)
        world.kill_driver("enrich")
        world.tick()
    runbook = world.begin("s1", kind="scale", tier="counts", k=4)
    world.settle()
    assert slots(world, "enrich") == 2
    assert not runbook.ok
