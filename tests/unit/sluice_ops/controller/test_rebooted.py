"""A host is used again after a reboot only when its agent has found it sound, and a worker has
processed records there.
"""

from dataclasses import replace

import pytest
from simulation.world import HOSTS, RULES, World, host, tier

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState, Observed, UnitKind
from sluice_ops.model.change import ChangeState, Step
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from tests.unit.sluice_ops.controller.test_every_step import changes

BAD = ("disk: 10 MiB free",)


def running(**more):
    """Return a world in which all tiers run."""
    return World(**{"hosts": (*HOSTS, host("h4")), **more}).bring_up()


def rebooting(findings, **spec):
    """Return a world in which a host reboots and then has these findings, and the runbook."""
    world = running()
    world.agents["h1"].findings = findings
    return world, world.begin("c1", deadline=60.0, **spec)


def canary_of(world, runbook):
    """Wait until a canary is prepared, and return its tier and its number."""
    world.until(lambda: any(change.canaries for change in changes(world)))
    assert runbook.current is Step.CANARY
    ((name, number),) = changes(world)[0].canaries.items()
    return name, number


def slots_on(world, name):
    return [unit.id for unit in world.assigned(name) if unit.kind is UnitKind.SLOT]


def silence(world):
    """Have new workers process no record."""
    for log in world.logs.values():
        log.first_records = None


def test_a_reboot_waits_until_the_host_is_sound():
    world, runbook = rebooting(BAD, kind="reboot", host="h1")
    world.until(lambda: runbook.current is Step.HEALTH)
    for _ in range(5):
        world.tick()
    assert world.host_state("h1") is HostState.DRAINED
    world.agents["h1"].findings = None
    world.tick()
    assert runbook.current is Step.HEALTH, "not checked yet"
    world.agents["h1"].findings = ()
    world.settle()
    assert runbook.ok
    assert world.host_state("h1") is HostState.UP


def test_a_host_that_is_not_sound_keeps_its_whole_batch_cordoned():
    world, runbook = rebooting(BAD, kind="reboot-hosts", hosts=("h1", "h2"))
    world.settle()
    failed = runbook.results[Step.HEALTH].sentence
    assert "h1 is not sound: disk: 10 MiB free" in failed
    assert "`sluice doctor --host h1`" in failed
    assert (world.host_state("h1"), world.host_state("h2")) == (HostState.CORDONED, HostState.CORDONED)
    assert [change.state for change in changes(world)] == [ChangeState.ABORTED]


def test_an_abort_before_the_reboot_ignores_what_an_earlier_check_found():
    world, runbook = rebooting(BAD, kind="reboot", host="h1")
    world.until(lambda: runbook.current is Step.CUT)
    runbook.abort()
    world.settle()
    assert world.host_state("h1") is HostState.UP


def test_an_older_agent_makes_no_check(monkeypatch):
    world, runbook = rebooting((), kind="reboot", host="h1")
    put = world.channel.put

    def put_as_older(path, value, **more):
        if path == paths.observed("h1") and isinstance(value, Observed):
            value = value.model_copy(update={"boot": None, "findings": None})
        put(path, value, **more)

    monkeypatch.setattr(world.channel, "put", put_as_older)
    world.settle()
    assert runbook.ok


def test_a_worker_processes_records_on_a_rebooted_host_before_it_returns():
    world = running()
    runbook = world.begin("c1", kind="reboot", host="h1")
    name, number = canary_of(world, runbook)
    assert name == "outbound", "the tier without state costs least"
    assert world.host_state("h1") is HostState.DRAINED
    assert slots_on(world, "h1") == [f"slot-outbound-{number}-0"]
    world.settle()
    assert runbook.ok, runbook.results
    assert f"h1's canary slot-outbound-{number}-0 has processed" in runbook.results[Step.CANARY].sentence
    assert world.owner("outbound").owner < number, "no tier was handed over"
    assert (world.host_state("h1"), slots_on(world, "h1")) == (HostState.UP, [])
    world.check_settled()


def test_a_rebooted_host_whose_worker_processes_nothing_stays_cordoned():
    world = running()
    silence(world)
    runbook = world.begin("c1", kind="reboot", host="h1")
    world.settle()
    failed = runbook.results[Step.CANARY].sentence
    assert "the workers of outbound on h1 can take tasks, but processed no record in 60 s" in failed
    assert "h1 is cordoned, and outbound goes on as before" in failed
    assert "try again: `sluice return h1 && sluice canary h1`" in failed
    assert (world.host_state("h1"), slots_on(world, "h1")) == (HostState.CORDONED, [])
    world.check_settled()


def test_a_proved_host_of_a_batch_returns_when_another_is_not_proved():
    world = running(tiers=[tier("counts", Mode.BATCH, 0)])
    runbook = world.begin("c1", kind="reboot-hosts", hosts=("h1", "h2"))
    canary_of(world, runbook)
    world.until(lambda: "h1" in changes(world)[0].proofs)
    silence(world)
    world.settle()
    assert not runbook.ok
    assert (world.host_state("h1"), world.host_state("h2")) == (HostState.UP, HostState.CORDONED)
    world.check_settled()


def test_of_two_hosts_only_the_one_without_a_proof_stays_cordoned():
    shares = {"counts": Share(minimum=1, target=2, maximum=4)}
    world = running(tiers=[tier("counts", Mode.BATCH, 0)], rules=replace(RULES, shares=shares, shifts={}))
    world.logs["counts"].idle = ("-1",)
    runbook = world.begin("c1", kind="reboot-hosts", hosts=("h1", "h2"))
    world.settle()
    assert not runbook.ok
    assert {world.host_state(name) for name in ("h1", "h2")} == {HostState.UP, HostState.CORDONED}
    world.check_settled()


@pytest.mark.parametrize(("target", "canaries"), [(1, 2), (2, 1)])
def test_a_tier_proves_as_many_hosts_at_once_as_it_has_workers(target, canaries):
    shares = {"counts": Share(minimum=1, target=target, maximum=4)}
    world = running(tiers=[tier("counts", Mode.BATCH, 0)], rules=replace(RULES, shares=shares, shifts={}))
    runbook = world.begin("c1", kind="reboot-hosts", hosts=("h1", "h2"))
    numbers = set()

    def note():
        numbers.update(number for change in changes(world) for number in change.canaries.values())
        return runbook.ended

    world.until(note)
    assert runbook.ok, runbook.results
    assert len(numbers) == canaries
    sentence = runbook.results[Step.CANARY].sentence
    assert "h1's canary slot-counts-" in sentence
    assert "h2's canary slot-counts-" in sentence


def test_a_host_that_may_hold_no_tier_returns_without_a_canary():
    world = running(rules=replace(RULES, dedicated={"h1": frozenset({"batch"})}))
    runbook = world.begin("c1", kind="reboot", host="h1")
    world.settle()
    assert runbook.ok, runbook.results
    sentence = runbook.results[Step.CANARY].sentence
    assert "h1 has no canary, because no single worker can move to h1" in sentence
    assert world.host_state("h1") is HostState.UP


def test_a_tier_that_is_short_of_workers_proves_a_host():
    shares = {"counts": Share(minimum=1, target=2, maximum=4)}
    world = running(
        hosts=[host("h1", cpu=3)],
        tiers=[tier("counts", Mode.BATCH, 0)],
        rules=replace(RULES, shares=shares, shifts={}),
    )
    world.add_host(host("h2", cpu=2))
    runbook = world.begin("c1", kind="reboot", host="h1")
    canary_of(world, runbook)
    assert world.placement("counts").slots == ("h2",)
    world.settle()
    assert "h1's canary slot-counts-" in runbook.results[Step.CANARY].sentence


def test_a_canary_that_ends_fails_the_reboot():
    world = running()
    runbook = world.begin("c1", kind="reboot", host="h1")
    name, number = canary_of(world, runbook)
    world.until(lambda: world.driver(name, number) is not None)
    world.kill_driver(name, number)
    world.settle()
    failed = runbook.results[Step.CANARY].sentence
    assert f"{name}: incarnation {number} ended before it took over, because it" in failed
    assert world.host_state("h1") is HostState.CORDONED
    world.check_settled()


def test_a_canary_that_takes_over_still_has_to_prove_the_host():
    world = running()
    silence(world)
    runbook = world.begin("c1", kind="reboot", host="h1")
    name, number = canary_of(world, runbook)
    world.until(lambda: world.driver(name, number) is not None)
    world.kill_driver(name)
    world.until(lambda: world.owner(name).owner == number)
    for _ in range(10):
        world.tick()
    assert runbook.current is Step.CANARY
    for log in world.logs.values():
        log.first_records = 5
    world.settle()
    assert runbook.ok, runbook.results
    assert (world.owner(name).owner, slots_on(world, "h1")) == (number, [f"slot-{name}-{number}-0"])
    world.check_settled()


def test_an_abort_of_the_canary_cordons_the_host():
    world = running()
    runbook = world.begin("c1", kind="reboot", host="h1")
    name, number = canary_of(world, runbook)
    runbook.abort()
    world.settle()
    assert (world.host_state("h1"), slots_on(world, "h1")) == (HostState.CORDONED, [])
    assert world.owner(name).owner < number
    world.check_settled()
