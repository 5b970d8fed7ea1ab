"""Airflow around one task of a simulated site: waits, deaths of workers, and lost events."""

from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk.exceptions import TaskDeferred
from simulation.mortal import KilledError

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import base, changes, fleet
from sluice_ops.model import paths
from sluice_ops.model.change import Result
from sluice_ops.operations import approvals, requests

MOST_TURNS = 80


class StillWaitsError(AssertionError):
    """The task has not ended after its turns."""


class SimulatedAirflow:
    """Runs the task of one DAG."""

    dag: str
    deadline = 300.0

    def __init__(self, monkeypatch, world):
        self.world, self.channel, self.pushed = world, world.channel, {}
        self.approved = []
        monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
        clock = SimpleNamespace(time=world.wall, monotonic=world.clock, sleep=self.tick)
        for module in (base, changes, fleet, requests):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(SluiceHook, "open", self.opened)

    @contextmanager
    def opened(self):
        yield self.channel

    def tick(self, _seconds=1.0):
        """Let time pass; another person approves what waits."""
        self.world.tick()
        for change in approvals.waiting(self.world.channel):
            approvals.answer(self.world.channel, change.id, "cli:ben", approved=True)
            self.approved.append(change.id)

    def carry_out(self, make, *, run="r1", dry_run=False, loses_events=False, turns=MOST_TURNS):
        """Run the task that `make` returns, and return its result.

        A killed worker is replaced by another try. Without events, each wait begins another try.
        """
        event = None
        for _ in range(turns):
            operator = make()
            try:
                if event is None:
                    return operator.execute(self.context(run, dry_run=dry_run))
                return operator.resume(self.context(run), event)
            except KilledError:
                self.channel, event = self.world.channel, None
            except TaskDeferred as deferred:
                fired = self.waited(deferred.trigger)
                event = None if loses_events else fired
        raise StillWaitsError

    def context(self, run, *, dry_run=False):
        self.pushed = {}
        task = SimpleNamespace(
            dag_id=self.dag,
            run_id=run,
            task_id="task",
            map_index=-1,
            xcom_push=lambda key, value: self.pushed.update({key: value}),
        )
        began = datetime.fromtimestamp(self.world.wall(), UTC)
        return {
            "ti": task,
            "dag": SimpleNamespace(dag_id=self.dag),
            "run_id": run,
            "dag_run": SimpleNamespace(start_date=began, triggering_user_name=None),
            "params": {"deadline": self.deadline, "dry_run": dry_run},
        }

    def waited(self, trigger):
        """Let time pass until a trigger fires; return its event."""
        if isinstance(trigger, DateTimeTrigger):
            while self.world.wall() < trigger.moment.timestamp():
                self.tick()
            return str(trigger.moment)
        result = None
        while result is None and self.world.wall() < trigger.until:
            self.tick()
            read = self.world.channel.read(paths.result(trigger.operation), Result)
            result = None if read is None else read.value
        answer = None if result is None else result.model_dump(mode="json")
        return {"operation": trigger.operation, "result": answer, "heard": ""}
