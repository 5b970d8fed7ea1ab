"""A new host counts as proved once a worker of a tier has processed records there."""

from simulation.world import RULES, World, host

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step


def with_new_host(**more):
    """Return a world with a host that joined a moment ago."""
    world = World(hosts=(host("h1"), host("h2")), **more)
    world.bring_up()
    world.add_host(host("h3"))
    world.tick()
    return world


def canary(world):
    runbook = world.begin("c1", kind="canary", host="h3")
    world.until(lambda: runbook.ended)
    return runbook


def test_a_worker_of_a_tier_without_state_processes_records_there():
    world = with_new_host()
    runbook = canary(world)
    assert runbook.ok, runbook.results
    assert world.placement("outbound").slots == ("h3",)
    assert "worker 0 of outbound is to process records on h3" in runbook.results[Step.PREFLIGHT].sentence
    assert "h3's canary slot-outbound-2-0 has processed" in runbook.results[Step.CUT].sentence
    world.settle()
    world.check_settled()


def test_a_host_whose_worker_processes_nothing_is_cordoned():
    world = with_new_host()
    for log in world.logs.values():
        log.first_records = None
    runbook = canary(world)
    assert not runbook.ok
    failed = runbook.results[Step.CUT].sentence
    assert "the workers of outbound on h3 can take tasks, but processed no record in 60 s" in failed
    assert "try again: `sluice return h3 && sluice canary h3`" in failed
    world.settle()
    assert world.host_state("h3") is HostState.CORDONED
    assert world.owner("outbound").owner == 1, "the tier stays where it was"


def test_a_host_that_is_not_sound_gets_no_worker():
    world = with_new_host()
    world.agents["h3"].findings = ("disk: 10 MiB free",)
    world.tick()
    runbook = world.begin("c1", deadline=30.0, kind="canary", host="h3")
    world.until(lambda: runbook.ended)
    assert "h3 is not sound: disk: 10 MiB free" in runbook.results[Step.HEALTH].sentence
    assert world.host_state("h3") is HostState.CORDONED


def test_a_host_that_may_hold_no_tier_is_refused():
    world = with_new_host(
        rules=RULES.__class__(shares=RULES.shares, partitions=4, dedicated={"h3": frozenset({"batch"})})
    )
    refused = canary(world).results[Step.PREFLIGHT]
    assert "no single worker can move to h3" in refused.sentence


def test_a_cordoned_host_is_refused_with_the_next_step():
    world = with_new_host()
    cordon = world.begin("c0", kind="cordon", host="h3")
    world.until(lambda: cordon.ended)
    refused = canary(world).results[Step.PREFLIGHT]
    assert refused.sentence == "host h3 is cordoned, so no worker can move there; run `sluice return h3`"
