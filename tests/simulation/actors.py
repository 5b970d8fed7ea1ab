"""Agents and drivers that keep to the contract and do nothing else, over any channel."""

from sluice.driver.spark.spares import choose_spares
from sluice_ops.model import paths
from sluice_ops.model.assignment import (
    Assignment,
    FaultDone,
    HostFacts,
    Observed,
    UnitKind,
    UnitObserved,
    UnitState,
    slot_ids,
)
from sluice_ops.model.incarnation import (
    STATE_PARTITIONS,
    TRIAL_SECONDS,
    Directive,
    Flowed,
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Receipt,
    Repartitioned,
    State,
    WorkerReceipt,
    advance,
    directive,
)
from sluice_ops.model.tier import Mode


class Log:
    """A tier's records: a position that grows while a driver runs, and the faults of its
    drivers.
    """

    def __init__(self):
        self.committed = 0
        self.broken = {}
        """By release: the states in which its code fails."""
        self.sets_aside = {}
        """By release: the percentage of records that its code sends to quarantine."""
        self.hangs = False
        """Drivers hang when they start."""
        self.away = None
        """The service that is away and that starting drivers wait for, or None."""
        self.sink_away = ()
        """The numbers of the incarnations whose running drivers cannot reach the sink."""
        self.partitions = STATE_PARTITIONS
        """The number of partitions of the newest checkpoint."""
        self.gap_after = 0.0
        """The seconds after its takeover in which a driver reports the gap; None if it never has
        output.
        """
        self.keys_lost = 0
        """The number of keys that a repartition loses."""
        self.first_records = 40
        """The records of a worker's first task; 0: no records flow; None: it processes none."""
        self.idle = ()
        """The ends of the names of workers that process no record in any case."""


class SimDriver:
    """A driver that takes one step towards its directive in each `step`."""

    def __init__(self, channel, spec, number, log, clocks):
        self.channel, self.spec, self.number, self.log = channel, spec, number, log
        self.clock, self.wall = clocks
        self.state = State.STARTING
        self.caught_up = False
        self.started_from = self.stopped_at = None
        self.error = None
        self.history = []
        self.measured = False
        self.gap_seconds = None
        versioned = channel.read(paths.incarnation(spec.name, number), IncarnationSpec)
        self.release = None if versioned is None else versioned.value.release
        self.partitions = STATE_PARTITIONS if versioned is None else versioned.value.partitions
        self.broken = log.broken.get(self.release)
        self.stuck = log.hangs
        self.away = None
        self.flowed = None
        self.owned_since = None
        self.workers = {}
        placement = None if versioned is None else versioned.value.placement
        self._workers_known = (
            set() if placement is None else {*slot_ids(spec.name, number, len(placement.slots))}
        )
        """The workers with which it began, and those that have joined since."""
        self.takes_workers = True
        self.plans_anew = True
        self.knows_spares = True
        self.first_tasks = {}
        self.spares = frozenset()
        self._at_work = frozenset()
        self.narrow = self.ways = None
        self.epoch = 0
        self._report()

    @property
    def ended(self):
        return self.state in {State.STOPPED, State.FAILED, State.FENCED}

    def _report(self):
        self.channel.put(
            paths.report(self.spec.name, self.number),
            IncarnationReport(
                state=self.state,
                since=self.wall(),
                epoch=self.epoch,
                pid=1,
                away=self.away,
                caught_up=self.caught_up,
                started_from=self.started_from,
                stopped_at=self.stopped_at,
                error=self.error,
                flowed=self.flowed,
                gap_seconds=self.gap_seconds,
                silent_seconds=self.gap_seconds,
                history=tuple(self.history),
                measured=self.measured,
                workers=self.workers,
                takes_workers=self.takes_workers,
                plans_anew=self.plans_anew,
                first_tasks=self.first_tasks,
                spare_workers=tuple(sorted(self.spares)) if self.knows_spares else None,
                narrow=self.narrow,
                ways=self.ways,
            ),
        )

    @property
    def _paused_workers(self):
        return {worker for worker, receipt in self.workers.items() if receipt.paused}

    def _workers_with_executor(self):
        """Return the workers that have an executor."""
        versioned = self.channel.read(paths.incarnation(self.spec.name, self.number), IncarnationSpec)
        if versioned is None:
            return set()
        slots = versioned.value.placement.slots
        names = slot_ids(self.spec.name, self.number, len(slots))
        return {
            name for name, host in zip(names, slots, strict=True) if self.channel.exists(paths.live(host))
        }

    def _count(self):
        seconds = 0.0 if self.owned_since is None else self.clock() - self.owned_since
        records = int(seconds * 100)
        bad = records * self.log.sets_aside.get(self.release, 0) // 100
        self.flowed = Flowed(
            seconds=seconds,
            records_in=records,
            records_out=records - bad,
            quarantined=bad,
            waiting=0,
            restarts=0,
        )

    def _go(self, state):
        if self.state is State.RUNNING:
            self._count()
        self.state = advance(self.state, state)
        self.history.append((state, self.wall()))
        self._report()

    def _receipt(self, back=0):
        return Receipt(positions={"in/0": max(0, self.log.committed - back)}, at=self.wall())

    def _repartitioned(self):
        if self.partitions == self.log.partitions:
            return None
        return Repartitioned(
            before=self.log.partitions, after=self.partitions, keys_before=1000, keys_after=1000, seconds=1.0
        )

    def stop(self):
        """End the process, as a signal does."""
        self._exit(None)

    def step(self):
        if self.ended or self.stuck:
            return
        if self.state is State.STARTING and self.away != self.log.away:
            self.away = self.log.away
            self._report()
        if self.state is State.STARTING and self.away is not None:
            return
        if self.state is State.RUNNING:
            self._look_at_sink()
            self.log.committed += 10
        if self.broken and self.state in self.broken:
            self.error = "boom"
            self._go(State.FAILED)
            return
        owner_record = self.channel.read(paths.owner(self.spec.name), OwnerRecord)
        if owner_record is None:
            return
        required = directive(owner_record.value, self.number)
        if required is Directive.RUN and owner_record.value.epoch != self.epoch:
            self.epoch = owner_record.value.epoch
            self._report()
        self._note_first_tasks(owner_record.value)
        if required is Directive.RUN and self.measured:
            self._note_joined()
            if self.knows_spares:
                self._choose_spares(owner_record.value)
        {
            Directive.RUN: self._run,
            Directive.STANDBY: self._stand_by,
            Directive.HOLD: self._hold,
            Directive.EXIT: self._exit,
        }[required](owner_record.value)

    def _look_at_sink(self):
        away = "the sink takes no records" if self.number in self.log.sink_away else None
        if away != self.away:
            self.away = away
            self._report()

    def _note_joined(self):
        joined = self._workers_with_executor() - self._workers_known
        if joined:
            self._workers_known |= joined
            gap = 0.1 if self.spec.mode is Mode.REALTIME and self.log.gap_after is not None else None
            receipt = WorkerReceipt(paused=False, seconds=0.0, gap_seconds=gap, at=self.wall())
            self.workers = self.workers | dict.fromkeys(joined, receipt)
            self._report()

    def _note_first_tasks(self, record):
        """Process records on each worker that gets tasks."""
        if self.state not in {State.READY, State.RUNNING}:
            return
        working = self._workers_with_executor() - set(record.paused_workers) - self.spares
        if self.first_tasks is None or working == self.first_tasks.keys():
            return
        able = {worker for worker in working if not worker.endswith(self.log.idle)}
        new = {} if self.log.first_records is None else dict.fromkeys(able, self.log.first_records)
        first_tasks = new | {worker: count for worker, count in self.first_tasks.items() if worker in working}
        if first_tasks != self.first_tasks:
            self.first_tasks = first_tasks
            self._report()

    def _choose_spares(self, record):
        able = self._workers_with_executor() - set(record.paused_workers)
        by_worker = {worker: f"executor of {worker}" for worker in able}
        spares = choose_spares(by_worker, record.active, self._at_work)
        self._at_work = frozenset(by_worker[worker] for worker in able - spares)
        if spares != self.spares:
            self.spares = spares
            self._report()

    def _run(self, record):
        if self.state is State.WARMING:
            self._go(State.READY)
        elif self.state is not State.RUNNING:
            overlap = record.owner != self.number
            if self.partitions != self.log.partitions and self.log.keys_lost:
                self.error = "the repartitioned state is not the same"
                self._go(State.FAILED)
                return
            self.started_from = self.started_from or self._receipt(back=5).model_copy(
                update={"repartitioned": self._repartitioned()}
            )
            self.caught_up = not overlap
            self._go(State.RUNNING)
        elif self.away is None and not (self.caught_up and self.measured):
            self.caught_up = self.measured = True
            self._report()
        elif record.owner == self.number and (
            changed_workers := (self._paused_workers ^ set(record.paused_workers))
            & self._workers_with_executor()
        ):
            for worker in changed_workers:
                paused = worker in record.paused_workers
                self.workers = {
                    **self.workers,
                    worker: WorkerReceipt(paused=paused, seconds=1.0, tasks=7, at=self.wall()),
                }
            self._report()
        elif record.owner == self.number:
            self.log.partitions = self.partitions
            self.owned_since = self.owned_since or self.clock()
            after = self.log.gap_after
            if self.gap_seconds is None and after is not None and self.clock() - self.owned_since >= after:
                self.gap_seconds = 0.2
                self._report()
            reported_seconds = 0.0 if self.flowed is None else self.flowed.seconds
            if reported_seconds < TRIAL_SECONDS <= self.clock() - self.owned_since:
                self._count()
                self._report()

    def _stand_by(self, _record):
        if self.state is State.STARTING:
            self._go(State.WARMING)
        elif self.state is State.WARMING:
            self._go(State.READY)
        elif self.state is State.RUNNING:
            # a cancelled overlap; this incarnation is dropped soon
            self._hold(_record)

    def _hold(self, _record):
        if self.state is State.WARMING:
            self._go(State.READY)
        elif self.state is not State.PAUSED:
            if self.state is State.RUNNING:
                self.stopped_at = self._receipt()
            self._go(State.PAUSED)

    def _exit(self, _record):
        if self.state is State.RUNNING:
            self.stopped_at = self._receipt()
        self._go(State.STOPPED)


class SimAgent:
    """A host's agent, with all its units."""

    def __init__(self, channel, host, logs, specs, clocks):
        self.channel, self.host, self.logs, self.specs, self.clocks = channel, host, logs, specs, clocks
        self.clock, self.wall = clocks
        self.assigned = Assignment()
        self.units = {}
        self.asked_since = {}
        """Since when each batch slot is asked to stop."""
        self.task_seconds = 0.0
        """How long the tasks of a batch slot continue after it is asked to stop."""
        self.drivers = {}
        self.restarts = {}
        self.starved = {}
        """Since when each unit has been starved of processor time."""
        self.rebooted = None
        self.fault = None
        """The last fault of a game day."""
        self.started = 0.0
        self.findings = ()
        """What the check after the last reboot found bad."""
        self.reboots = []
        """The requested reboots, in order."""
        self.notice = {}
        """What EC2 has announced for the host: `ends_at`, `at_risk_since`."""
        self.alive = True
        self.register()

    def register(self):
        self.alive = True
        name = self.host.name
        facts = HostFacts(
            name=name,
            address=self.host.address,
            zone=self.host.zone,
            rack=self.host.rack,
            labels=self.host.labels,
            cpu=self.host.capacity.cpu,
            memory=self.host.capacity.memory,
        )
        self.channel.put(paths.host(name), facts)
        self.channel.create(paths.live(name), facts, ephemeral=True)

    def die(self):
        """End the host with all its units."""
        self.alive = False
        self.units, self.drivers = {}, {}
        self.channel.delete(paths.live(self.host.name))

    def serves(self):
        """Tell whether the agent runs; that of a decommissioned host ends."""
        if self.alive and self.channel.exists(paths.decommissioned(self.host.name)):
            self.die()
        return self.alive

    def kill_driver(self, unit, how="killed by signal 9"):
        self.drivers.pop(unit, None)
        if unit in self.units:
            self.units[unit] = (UnitState.EXITED, how, self.wall())

    def restart_slot(self, unit):
        """The slot dies and is restarted before anybody looks."""
        self.restarts[unit] = self.restarts.get(unit, 0) + 1
        self.units[unit] = (UnitState.RUNNING, None, self.wall())

    def kill_slot(self, unit):
        self.units[unit] = (UnitState.STARTING, "killed by signal 9", self.wall())

    def _obey(self, assignment):
        """Carry out each requested reboot and fault once."""
        if assignment.reboot and assignment.reboot != self.rebooted:
            self.units, self.drivers = {}, {}
            self.rebooted = assignment.reboot
            self.reboots.append(assignment.reboot)
        if assignment.fault and (self.fault is None or assignment.fault.id != self.fault.id):
            self._inject(assignment.fault)

    def _inject(self, order):
        self.fault = FaultDone(id=order.id, at=self.wall())
        if order.unit is None:
            self.started = self.wall() + 2.0
        elif order.unit.startswith("driver-"):
            self.kill_driver(order.unit)
        elif order.unit in self.units:
            self.restart_slot(order.unit)

    def _end(self, wanted):
        """End units that are not wanted; the tasks of a batch slot continue for a while."""
        for gone in [identity for identity in self.units if identity not in wanted]:
            state, *_ = self.units[gone]
            if gone.startswith("slot-batch-") and state is not UnitState.STOPPING and self.task_seconds:
                self.units[gone] = (UnitState.STOPPING, None, self.wall())
                self.asked_since[gone] = self.clock()
            elif (
                state is not UnitState.STOPPING or self.clock() >= self.asked_since[gone] + self.task_seconds
            ):
                del self.units[gone]
                self.drivers.pop(gone, None)

    def step(self):
        if not self.serves():
            return
        versioned = self.channel.read(paths.assignment(self.host.name), Assignment)
        if (
            versioned is not None and versioned.value.epoch >= self.assigned.epoch
        ):  # an agent refuses an older epoch
            self.assigned = versioned.value
        assignment = self.assigned
        self._obey(assignment)
        wanted = {unit.id: unit for unit in assignment.units}
        self._end(wanted)
        for identity, unit in wanted.items():
            if identity in self.units:
                continue
            self.units[identity] = (UnitState.RUNNING, None, self.wall())
            if unit.kind is UnitKind.DRIVER:
                spec = self.specs[unit.tenant]
                self.drivers[identity] = SimDriver(
                    self.channel, spec, unit.incarnation, self.logs[unit.tenant], self.clocks
                )
        for identity, driver in self.drivers.items():
            driver.step()
            if driver.ended and self.units[identity][0] is UnitState.RUNNING:
                self.units[identity] = (UnitState.EXITED, "exit code 0", self.wall())
        observed = Observed(
            epoch=assignment.epoch,
            units=tuple(
                UnitObserved(
                    id=name,
                    state=state,
                    exit=reason,
                    since=since,
                    restarts=self.restarts.get(name, 0),
                    starved_since=self.starved.get(name),
                )
                for name, (state, reason, since) in self.units.items()
            ),
            rebooted=self.rebooted,
            fault=self.fault,
            boot=f"boot after {self.rebooted}",
            findings=self.findings,
            **self.notice,
            agent_started=self.started,
            limits="simulated",
        )
        before = self.channel.read(paths.observed(self.host.name), Observed)
        if before is None or before.value != observed:
            self.channel.put(paths.observed(self.host.name), observed)
