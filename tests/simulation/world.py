"""A simulated pipeline under a controller, and the invariants that hold at every moment."""

from copy import copy, deepcopy
from dataclasses import replace
from functools import cache
from math import inf

from simulation.actors import Log, SimAgent
from simulation.memory import MemoryChannel

from sluice_ops.controller.decide import decide
from sluice_ops.controller.leader import Absences
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.controller.removal import removals
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostRecord, HostState, driver_id
from sluice_ops.model.change import BEFORE_BEGIN, ChangeSpec, Operation, Result, Step
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, State, TierWanted
from sluice_ops.model.release import Release, StreamShape, TierShape
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import Delivery, Kind, Mode, Standby, TierSpec
from sluice_ops.operations.requests import operation_id
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.process.durations import TimestampAges
from sluice_ops.site.site_file import HostConfig
from sluice_ops.snapshot.stamps import stamps
from sluice_ops.snapshot.view import read_view


def tier(name, mode, distance, **more):
    """Declare a tier."""
    return TierSpec(
        name=name,
        kind=Kind.PROCESSING,
        mode=mode,
        delivery=Delivery.AT_LEAST_ONCE,
        inputs=("in",),
        distance=distance,
        quantum=Quantum(cpu=1, memory=1024, threads=4),
        driver=Quantum(cpu=0.5, memory=512, threads=1),
        **more,
    )


TIERS = (
    tier("entry", Mode.REALTIME, 2),
    tier("enrich", Mode.REALTIME, 1),
    tier("counts", Mode.BATCH, 0, state=True),
    tier("outbound", Mode.BATCH, 0),
)
SHAPE = TierShape(inputs=(StreamShape(name="in"),))
RULES = Rules(
    shares={
        "entry": Share(minimum=1, target=1, maximum=3),
        "enrich": Share(minimum=1, target=2, maximum=4),
        "counts": Share(minimum=1, target=1, maximum=3),
        "outbound": Share(minimum=1, target=1, maximum=3),
        "batch": Share(minimum=0, target=0, maximum=2),
    },
    shifts={"night": {"enrich": Numbers(target=1), "batch": Numbers(target=1)}, "day": {}},
    partitions=4,
    batch_quantum=Quantum(cpu=1, memory=1024, threads=2),
    instance=Capacity(cpu=4, memory=4096),
)


def host(name, zone="onprem", labels=(), cpu=8, memory=16384, *, rack=None):
    """Declare a host."""
    return HostConfig(
        name=name,
        address="127.0.0.1",
        zone=zone,
        rack=rack,
        labels=labels,
        capacity=Capacity(cpu=cpu, memory=memory),
    )


CHECKED_PASSES = 3
"""Of so many passes of the controller, one is decided again without a baseline."""
HOSTS = (host("h1", labels=("fast",)), host("h2"), host("h3"))


class Runbook:
    """Posts the steps of a change one after the other, and an abort if a step fails, as Airflow
    does.
    """

    def __init__(self, world, change, spec, deadline=300.0, by="test"):
        self.world, self.change, self.spec, self.deadline, self.by = world, change, spec, deadline, by
        self.left = list(KINDS[spec.kind].steps)
        self.current = None
        self.dry_run = False
        self.results = {}

    @property
    def ended(self):
        return self.current is None and not self.left

    @property
    def ok(self):
        return (
            self.ended
            and Step.ABORT not in self.results
            and all(result.ok for result in self.results.values())
        )

    def step(self):
        if self.current is not None:
            versioned = self.world.channel.read(paths.result(operation_id(self.change, self.current)), Result)
            if versioned is None:
                return
            self.results[self.current] = versioned.value
            if not versioned.value.ok and self.current is not Step.ABORT:
                self.left = [Step.ABORT] if self.current not in BEFORE_BEGIN else []
            self.current = None
        if self.left:
            self.current = self.left.pop(0)
            self.post(self.current)

    def abort(self):
        """Drop the remaining steps, and post an abort."""
        self.left, self.current = [], None
        self.post(Step.ABORT)

    def abort_after(self, ticks):
        """Abort the change after some ticks, and settle.

        Return False if the change had ended before.
        """
        for _ in range(ticks):
            self.world.tick()
        if self.ended:
            return False
        self.post(Step.ABORT)
        self.left = []
        self.world.settle()
        self.world.check_settled()
        return True

    def post(self, step):
        self.world.channel.create(
            paths.operation(operation_id(self.change, step)),
            Operation(
                id=operation_id(self.change, step),
                change=self.change,
                step=step,
                spec=self.spec,
                by=self.by,
                posted_at=self.world.wall(),
                deadline_seconds=self.deadline,
                dry_run=self.dry_run,
            ),
        )


class World:
    """Time passes by `tick`: the controller makes its passes, then agents, drivers and runbooks
    take a step.
    """

    def __init__(self, hosts=HOSTS, tiers=TIERS, rules=RULES, channel=None):
        self.channel = channel or MemoryChannel()
        self.now = 1000.0
        self.ahead = 0.0
        """The wall clocks' lead over true time; the clocks jump when it changes."""
        self.rules = rules
        self.specs = {spec.name: spec for spec in tiers}
        self.logs = {spec.name: Log() for spec in tiers}
        self.agents = {}
        self.absences = Absences(8.0, self.clock)
        self.ages = TimestampAges(self.clock)
        self.settled = None
        self.led_since = -inf
        self.checks_baseline = True
        self.passes = 0
        """Whether decisions are compared with those without a baseline."""
        self.runbooks = []
        self.owners = {}
        self.sentences = []
        for spec in tiers:
            self.channel.put(paths.tier(spec.name), spec)
        for config in hosts:
            self.add_host(config)

    def __deepcopy__(self, memo):
        """Share with the copy what is never changed."""
        twin = memo[id(self)] = copy(self)
        hosts = (agent.host for agent in self.agents.values())
        memo |= {id(value): value for value in (self.rules, self.settled, *self.specs.values(), *hosts)}
        memo[id(self.sentences)] = [*self.sentences]
        vars(twin).update(deepcopy(vars(self), memo))
        return twin

    def clock(self):
        """The monotonic clock."""
        return self.now

    def wall(self):
        return self.now + self.ahead

    def add_host(self, config):
        self.agents[config.name] = SimAgent(
            self.channel, config, self.logs, self.specs, (self.clock, self.wall)
        )

    def want(self, *names, **fields):
        for name in names or self.specs:
            versioned = self.channel.read(paths.wanted(name), TierWanted)
            before = TierWanted() if versioned is None else versioned.value
            self.channel.put(
                paths.wanted(name),
                before.model_copy(update={"running": True, "by": "test", "at": self.wall(), **fields}),
            )

    def declare(self, spec):
        """Publish a tier again."""
        self.specs[spec.name] = spec
        self.channel.put(paths.tier(spec.name), spec)

    def publish(self, release, **shapes):
        """Publish a release of all tiers; `shapes` gives the shapes of tiers that differ from
        `SHAPE`.
        """
        tiers = {
            name: shapes.get(name, SHAPE).model_copy(update={"light": spec.light})
            for name, spec in self.specs.items()
        }
        self.channel.put(
            paths.release(release),
            Release(name=release, module="m", digest="d", published_at=self.wall(), tiers=tiers),
        )
        for spec in list(self.specs.values()):
            self.declare(spec.model_copy(update={"release": release}))

    def begin(self, change, deadline=300.0, by="test", **spec):
        runbook = Runbook(self, change, ChangeSpec(**spec), deadline, by)
        self.runbooks.append(runbook)
        return runbook

    # -- time

    def decide(self):
        """Look and decide as a controller that has stood by: it knows only what it has seen, and
        for how long.
        """
        view = read_view(self.channel)
        self.ages.track(stamps(view))
        lost = self.absences.lost(view)
        inputs = PassInputs(
            now=self.wall(),
            lost=lost,
            rules=self.rules,
            braked_return=self.absences.braked_return(),
            known_seconds=self.ages.ages(),
            led_seconds=self.now - self.led_since,
            baseline=self.settled,
        )
        decision = decide(view, inputs)
        self.passes += 1
        if self.checks_baseline and self.passes % CHECKED_PASSES == 0:
            again = decide(view, replace(inputs, baseline=None))
            assert decision == again, "with and without a baseline, the decision is the same"
        if not decision.writes:
            self.settled = view
        return view, decision

    def controller_pass(self):
        """Make one pass; return False if the pass wrote nothing."""
        view, decision = self.decide()
        self.sentences.append(decision.sentence)
        self.statuses, self.braked = decision.tiers, decision.braked
        if decision.writes:
            self.channel.multi(decision.writes)
        if removed := removals(self.channel, view):
            self.channel.multi(removed)
        self.check()
        return bool(decision.writes)

    def tick(self, seconds=1.0):
        self.now += seconds
        for _ in range(20):
            if not self.controller_pass():
                break
        else:
            message = f"the controller does not settle: {self.sentences[-4:]}"
            raise AssertionError(message)
        for agent in self.agents.values():
            agent.step()
        for runbook in self.runbooks:
            runbook.step()
        self.check()

    def until(self, condition, ticks=200):
        for _ in range(ticks):
            if condition():
                return
            self.tick()
        message = f"after {ticks} ticks still not true; the last sentences: {self.sentences[-3:]}"
        raise AssertionError(message)

    def settle(self):
        self.until(lambda: all(runbook.ended for runbook in self.runbooks) and self.all_well(), 600)
        for _ in range(15):
            self.tick()

    def bring_up(self):
        """Start all tiers, wait until they run, and return the world."""
        self.want()
        self.settle()
        return self

    # -- looking

    def owner(self, name):
        versioned = self.channel.read(paths.owner(name), OwnerRecord)
        return OwnerRecord() if versioned is None else versioned.value

    def incarnation(self, name, number):
        return self.channel.read(paths.incarnation(name, number), IncarnationSpec).value

    def placement(self, name):
        return self.incarnation(name, self.owner(name).owner).placement

    def driver(self, name, number=None):
        number = self.owner(name).owner if number is None else number
        for agent in self.agents.values():
            if driver_id(name, number) in agent.drivers:
                return agent.drivers[driver_id(name, number)]
        return None

    def next_driver(self, name):
        number = self.owner(name).next
        return None if number is None else self.driver(name, number)

    def state(self, name):
        driver = self.driver(name)
        return None if driver is None else driver.state

    def assigned(self, name):
        versioned = self.channel.read(paths.assignment(name), Assignment)
        return () if versioned is None else versioned.value.units

    def host_state(self, name):
        versioned = self.channel.read(paths.host_record(name), HostRecord)
        return HostState.UP if versioned is None else versioned.value.state

    def wanted(self, name):
        versioned = self.channel.read(paths.wanted(name), TierWanted)
        return TierWanted() if versioned is None else versioned.value

    def all_well(self):
        """Tell whether every tier is in its wanted state."""
        for name in self.specs:
            wanted, record = self.wanted(name), self.owner(name)
            if not wanted.running:
                if record.owner is not None and not record.stopped:
                    return False
            elif record.paused is not wanted.paused or self.state(name) is not (
                State.PAUSED if wanted.paused else State.RUNNING
            ):
                return False
        return True

    def give_up(self, name):
        """Make each driver of a tier fail when it runs, until the controller gives the tier up."""

        def is_given_up():
            driver = self.driver(name)
            if driver is not None:
                driver.broken = {State.RUNNING}
            return self.statuses[name].state == "failed"

        self.until(is_given_up)

    def kill_driver(self, name, number=None):
        number = self.owner(name).owner if number is None else number
        for agent in self.agents.values():
            agent.kill_driver(driver_id(name, number))

    # -- invariants

    def check(self):
        drivers = [driver for agent in self.agents.values() for driver in agent.drivers.values()]
        all_running = [driver for driver in drivers if driver.state is State.RUNNING and not driver.stuck]
        for name, spec in self.specs.items():
            versioned = self.channel.read(paths.owner(name), OwnerRecord)
            if versioned is None:
                continue
            owner, before = versioned.value.owner or 0, self.owners.get(name, 0)
            assert owner >= before, f"the owner of {name} went from {before} back to {owner}"
            self.owners[name] = owner
            running = [driver for driver in all_running if driver.spec is spec]
            most = 2 + (spec.standby is Standby.HOT)
            assert len(running) <= most, (
                f"{name} has more than {most} running: {[driver.number for driver in running]}"
            )
        for name, agent in self.agents.items():
            units = self.assigned(name)
            ids = {unit.id for unit in units}
            being_returned = [
                self.rules.batch_quantum
                for unit in agent.units
                if unit.startswith("slot-batch-") and unit not in ids and agent.alive
            ]
            quanta = [*(unit.quantum for unit in units), *being_returned]
            assert sum(quantum.cpu for quantum in quanta) <= agent.host.capacity.cpu + 1e-6, (
                f"{name} has more cpu assigned than it has"
            )
            assert sum(quantum.memory for quantum in quanta) <= agent.host.capacity.memory, (
                f"{name} has more memory assigned than it has"
            )

    def check_settled(self):
        """Check what holds after all changes have ended."""
        for name in self.agents:
            for unit in self.assigned(name):
                if unit.tenant != "batch":
                    record = self.owner(unit.tenant)
                    assert unit.incarnation in {record.owner, record.standby}, f"{unit.id} remains on {name}"
            if self.host_state(name) is HostState.DRAINED:
                assert not self.assigned(name), f"{name} is drained and still has {self.assigned(name)}"
        assert not self.channel.exists(paths.LOCK), "the maintenance lock is still held"


@cache
def _settled():
    return World().bring_up()


def settled():
    """Return a copy of a running pipeline, which is started only once."""
    return deepcopy(_settled())


OLD, NEW = "r1-aaaaaaaa", "r2-bbbbbbbb"


@cache
def _with_new_release(tiers):
    world = World(tiers=tiers)
    world.publish(OLD)
    world.bring_up()
    world.publish(NEW)
    world.settle()
    return world


def with_new_release(tiers=TIERS):
    """Return a copy of a world where all tiers run the release `OLD`, and `NEW` is published."""
    return deepcopy(_with_new_release(tiers))


class StatusWorld(World):
    """A world in which each pass writes its status, as a real controller does; a new leader reads
    it.
    """

    def controller_pass(self):
        wrote = super().controller_pass()
        status = ControllerStatus(
            leader="c1",
            epoch=1,
            at=self.now,
            sentence=self.sentences[-1],
            tiers=self.statuses,
            braked=self.braked,
        )
        self.channel.put(paths.CONTROLLER_STATUS, status)
        return wrote
