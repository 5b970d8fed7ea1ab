"""The controller is killed at every write of every kind of operation, and within it; the next one
knows nothing but the channel.
"""

from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cache

import pytest
from simulation.memory import MemoryChannel
from simulation.world import HOSTS, RULES, TIERS, World, host, tier

from sluice_ops.channel import ConflictError, Guard, Write, trail_queue
from sluice_ops.controller.leader import Absences
from sluice_ops.controller.pass_state import Draft, Moment
from sluice_ops.controller.policies import batch
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.controller.split_writes import split_writes
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import (
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    EpochRecord,
    Move,
    Operation,
    Plan,
    Result,
    Step,
)
from sluice_ops.model.share import Layers, Numbers, Share
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import holding
from sluice_ops.planning.placement.shares import target
from sluice_ops.process.durations import TimestampAges
from sluice_ops.snapshot.view import look

pytestmark = pytest.mark.timeout(240)

SESSION_SECONDS = 6
"""How long nobody leads when a controller dies without a word."""
LOST_SECONDS = 8.0
LATER_SECONDS = 40.0
"""A stride in which a thing that was forgotten would be done."""
QUIET_TICKS = 45
MOST_WRITES = 200
OLD, NEW = "r1-aaaaaaaa", "r2-bbbbbbbb"


class Forking(MemoryChannel):
    """Its values are immutable, so a copy shares them."""

    def __deepcopy__(self, memo):
        twin = copy(self)
        twin.nodes, twin.made = dict(self.nodes), dict(self.made)
        twin.below = {path: set(names) for path, names in self.below.items()}
        memo[id(self)] = twin
        return twin


class Mortal(World):
    """A world whose controller writes as the real one does: under its epoch, in portions as small
    as can be, its status last.
    """

    def __init__(self, **more):
        super().__init__(channel=Forking(), **more)
        self.written = None
        """Of each pass that wrote: the world before it, and its portions."""
        self.cursed = False
        """Whether every controller dies after the first portion that it writes."""
        self.epoch = 0
        self.take_office()

    def take_office(self):
        self.epoch += 1
        self.channel.put(paths.EPOCH, EpochRecord(epoch=self.epoch, leader=f"c{self.epoch}"))
        self.absences, self.ages, self.settled = (
            Absences(LOST_SECONDS, self.clock),
            TimestampAges(self.clock),
            None,
        )

    def guarded(self, portion, epoch=None):
        self.channel.multi([Guard(paths.EPOCH, (epoch or self.epoch) - 1), *portion])

    def twin(self):
        written, self.written, self.settled = self.written, None, None
        made = deepcopy(self)
        self.written = written
        return made

    def controller_pass(self):
        view, decision = self.decide()
        self.sentences.append(decision.sentence)
        self.statuses = decision.tiers
        status = ControllerStatus(
            leader=f"c{self.epoch}",
            epoch=self.epoch,
            at=self.wall(),
            sentence=decision.sentence,
            tiers=decision.tiers,
            braked=decision.braked,
        )
        writes = list(decision.writes)
        if view.status is None or view.status.model_copy(update={"at": status.at}) != status:
            writes.append(Write(paths.CONTROLLER_STATUS, status, view.versions.get(paths.CONTROLLER_STATUS)))
        found = split_writes(writes, view, 1)
        if self.written is not None and decision.writes:
            self.written.append((self.twin(), found))
        for portion in found:
            self.guarded(portion)
            if self.cursed and decision.writes:
                self.take_office()
                break
        self.check()
        return bool(decision.writes)

    def dies(self, unwritten, away):
        """Another controller takes office, at once or when the session has ended; what the dead one
        still sends is refused.
        """
        for _ in range(away):
            self.now += 1
            for each in (*self.agents.values(), *self.runbooks):
                each.step()
            self.check()
        before = self.epoch
        self.take_office()
        for portion in unwritten:
            with pytest.raises(ConflictError):
                self.guarded(portion, before)


# -- what is compared


def operations(world):
    """Return every step that was ever posted, and its result."""
    found = []
    for name in world.channel.children("/operations"):
        operation = world.channel.read(paths.operation(name), Operation)
        result = world.channel.read(paths.result(name), Result)
        if operation is not None:
            assert operation.version == 0, f"{name} was posted twice"
            assert result is None or result.version == 0, f"{name} was given its result twice"
            found.append((name, None if result is None else result.value.ok))
    return sorted(found)


def changes(world):
    found = (
        world.channel.read(paths.change(name), ChangeRecord) for name in world.channel.children("/changes")
    )
    return [found.value for found in found if found is not None]


def timed(world, name):
    """Return which of its incarnations' starts and stops were asked for, and are through."""
    specs = (world.incarnation(name, number) for number in world.channel.children(paths.incarnations(name)))
    return sorted(
        (
            spec.incarnation,
            *(told is not None and told.seconds is not None for told in (spec.start, spec.stop)),
        )
        for spec in specs
    )


def end(world):
    """Return all that is in the end, but for times and sentences."""
    layers = world.channel.read(paths.LAYERS, Layers)
    wanted = {name: world.wanted(name) for name in world.specs}
    owners = {name: world.owner(name) for name in world.specs}
    return {
        "operations": operations(world),
        "changes": sorted(
            (each.id, each.state, each.incarnations, sorted(each.receipts), sorted(each.took))
            for each in changes(world)
        ),
        "trail": sorted(
            (found.entry.change, found.entry.outcome) for found in trail_queue.queued(world.channel)
        ),
        "tiers": {
            name: (world.state(name), owners[name].model_dump(exclude={"epoch"})) for name in world.specs
        },
        "wanted": {
            name: (each.running, each.paused, each.paused_workers, each.release, each.partitions)
            for name, each in wanted.items()
        },
        "timed": {name: timed(world, name) for name in world.specs},
        "placements": {name: world.placement(name) for name in world.specs if owners[name].owner is not None},
        "units": {name: sorted(unit.id for unit in world.assigned(name)) for name in world.agents},
        "run": {name: sorted(agent.units) for name, agent in world.agents.items()},
        "hosts": {name: world.host_state(name) for name in world.agents},
        "layers": ()
        if layers is None
        else [entry.model_copy(update={"at": 0.0}) for entry in layers.value.entries],
        "lock": world.channel.exists(paths.LOCK),
    }


def is_over(world):
    active = any(change.state is ChangeState.ACTIVE for change in changes(world))
    return not active and all(runbook.ended for runbook in world.runbooks) and world.all_well()


def is_legal(world):
    """Have the independent checker look at where everything is, as at a plan that puts it there."""
    world.check_settled()
    draft = Draft(look(world.channel), Moment(now=world.wall(), lost=frozenset(), rules=world.rules))
    batch.slots_to_keep(draft).apply(draft)
    now = cluster(draft)
    stay = {
        name: replace(each, state=HostState.UP)
        for name, each in now.hosts.items()
        if each.state is HostState.CORDONED
    }
    now = replace(now, hosts={**now.hosts, **stay})
    for name, there in now.tiers.items():
        if there.placement is not None:
            gave = [
                each.spec.k
                for each in changes(world)
                if each.spec.k and each.id.startswith(f"settle-{name}-for-")
            ]
            short = target(name, now.rules).slots - gave[0] if gave else 0
            moves = (Move(tier=name, before=there.placement, after=there.placement, short=short),)
            without = replace(now, hosts=holding(now.hosts, there.spec, there.placement, -1))
            plan = Plan(moves=moves, batch_slots=now.batch, batch_kept=now.batch)
            again = ChangeSpec(kind="upgrade", tier=name, release="another")
            assert not violations(plan, again, without), (name, violations(plan, again, without))
        else:
            assert not there.wanted, f"{name} is without an owner"
    return True


# -- the cases


@cache
def running():
    """All tiers run an old release, and a new one is published; one has a warm standby."""
    *others, last = TIERS
    world = Mortal(
        hosts=(*HOSTS, host("e1", zone="ec2")),
        tiers=(*others, last.model_copy(update={"standby": Standby.WARM})),
    )
    world.publish(OLD)
    world.want()
    world.settle()
    world.tick(40.0)
    world.settle()
    world.publish(NEW)
    world.settle()
    return world


@cache
def empty():
    return Mortal()


@cache
def after(**spec):
    """What another change has left."""
    world = running().twin()
    world.begin("before", **spec)
    world.settle()
    assert world.runbooks.pop().ok
    return world


@cache
def spread():
    """Tiers that are on many hosts."""
    wide = {name: Share(minimum=1, target=4, maximum=8) for name in ("entry", "enrich", "counts", "outbound")}
    world = Mortal(
        hosts=[host(f"h{number}") for number in range(1, 11)],
        rules=replace(RULES, shares={**RULES.shares, **wide}, partitions=8),
    )
    world.want()
    world.settle()
    return world


@cache
def full():
    """A host that is full, where one tier is lowered by a shift and another one raised."""
    shares = {"near": Share(minimum=1, target=3, maximum=3), "far": Share(minimum=1, target=1, maximum=3)}
    shifts = {"night": {"near": Numbers(target=1), "far": Numbers(target=2)}}
    world = Mortal(
        hosts=(host("h1", cpu=6),),
        tiers=(tier("near", Mode.BATCH, 0), tier("far", Mode.BATCH, 1)),
        rules=replace(RULES, shares=shares, shifts=shifts),
    )
    world.want()
    world.settle()
    return world


@cache
def generous(mode=Mode.BATCH):
    """Two hosts that are full: on one is a tier that has more than its minimum, on the other one
    that has just that.
    """
    shares = {"near": Share(minimum=1, target=4, maximum=4), "far": Share(minimum=1, target=1, maximum=3)}
    world = Mortal(
        hosts=(host("h1", cpu=4.5), host("h2", cpu=2)),
        tiers=(tier("near", mode, 0), tier("far", Mode.BATCH, 1)),
        rules=replace(RULES, shares=shares, locality={"near": "h1"}, shifts={}),
    )
    world.want()
    world.settle()
    return world


@cache
def braked():
    world = spread().twin()
    for name in sorted({name for each in world.specs for name in world.placement(each).hosts})[:5]:
        world.agents[name].die()
    for _ in range(20):
        world.tick()
    assert world.sentences[-1].startswith("BRAKE")
    return world


@cache
def drifted(wait=None):
    """A third host has joined two on which everything is."""
    rules = replace(
        RULES, shares={"counts": Share(minimum=1, target=3, maximum=4)}, partitions=8, repair_seconds=wait
    )
    world = Mortal(hosts=(host("h1"), host("h2")), tiers=[tier("counts", Mode.BATCH, 0)], rules=rules)
    world.want()
    world.settle()
    world.add_host(host("h3"))
    return world


@dataclass(frozen=True)
class Case:
    """A world, and what somebody does in it."""

    world: object
    act: object
    kind: str | None = None


def change(kind, world=running, **spec):
    """A change that people ask for."""
    return Case(world, lambda world: world.begin("c1", kind=kind, **spec), kind)


def driver_host(world):
    return world.placement("enrich").driver


def on_host(kind):
    return Case(running, lambda world: world.begin("c1", kind=kind, host=driver_host(world)), kind)


def aborted(kind, at, world=running, **spec):
    """A change that is aborted in the middle of one of its steps."""

    def act(world):
        spec_of = spec or {"host": driver_host(world)}
        runbook = world.begin("c1", kind=kind, **spec_of)
        world.until(lambda: runbook.current is at)
        world.tick()
        runbook.abort()

    return Case(world, act)


CASES = {
    "cordon": on_host("cordon"),
    "drain": on_host("drain"),
    "reboot": on_host("reboot"),
    "return": change("return", lambda: after(kind="drain", host="h2"), host="h2"),
    "migrate": change("migrate", tier="enrich", to="h3"),
    "upgrade": change("upgrade", tier="enrich"),
    "repartition": change("repartition", tier="counts", partitions=6),
    "scale up": change("scale", tier="enrich", k=3),
    "scale down": change("scale", tier="enrich", k=1),
    "give up workers": change("scale", spread, tier="outbound", k=2),
    "give up workers for another tier": change("shift", full, shift="night"),
    "give up workers, in realtime": change("scale", lambda: generous(Mode.REALTIME), tier="near", k=2),
    "give up workers for a minimum": Case(generous, lambda world: world.agents["h2"].die(), "settle"),
    "give up workers for a minimum, in realtime": Case(
        lambda: generous(Mode.REALTIME), lambda world: world.agents["h2"].die(), "settle"
    ),
    "lend to batch": change("scale", tier="batch", k=2),
    "burst": change("burst", tier="enrich", k=1),
    "leave": change("leave", lambda: after(kind="burst", tier="enrich", k=1)),
    "night": change("shift", shift="night"),
    "day": change("shift", lambda: after(kind="shift", shift="night"), shift="day"),
    "settle": Case(
        running,
        lambda world: world.begin("c1", kind="scale", tier="enrich", k=3, until=world.wall() + 25),
        "settle",
    ),
    "repair": change("repair", drifted, tier="counts"),
    "repair by itself": Case(lambda: drifted(20.0), lambda _: None, "repair"),
    "pause": change("pause"),
    "pause a tier": change("pause", tier="enrich"),
    "pause a worker": Case(
        running,
        lambda world: world.begin(
            "c1", kind="pause", workers=(f"slot-enrich-{world.owner('enrich').owner}-0",)
        ),
        "pause",
    ),
    "resume": change("resume", lambda: after(kind="pause")),
    "write-off": change("write-off", braked),
    "abort of a drain": aborted("drain", Step.CUT),
    "abort of a reboot": aborted("reboot", Step.PREPARE),
    "abort of an upgrade": aborted("upgrade", Step.TRIAL, tier="enrich"),
    "abort of a repartition": aborted("repartition", Step.CUT, tier="counts", partitions=6),
    "abort of giving up workers": aborted("scale", Step.CUT, spread, tier="outbound", k=2),
    "abort of a pause": aborted("pause", Step.PAUSE, tier=None),
    "start": Case(empty, lambda world: world.want()),
    "stop": Case(running, lambda world: world.want(running=False)),
    "a driver dies": Case(running, lambda world: world.kill_driver("enrich")),
    "an owner with a standby dies": Case(running, lambda world: world.kill_driver("outbound")),
    "a host is lost": Case(running, lambda world: world.agents[driver_host(world)].die()),
}


@cache
def undisturbed(name):
    """Let it happen; return how it ends, and each write on the way there."""
    case = CASES[name]
    world = case.world().twin()
    case.act(world)
    world.written = []
    quiet = 0
    while quiet < QUIET_TICKS:
        before = len(world.written)
        world.tick()
        quiet = quiet + 1 if len(world.written) == before and is_over(world) else 0
        assert len(world.written) < MOST_WRITES, world.sentences[-4:]
    for _ in range(2):
        world.tick(LATER_SECONDS)
    return world, world.written


@pytest.mark.parametrize("name", CASES)
def test_a_new_controller_reaches_the_same_end_after_a_death_at_any_step(name):
    case = CASES[name]
    world, written = undisturbed(name)
    right = end(world)
    assert is_over(world)
    assert is_legal(world)
    assert written
    assert case.kind is None or case.kind in {each.spec.kind for each in changes(world)}
    for number, (before, found) in enumerate(written):
        for count in range(len(found) + 1):
            fork = before.twin()
            fork.checks_baseline = False
            for portion in found[:count]:
                fork.guarded(portion)
            fork.dies(found[count:], SESSION_SECONDS * ((number + count) % 2))
            where = f"{name}: died at write {number} of {len(written)}, after portion {count} of {len(found)}"
            reaches(fork, right, where)


@pytest.mark.parametrize("name", CASES)
def test_controllers_that_each_write_one_portion_bring_it_to_the_same_end(name):
    world, _ = undisturbed(name)
    cursed = CASES[name].world().twin()
    CASES[name].act(cursed)
    cursed.cursed = True
    reaches(cursed, end(world), name)


def reaches(world, right, where):
    for _ in range(150):
        world.tick()
        if is_over(world) and end(world) == right:
            break
    for _ in range(2):
        world.tick(LATER_SECONDS)
    found = end(world)
    assert found == right, (
        f"{where}: {[(key, value, right[key]) for key, value in found.items() if value != right[key]]}; "
        f"{world.sentences[-3:]}"
    )


def test_there_is_a_case_for_every_kind_of_change():
    wanted = {name for name, kind in KINDS.items() if kind.planned_only}
    assert {case.kind for case in CASES.values() if case.kind is not None} == set(KINDS) - wanted
    assert CASES.keys() >= wanted


@pytest.mark.parametrize(
    "name", ["give up workers, in realtime", "give up workers for a minimum, in realtime"]
)
def test_a_realtime_tier_without_room_for_a_handover_shrinks_in_place(name):
    world, _ = undisturbed(name)
    assert world.owner("near").owner == 1
    assert world.placement("near").slots == ("h1", "h1")
