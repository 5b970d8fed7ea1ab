"""A simulated host whose agent decides with the real `sluice_ops.agent.units.reconcile`."""

from dataclasses import replace

from simulation.actors import SimAgent, SimDriver
from simulation.world import World

from sluice_ops.agent.units.reconcile import (
    FoundUnit,
    Kill,
    ProcessorNeeds,
    Remove,
    RequestStop,
    SetWeights,
    Start,
    observe,
    reconcile,
    state_of,
)
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, Observed, UnitKind
from sluice_ops.model.batch import task_seconds
from sluice_ops.model.ids import BATCH


class ReconcilingAgent(SimAgent):
    """An agent that carries out its decisions on simulated units; a test sets how long tasks in
    batch slots continue.
    """

    def __init__(self, *more):
        self.found = {}
        self.tasks = {}
        """How long the tasks of each batch slot continue after it is asked to stop."""
        self.reclaim_seconds = 120.0
        self.asked_since = {}
        self.interrupted = []
        """Batch slots that were killed during a task."""
        super().__init__(*more)

    def cut_off(self):
        """Cut the host off from the channel; its units run on."""
        self.alive = False
        self.channel.delete(paths.live(self.host.name))

    def die(self):
        self.found = {}
        super().die()

    def step(self):
        if not self.alive:
            return
        versioned = self.channel.read(paths.assignment(self.host.name), Assignment)
        if versioned is not None and versioned.value.epoch >= self.assigned.epoch:
            self.assigned = versioned.value
        while actions := reconcile(self.assigned, self._look(), self.clock(), self.reclaim_seconds).actions:
            for action in actions:
                self._do(action)
        for identity, driver in self.drivers.items():
            driver.step()
            if driver.ended and self.found[identity].alive:
                self._end(identity, "exit code 0")
        self.units = {
            identity: (state_of(item), item.exit, item.started_at) for identity, item in self.found.items()
        }
        units = observe(self.assigned, self._look(), {}, ProcessorNeeds(), self.clock())
        self.channel.put(
            paths.observed(self.host.name),
            Observed(epoch=self.assigned.epoch, units=units, agent_started=0.0, limits="none"),
        )

    def _look(self):
        """Return all units; a stopping batch slot whose tasks are done has no other process."""
        for identity, item in self.found.items():
            if (
                item.stopping_at is not None
                and item.unit.tenant == BATCH
                and self.clock() >= item.stopping_at + self.tasks.get(identity, 0.0)
            ):
                self.found[identity] = replace(item, others=0)
        return list(self.found.values())

    def _end(self, identity, why=None):
        self.found[identity] = replace(
            self.found[identity], alive=False, others=0, ended_at=self.clock(), exit=why
        )

    def _do(self, action):
        match action:
            case Start(unit):
                lends = unit.tenant == BATCH
                self.found[unit.id] = FoundUnit(unit, alive=True, others=int(lends), started_at=self.clock())
                if unit.kind is UnitKind.DRIVER:
                    self.drivers[unit.id] = SimDriver(
                        self.channel,
                        self.specs[unit.tenant],
                        unit.incarnation,
                        self.logs[unit.tenant],
                        (self.clock, self.wall),
                    )
            case RequestStop(identity, decommission):
                assert decommission is (self.found[identity].unit.tenant == BATCH)
                self.found[identity] = replace(self.found[identity], stopping_at=self.clock())
                if decommission:
                    self.asked_since[identity] = self.clock()
                else:
                    self._end(identity)
            case Kill(identity):
                if self.found[identity].others:
                    self.interrupted.append(identity)
                self._end(identity)
            case Remove(identity):
                del self.found[identity]
                self.drivers.pop(identity, None)
            case SetWeights(unit):
                self.found[unit.id] = replace(self.found[unit.id], unit=unit)


class ReconcilingWorld(World):
    """A world whose hosts have such agents."""

    def add_host(self, config):
        agent = ReconcilingAgent(self.channel, config, self.logs, self.specs, (self.clock, self.wall))
        agent.reclaim_seconds = task_seconds(self.rules.reclaim_seconds)
        self.agents[config.name] = agent
