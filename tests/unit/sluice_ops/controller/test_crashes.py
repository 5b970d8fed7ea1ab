"""Deaths at any moment: the pipeline recovers, the runbook ends with a true result, and no unit is
left over.
"""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from simulation.world import TIERS, World, host

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import Standby, awaits_upgrade
from sluice_ops.planning.placement.shares import target
from sluice_ops.snapshot.view import read_view

pytestmark = pytest.mark.timeout(240)


@cache
def settled_world(cpu=8.0):
    """Return a world of four tiers: one with a hot standby, and one with a warm standby."""
    entry, *others, last = TIERS
    ready = last.model_copy(update={"standby": Standby.WARM})
    world = World(
        hosts=[host(f"h{number}", labels=("fast",) if number == 1 else (), cpu=cpu) for number in (1, 2, 3)],
        tiers=(entry.model_copy(update={"standby": Standby.HOT}), *others, ready),
    )
    world.publish("r1-good")
    return world.bring_up()


def drained_world():
    world = deepcopy(settled_world())
    return world, world.begin("d1", kind="drain", host=world.placement("enrich").driver)


def check_end(world, runbook):
    world.settle()
    world.check_settled()
    target = runbook.spec.host
    if runbook.ok:
        assert world.host_state(target) is HostState.DRAINED
    else:
        assert runbook.results[Step.ABORT].ok, runbook.results
        assert world.host_state(target) is HostState.UP
    assert {world.state(name) for name in world.specs} == {State.RUNNING}


@pytest.mark.parametrize("tier", ["enrich", "counts"])
@pytest.mark.parametrize("role", ["owner", "next"])
def test_the_pipeline_recovers_from_a_driver_killed_during_a_drain(tier, role):
    for moment in range(1, 25, 2):
        world, runbook = drained_world()
        for _ in range(moment):
            world.tick()
        if runbook.ended:
            break
        record = world.owner(tier)
        number = record.owner if role == "owner" else record.next
        if number is not None:
            world.kill_driver(tier, number)
        check_end(world, runbook)


@pytest.mark.parametrize("which", ["h1", "h2", "h3"])
def test_the_pipeline_recovers_from_a_host_lost_during_a_drain(which):
    for moment in range(1, 25, 3):
        world, runbook = drained_world()
        for _ in range(moment):
            world.tick()
        if runbook.ended:
            break
        world.agents[which].die()
        world.until(lambda runbook=runbook: runbook.ended, 400)
        world.agents[which].register()
        world.settle()
        world.check_settled()
        assert {world.state(name) for name in world.specs} == {State.RUNNING}


def test_an_abort_at_any_moment_of_a_drain_restores_a_running_pipeline():
    for moment in range(1, 25):
        world, runbook = drained_world()
        if not runbook.abort_after(moment):
            break
        assert {world.state(name) for name in world.specs} == {State.RUNNING}
        assert {world.host_state(name) for name in world.agents} == {HostState.UP}


def layers(world):
    stored = world.channel.read(paths.LAYERS, Layers)
    return Layers() if stored is None else stored.value


class Operators(RuleBasedStateMachine):
    """Operators, faults and time, in any order."""

    cpu = 8.0

    def __init__(self):
        super().__init__()
        self.world = deepcopy(settled_world(self.cpu))
        self.world.add_host(host("e1", zone="ec2"))
        for agent in self.world.agents.values():
            agent.task_seconds = 5.0
        for release in ("r2-good", "r3-bad"):
            self.world.publish(release)
        for log in self.world.logs.values():
            log.sets_aside["r3-bad"] = 50
        self.count, self.published = 0, 3

    def begin(self, **spec):
        self.count += 1
        self.world.begin(f"c{self.count}", deadline=60.0, **spec)

    @rule(ticks=st.integers(1, 6))
    def time_passes(self, ticks):
        for _ in range(ticks):
            self.world.tick()

    @rule(
        kind=st.sampled_from(
            [
                "drain",
                "return",
                "reboot",
                "leave",
                "pause",
                "resume",
            ]
        ),
        name=st.sampled_from(["h1", "h2", "h3"]),
    )
    def a_host_or_the_pipeline_is_changed(self, kind, name):
        on_host = kind in {"drain", "return", "reboot"}
        self.begin(kind=kind, host=name if on_host else None)

    @rule(
        tier=st.sampled_from(["entry", "enrich", "counts", "outbound"]),
        k=st.integers(1, 3),
        seconds=st.none() | st.integers(5, 60),
    )
    def a_tier_is_scaled(self, tier, k, seconds):
        self.begin(kind="scale", tier=tier, k=k, until=None if seconds is None else self.world.now + seconds)

    @rule(k=st.integers(0, 2), seconds=st.none() | st.integers(5, 60))
    def batch_is_lent_slots(self, k, seconds):
        self.begin(
            kind="scale",
            tier="batch",
            k=k,
            until=None if seconds is None else self.world.now + seconds,
        )

    @rule(
        tier=st.sampled_from(["enrich", "counts"]),
        to=st.sampled_from(["h1", "zone:onprem", "label:fast", "anywhere"]),
    )
    def a_tier_is_migrated(self, tier, to):
        self.begin(kind="migrate", tier=tier, to=to)

    @rule(
        tier=st.sampled_from(["entry", "enrich", "counts"]),
        release=st.sampled_from(["r1-good", "r2-good", "r3-bad", None]),
    )
    def a_tier_is_upgraded(self, tier, release):
        self.begin(kind="upgrade", tier=tier, release=release)

    @rule(tier=st.sampled_from(["entry", "enrich", "counts", "outbound"]))
    def a_tier_becomes_light_or_is_light_no_more(self, tier):
        spec = self.world.specs[tier]
        self.world.specs[tier] = spec.model_copy(update={"light": not spec.light})
        self.published += 1
        self.world.publish(f"r{self.published}-good")

    @rule(partitions=st.integers(1, 4), lost=st.integers(0, 1))
    def a_state_is_repartitioned(self, partitions, lost):
        self.world.logs["counts"].keys_lost = lost
        self.begin(kind="repartition", tier="counts", partitions=partitions)

    @rule(tier=st.sampled_from(["enrich", "counts"]))
    def a_tier_bursts(self, tier):
        self.begin(kind="burst", tier=tier)

    @rule(shift=st.sampled_from(["night", "day"]))
    def the_shift_changes(self, shift):
        self.begin(kind="shift", shift=shift)

    @rule(tier=st.sampled_from(["entry", "enrich", "counts", "outbound"]), next_one=st.booleans())
    def a_driver_is_killed(self, tier, next_one):
        record = self.world.owner(tier)
        number = record.next if next_one else record.owner
        assume(number is not None)
        self.world.kill_driver(tier, number)

    @rule(name=st.sampled_from(["h1", "h2", "h3", "e1"]))
    def a_host_dies_or_comes_back(self, name):
        agent = self.world.agents[name]
        if agent.alive and sum(other.alive for other in self.world.agents.values()) > 3:
            agent.die()
        elif not agent.alive:
            agent.register()

    @precondition(lambda self: self.world.runbooks and not self.world.runbooks[-1].ended)
    @rule()
    def a_runbook_is_aborted(self):
        runbook = self.world.runbooks[-1]
        runbook.post(Step.ABORT)
        runbook.left = []

    @rule(tier=st.sampled_from(["entry", "counts"]))
    def a_tier_is_stopped_or_started(self, tier):
        self.world.want(tier, running=not self.world.wanted(tier).running)

    def teardown(self):
        world = self.world
        for agent in world.agents.values():
            if not agent.alive:
                agent.register()
        world.until(lambda: all(runbook.ended for runbook in world.runbooks), 1500)
        world.logs["counts"].keys_lost = 0
        for name in ("h1", "h2", "h3"):
            while (
                world.host_state(name) is not HostState.UP
            ):  # the controller's own changes may hold the lock
                self.begin(kind="return", host=name)
                world.until(lambda: world.runbooks[-1].ended)
        for name in world.specs:
            world.want(name, running=True, paused=False, attempt=world.wanted(name).attempt + 1)
        world.until(lambda: not [entry for entry in layers(world).entries if entry.until is not None], 1500)
        world.settle()
        world.check_settled()
        assert {world.state(name) for name in world.specs} == {State.RUNNING}
        view = read_view(world.channel)
        light = frozenset(name for name, tier in view.tiers.items() if tier.spec.light)
        rules = replace(world.rules, layers=layers(world), light=light)
        for name, spec in world.specs.items():
            running, wanted = world.incarnation(name, world.owner(name).owner), world.wanted(name)
            assert (running.release, running.partitions) == (wanted.release, wanted.partitions)
            workers = len(running.placement.slots)
            assert workers == target(name, rules).k or awaits_upgrade(spec, workers, running.release)
            assert not workers or name not in light


class ShortOfRoom(Operators):
    """The same operators on hosts with too little room: no host ever holds more than its capacity,
    and every runbook ends.
    """

    cpu = 4.5

    def teardown(self):
        world = self.world
        for agent in world.agents.values():
            if not agent.alive:
                agent.register()
        world.until(lambda: all(runbook.ended for runbook in world.runbooks), 1500)


MANY = settings(max_examples=15, stateful_step_count=20, suppress_health_check=list(HealthCheck))
TestOperators = Operators.TestCase
TestOperators.settings = MANY
TestShortOfRoom = ShortOfRoom.TestCase
TestShortOfRoom.settings = MANY
