"""The controller dies at every write of every kind of operation, and between its portions.

The next controller knows only the channel.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache

import pytest
from simulation.world import HOSTS, NEW, OLD, RULES, TIERS, World, host, tier

from sluice_ops.channel import ConflictError, Guard, Write, trail_queue
from sluice_ops.controller.leader import Absences
from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import batch
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.removal import removals
from sluice_ops.controller.split_writes import split_writes
from sluice_ops.model import paths
from sluice_ops.model.approval import ApprovalRule
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
from sluice_ops.model.launch import Launch
from sluice_ops.model.repair import Repair
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.share import Layers, Numbers, Share
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.operations.approvals import answer, waiting
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import holding
from sluice_ops.planning.placement.shares import target
from sluice_ops.process.durations import TimestampAges
from sluice_ops.snapshot.view import read_view

pytestmark = pytest.mark.timeout(240)

SESSION_SECONDS = 6
"""Seconds without a leader after a controller dies without closing its session."""
LOST_SECONDS = 8.0
OVER_SECONDS = 5.0
"""A step of time while no change is under way and every tier runs; a standby may still be missing.
"""
LATER_SECONDS = 40.0
"""A step of time in which a forgotten task would be done. Unit: seconds."""
QUIET_TICKS = 45
MOST_WRITES = 200


class Mortal(World):
    """A world whose controller writes as the real one does: under its epoch, in the smallest
    portions, its status last.
    """

    def __init__(self, **more):
        super().__init__(**more)
        self.written = None
        """For each pass that wrote: the world before the pass, and its portions."""
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
        copied = deepcopy(self)
        self.written = written
        return copied

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
        portions = split_writes(writes, view, 1)
        if self.written is not None and decision.writes:
            self.written.append((self.twin(), portions))
        for portion in portions:
            self.guarded(portion)
            if self.cursed and decision.writes:
                self.take_office()
                break
        if removed := removals(self.channel, view):
            self.guarded(removed)
        self.check()
        return bool(decision.writes)

    def replace_controller(self, unwritten, away):
        """Let another controller take office, at once or after the session has ended.

        Later writes of the dead controller are refused.
        """
        for _ in range(away):
            self.now += 1
            for actor in (*self.agents.values(), *self.runbooks):
                actor.step()
            self.check()
        before = self.epoch
        self.take_office()
        for portion in unwritten:
            with pytest.raises(ConflictError):
                self.guarded(portion, before)


# -- compared values


def operations(world):
    """Return every posted step with its result."""
    steps = []
    for name in world.channel.children("/operations"):
        operation = world.channel.read(paths.operation(name), Operation)
        result = world.channel.read(paths.result(name), Result)
        if operation is not None:
            assert operation.version == 0, f"{name} was posted twice"
            assert result is None or result.version == 0, f"{name} was given its result twice"
            steps.append((name, None if result is None else result.value.ok))
    return sorted(steps)


def changes(world):
    stored = (
        world.channel.read(paths.change(name), ChangeRecord) for name in world.channel.children("/changes")
    )
    return [change.value for change in stored if change is not None]


def timed(world, name):
    """Return which requested starts and stops of its incarnations are complete."""
    specs = (world.incarnation(name, number) for number in world.channel.children(paths.incarnations(name)))
    return sorted(
        (
            spec.incarnation,
            *(request is not None and request.seconds is not None for request in (spec.start, spec.stop)),
        )
        for spec in specs
    )


def end_state(world):
    """Return the end state, without times and sentences."""
    layers = world.channel.read(paths.LAYERS, Layers)
    wanted = {name: world.wanted(name) for name in world.specs}
    owners = {name: world.owner(name) for name in world.specs}
    return {
        "operations": operations(world),
        "changes": sorted(
            (record.id, record.state, record.incarnations, sorted(record.receipts), sorted(record.took))
            for record in changes(world)
        ),
        "trail": sorted(
            (str(queued.entry.change), queued.entry.outcome) for queued in trail_queue.queued(world.channel)
        ),
        "tiers": {
            name: (world.state(name), owners[name].model_dump(exclude={"epoch"})) for name in world.specs
        },
        "wanted": {
            name: (record.running, record.paused, record.paused_workers, record.release, record.partitions)
            for name, record in wanted.items()
        },
        "timed": {name: timed(world, name) for name in world.specs},
        "placements": {name: world.placement(name) for name in world.specs if owners[name].owner is not None},
        "units": {name: sorted(unit.id for unit in world.assigned(name)) for name in world.agents},
        "run": {name: sorted(agent.units) for name, agent in world.agents.items()},
        "hosts": {name: world.host_state(name) for name in world.agents},
        "registered": world.channel.children("/hosts"),
        "decommissioned": world.channel.children(paths.DECOMMISSIONED),
        "layers": ()
        if layers is None
        else [entry.model_copy(update={"at": 0.0}) for entry in layers.value.entries],
        "lock": world.channel.exists(paths.LOCK),
    }


def is_over(world):
    active = any(change.state is ChangeState.ACTIVE for change in changes(world))
    return not active and all(runbook.ended for runbook in world.runbooks) and world.all_well()


def is_legal(world):
    """Let the independent checker judge the current placement, as if a plan had made it."""
    world.check_settled()
    draft = Draft(read_view(world.channel), PassInputs(now=world.wall(), lost=frozenset(), rules=world.rules))
    batch.slots_to_keep(draft).apply(draft)
    now = cluster_of_draft(draft)
    stay = {
        name: replace(item, state=HostState.UP)
        for name, item in now.hosts.items()
        if item.state is HostState.CORDONED
    }
    now = replace(now, hosts={**now.hosts, **stay})
    for name, tier_now in now.tiers.items():
        if tier_now.placement is not None:
            gave = [
                item.spec.k
                for item in changes(world)
                if item.spec.k and item.id.startswith(f"settle-{name}-for-")
            ]
            aim = target(name, now.rules)
            missing_spares = min(aim.spare, max(0, aim.k - len(tier_now.placement.slots)))
            short = aim.slots - gave[0] if gave else missing_spares
            moves = (Move(tier=name, before=tier_now.placement, after=tier_now.placement, short=short),)
            without = replace(now, hosts=holding(now.hosts, tier_now.spec, tier_now.placement, -1))
            plan = Plan(moves=moves, batch_slots=now.batch, batch_kept=now.batch)
            again = ChangeSpec(kind="upgrade", tier=name, release="another")
            assert not violations(plan, again, without), (name, violations(plan, again, without))
        else:
            assert not tier_now.wanted, f"{name} has no owner"
    return True


# -- the cases


@cache
def running():
    """Return a world where all tiers run an old release and a new one is published; one tier has a
    warm standby.
    """
    *others, last = TIERS
    world = Mortal(
        hosts=(*HOSTS, host("e1", zone="ec2")),
        tiers=(*others, last.model_copy(update={"standby": Standby.WARM})),
    )
    world.publish(OLD)
    world.bring_up()
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
    """Return the world after another change."""
    world = running().twin()
    world.begin("before", **spec)
    world.settle()
    assert world.runbooks.pop().ok
    return world


@cache
def spread():
    """Return a world with tiers on many hosts."""
    wide = {name: Share(minimum=1, target=4, maximum=8) for name in ("entry", "enrich", "counts", "outbound")}
    world = Mortal(
        hosts=[host(f"h{number}") for number in range(1, 11)],
        rules=replace(RULES, shares={**RULES.shares, **wide}, partitions=8),
    )
    return world.bring_up()


@cache
def full():
    """Return a world with a full host, where a shift lowers one tier and raises another."""
    shares = {"near": Share(minimum=1, target=3, maximum=3), "far": Share(minimum=1, target=1, maximum=3)}
    shifts = {"night": {"near": Numbers(target=1), "far": Numbers(target=2)}}
    world = Mortal(
        hosts=(host("h1", cpu=6),),
        tiers=(tier("near", Mode.BATCH, 0), tier("far", Mode.BATCH, 1)),
        rules=replace(RULES, shares=shares, shifts=shifts),
    )
    return world.bring_up()


@cache
def generous(mode=Mode.BATCH):
    """Return a world with two full hosts: one with a tier above its minimum, one with a tier at its
    minimum.
    """
    shares = {"near": Share(minimum=1, target=4, maximum=4), "far": Share(minimum=1, target=1, maximum=3)}
    world = Mortal(
        hosts=(host("h1", cpu=4.5), host("h2", cpu=2)),
        tiers=(tier("near", mode, 0), tier("far", Mode.BATCH, 1)),
        rules=replace(RULES, shares=shares, locality={"near": "h1"}, shifts={}),
    )
    return world.bring_up()


@cache
def with_spare(cpu=8, mode=Mode.BATCH):
    """Return a world with a tier of two workers and a spare, on one host."""
    shares = {"near": Share(minimum=1, target=2, maximum=4, spare=1)}
    world = Mortal(
        hosts=(host("h1", cpu=cpu),),
        tiers=(tier("near", mode, 0),),
        rules=replace(RULES, shares=shares, partitions=8, shifts={}),
    )
    world.bring_up()
    world.tick()
    return world


@cache
def loaded():
    """Return a world with two busy tiers on one host, and an empty host."""
    shares = {name: Share(minimum=1, target=1, maximum=3) for name in ("near", "far")}
    world = Mortal(
        hosts=(host("h1", cpu=6),),
        tiers=(tier("near", Mode.BATCH, 0), tier("far", Mode.BATCH, 1)),
        rules=replace(RULES, shares=shares, shifts={}),
    )
    world.bring_up()
    world.add_host(host("h2", cpu=6))
    world.channel.put(paths.SCALER, ScalerRecord(busy={"near": 1.0, "far": 1.0}))
    world.settle()
    return world


@cache
def full_home(*before):
    """Return a world with a tier that fills its home beside an instance, after other changes."""
    world = Mortal(
        hosts=(host("h1", cpu=3.5 if before else 2.5), host("e1", zone="ec2", cpu=4)),
        tiers=(tier("near", Mode.BATCH, 0),),
        rules=replace(RULES, shares={"near": Share(minimum=1, target=2, maximum=8)}, shifts={}, partitions=8),
    )
    world.bring_up()
    for kind, k in before:
        world.begin(f"before-{kind}", kind=kind, tier="near", k=k)
        world.settle()
        assert world.runbooks.pop().ok
    return world


@cache
def single():
    """Return a world with a tier of one worker on three hosts."""
    world = Mortal(tiers=(tier("near", Mode.BATCH, 0),), rules=replace(RULES, shares={}, shifts={}))
    return world.bring_up()


@cache
def silent(*, in_place):
    """Return a world where new workers process no record."""
    world = (full_home() if in_place else running()).twin()
    for log in world.logs.values():
        log.first_records = None
    return world


@cache
def braked():
    world = spread().twin()
    for name in sorted({name for tier_name in world.specs for name in world.placement(tier_name).hosts})[:5]:
        world.agents[name].die()
    for _ in range(20):
        world.tick()
    assert world.sentences[-1].startswith("BRAKE")
    return world


@cache
def dead():
    """Return a world with a dead host whose tiers run elsewhere."""
    world = running().twin()
    world.agents["h3"].die()
    for _ in range(20):
        world.tick()
    world.settle()
    return world


@cache
def drifted(wait=None):
    """Return a world with a new third host beside two that hold everything."""
    rules = replace(
        RULES,
        shares={"counts": Share(minimum=1, target=3, maximum=4)},
        partitions=8,
        repair=wait and Repair(after=wait),
    )
    world = Mortal(hosts=(host("h1"), host("h2")), tiers=[tier("counts", Mode.BATCH, 0)], rules=rules)
    world.bring_up()
    world.add_host(host("h3"))
    return world


@dataclass(frozen=True)
class Case:
    """A world, and an event in it."""

    world: object
    act: object
    kind: str | None = None


def change(kind, world=running, **spec):
    """Return a case of a requested change."""
    return Case(world, lambda world: world.begin("c1", kind=kind, **spec), kind)


def driver_host(world):
    return world.placement("enrich").driver


def on_host(kind):
    return Case(running, lambda world: world.begin("c1", kind=kind, host=driver_host(world)), kind)


def aborted(kind, at, world=running, **spec):
    """Return a case of a change that is aborted during one of its steps."""

    def act(world):
        spec_of = spec or {"host": driver_host(world)}
        runbook = world.begin("c1", kind=kind, **spec_of)
        world.until(lambda: runbook.current is at)
        world.tick()
        runbook.abort()

    return Case(world, act)


class Colleague:
    """Answers the change `c1` some time after it has begun to wait, once."""

    ended = True

    def __init__(self, world, *, approves):
        self.world, self.approves, self.left = world, approves, 3

    def step(self):
        if self.left and [change.id for change in waiting(self.world.channel)] == ["c1"]:
            self.left -= 1
            if not self.left:
                answer(self.world.channel, "c1", "cli:ben", approved=self.approves, why="no")


def burst_over_the_budget():
    """Return a case of a burst that another person approves before its instances are launched."""

    def world():
        asked = full_home().twin()
        asked.rules = replace(asked.rules, approval=ApprovalRule(within_seconds=20))
        return asked

    def act(world):
        world.runbooks.append(Colleague(world, approves=True))
        launch = Launch(instances=1, could_cost=2.0, budget=1.0)
        burst = world.begin("c1", kind="burst", by="cli:anna", tier="near", k=2, launch=launch)
        burst.left.insert(0, Step.APPROVAL)

    return Case(world, act, "burst")


def asking(kind, *, approves=None, **spec):
    """Return a case of a change that waits for another person; None: nobody answers it."""

    def world():
        asked = running().twin()
        asked.rules = replace(asked.rules, approval=ApprovalRule(always=(kind,), within_seconds=20))
        return asked

    def act(world):
        if approves is not None:
            world.runbooks.append(Colleague(world, approves=approves))
        world.begin("c1", kind=kind, by="cli:anna", **spec)

    return Case(world, act, kind)


CASES = {
    "cordon": on_host("cordon"),
    "drain": on_host("drain"),
    "reboot": on_host("reboot"),
    "reboot hosts": change("reboot-hosts", spread, hosts=("h1", "h2")),
    "reboot of a host that is not proved": change("reboot", lambda: silent(in_place=False), host="h2"),
    "reboot of two hosts by one worker": change("reboot-hosts", single, hosts=("h1", "h2")),
    "decommission": on_host("decommission"),
    "decommission of a dead host": Case(
        dead, lambda world: world.begin("c1", kind="decommission", host="h3"), "decommission"
    ),
    "return": change("return", lambda: after(kind="drain", host="h2"), host="h2"),
    "migrate": change("migrate", tier="enrich", to="h3"),
    "migrate a worker": Case(
        running,
        lambda world: world.begin(
            "c1",
            kind="migrate",
            tier="enrich",
            to=next(name for name in ("h1", "h2", "h3") if name not in world.placement("enrich").slots),
            workers=(f"slot-enrich-{world.owner('enrich').owner}-1",),
        ),
        "migrate",
    ),
    "canary": change("canary", drifted, host="h3"),
    "abort of a canary": aborted("canary", Step.CUT, drifted, host="h3"),
    "rebalance": change("rebalance", loaded),
    "upgrade": change("upgrade", tier="enrich"),
    "repartition": change("repartition", tier="counts", partitions=6),
    "scale up": change("scale", tier="enrich", k=3),
    "scale down": change("scale", tier="enrich", k=1),
    "get workers": change("scale", spread, tier="outbound", k=6),
    "get workers, in realtime": change("scale", spread, tier="enrich", k=6),
    "give up workers": change("scale", spread, tier="outbound", k=2),
    "give up workers for another tier": change("shift", full, shift="night"),
    "give up workers, in realtime": change("scale", lambda: generous(Mode.REALTIME), tier="near", k=2),
    "give up workers for a minimum": Case(generous, lambda world: world.agents["h2"].die(), "settle"),
    "give up workers for a minimum, in realtime": Case(
        lambda: generous(Mode.REALTIME), lambda world: world.agents["h2"].die(), "settle"
    ),
    "wake a spare, and get another": change("scale", with_spare, tier="near", k=3),
    "wake a spare, and get another, in realtime": change(
        "scale", lambda: with_spare(mode=Mode.REALTIME), tier="near", k=3
    ),
    "wake a spare without room for another": change("scale", lambda: with_spare(3.5), tier="near", k=3),
    "rest a worker as a spare": change("scale", with_spare, tier="near", k=1),
    "abort of waking a spare": aborted("scale", Step.CUT, with_spare, tier="near", k=3),
    "lend to batch": change("scale", tier="batch", k=2),
    "burst": change("burst", tier="enrich", k=1),
    "burst without a record": change("burst", lambda: silent(in_place=False), tier="enrich", k=1),
    "burst in place without a record": change("burst", lambda: silent(in_place=True), tier="near", k=2),
    "leave": change("leave", lambda: after(kind="burst", tier="enrich", k=1)),
    "burst in place": change("burst", full_home, tier="near", k=2),
    "leave in part": change("leave", lambda: full_home(("burst", 2)), tier="near", k=1),
    "leave past a worker at home": change("leave", lambda: full_home(("burst", 2), ("scale", 3))),
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
    "pause of a drain to empty": change("drain-to-empty", tiers=("enrich", "counts")),
    "pause a worker": Case(
        running,
        lambda world: world.begin(
            "c1", kind="pause", workers=(f"slot-enrich-{world.owner('enrich').owner}-0",)
        ),
        "pause",
    ),
    "resume": change("resume", lambda: after(kind="pause")),
    "write-off": change("write-off", braked),
    "game day": change("game-day", fault="kill-driver", tier="enrich"),
    "abort of a drain": aborted("drain", Step.CUT),
    "abort of a decommission": aborted("decommission", Step.CUT),
    "abort of a decommission at its end": aborted("decommission", Step.DECOMMISSION),
    "abort of a reboot": aborted("reboot", Step.PREPARE),
    "abort of a reboot at its canary": aborted("reboot", Step.CANARY),
    "abort of a reboot of hosts": aborted("reboot-hosts", Step.CUT, spread, hosts=("h1", "h2")),
    "abort of an upgrade": aborted("upgrade", Step.TRIAL, tier="enrich"),
    "abort of a repartition": aborted("repartition", Step.CUT, tier="counts", partitions=6),
    "abort of getting workers": aborted("scale", Step.CUT, spread, tier="outbound", k=6),
    "abort of getting workers, in realtime": aborted("scale", Step.CUT, spread, tier="enrich", k=6),
    "abort of giving up workers": aborted("scale", Step.CUT, spread, tier="outbound", k=2),
    "abort of a burst": aborted("burst", Step.CUT, full_home, tier="near", k=2),
    "abort of a leave": aborted("leave", Step.CUT, lambda: full_home(("burst", 2)), tier="near"),
    "abort of a pause": aborted("pause", Step.PAUSE, tier=None),
    "approved pause": asking("pause", approves=True),
    "approved drain": asking("drain", approves=True, host="h1"),
    "approved burst": burst_over_the_budget(),
    "refused drain": asking("drain", approves=False, host="h1"),
    "drain that nobody approves": asking("drain", host="h1"),
    "start": Case(empty, lambda world: world.want()),
    "stop": Case(running, lambda world: world.want(running=False)),
    "a driver dies": Case(running, lambda world: world.kill_driver("enrich")),
    "an owner with a standby dies": Case(running, lambda world: world.kill_driver("outbound")),
    "a host is lost": Case(running, lambda world: world.agents[driver_host(world)].die()),
}


@cache
def undisturbed(name):
    """Run a case without a death; return the world at the end, and each write on the way."""
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
def test_new_controllers_reach_the_same_end_after_deaths_at_any_step(name):
    case = CASES[name]
    world, written = undisturbed(name)
    expected = end_state(world)
    assert is_over(world)
    assert is_legal(world)
    assert written
    assert case.kind is None or case.kind in {record.spec.kind for record in changes(world)}
    for number, (before, portions) in enumerate(written):
        for count in range(len(portions) + 1):
            fork = before.twin()
            fork.checks_baseline = False
            for portion in portions[:count]:
                fork.guarded(portion)
            fork.replace_controller(portions[count:], SESSION_SECONDS * ((number + count) % 2))
            where = (
                f"{name}: died at write {number} of {len(written)}, after portion {count} of {len(portions)}"
            )
            check_end_state(fork, expected, where)
    cursed = case.world().twin()
    case.act(cursed)
    cursed.cursed = True
    check_end_state(cursed, expected, f"{name}: each controller died after it had written one portion")


def check_end_state(world, expected, where):
    for _ in range(150):
        world.tick(OVER_SECONDS if is_over(world) else 1.0)
        if is_over(world) and end_state(world) == expected:
            break
    for _ in range(2):
        world.tick(LATER_SECONDS)
    reached = end_state(world)
    different = [(key, value, expected[key]) for key, value in reached.items() if value != expected[key]]
    assert reached == expected, f"{where}: {different}; {world.sentences[-3:]}"


def test_there_is_a_case_for_every_kind_of_change():
    wanted = {name for name, kind in KINDS.items() if kind.planned_only}
    assert {case.kind for case in CASES.values() if case.kind is not None} == set(KINDS) - wanted
    assert CASES.keys() >= wanted


@pytest.mark.parametrize(
    ("name", "tier_name"), [("get workers", "outbound"), ("get workers, in realtime", "enrich")]
)
def test_a_tier_without_state_gets_workers_in_place(name, tier_name):
    world, _ = undisturbed(name)
    assert (world.owner(tier_name).owner, len(world.placement(tier_name).slots)) == (1, 6)


@pytest.mark.parametrize(
    "name", ["give up workers, in realtime", "give up workers for a minimum, in realtime"]
)
def test_a_realtime_tier_without_room_for_a_handover_shrinks_in_place(name):
    world, _ = undisturbed(name)
    assert world.owner("near").owner == 1
    assert world.placement("near").slots == ("h1", "h1")
