"""The task of `drain_to_empty` goes on after a death at any wait, and always takes pauses back."""

from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk.exceptions import TaskDeferred
from simulation.world import TIERS, World

from sluice_airflow.errors import NothingPostedError, PipelineFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import base, changes, fleet
from sluice_airflow.operators.fleet import DrainToEmptyOperator, TakeDrainBackOperator
from sluice_ops.model import paths
from sluice_ops.model.change import Result
from sluice_ops.model.incarnation import State
from sluice_ops.operations import requests
from sluice_ops.planning.pipeline_drain import Flow, Measured
from tests.unit.sluice_airflow.conftest import ROOT

WIRED = (
    TIERS[0].model_copy(update={"outputs": ("hits",)}),
    TIERS[3].model_copy(update={"inputs": ("hits",)}),
)
MOST_TURNS = 80
pytestmark = pytest.mark.timeout(120)


class Site:
    """A pipeline of two tiers, and Airflow around the tasks."""

    def __init__(self, monkeypatch):
        self.world = World(tiers=WIRED)
        self.world.want()
        self.world.settle()
        self.left, self.missing = 0, ""
        monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
        clock = SimpleNamespace(
            time=self.world.wall, monotonic=self.world.clock, sleep=lambda _: self.world.tick()
        )
        for module in (base, changes, fleet, requests):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(SluiceHook, "open", self.opened)
        monkeypatch.setattr(SluiceHook, "measured", lambda _: self.measured())

    @contextmanager
    def opened(self):
        yield self.world.channel

    def measured(self):
        flows = {"outbound": Flow(self.world.wall(), self.left, 0.0)}
        return Measured(self.missing, {"in/0": 10**6, "hits/0": 0}, self.world.wall(), flows)

    def go(self, *, loses_events=False, dry_run=False, task=DrainToEmptyOperator, waits=MOST_TURNS):
        """Run a task as Airflow does. Without events, each wait begins another try."""
        event = None
        for _ in range(waits):
            operator = task(task_id="drain")
            try:
                if event is None:
                    return operator.execute(self.context(dry_run=dry_run))
                return operator.resume(self.context(), event)
            except TaskDeferred as deferred:
                waited = self.waited(deferred.trigger)
                event = None if loses_events else waited
        return "it waits"

    def context(self, *, dry_run=False):
        task = SimpleNamespace(xcom_push=lambda **_: None)
        return {
            "ti": task,
            "dag": SimpleNamespace(dag_id="drain_to_empty"),
            "run_id": "r1",
            "dag_run": SimpleNamespace(
                start_date=datetime.fromtimestamp(self.world.wall(), UTC), triggering_user_name=None
            ),
            "params": {"deadline": 60.0, "dry_run": dry_run},
        }

    def waited(self, trigger):
        """Let time pass until a trigger fires; return its event."""
        if isinstance(trigger, DateTimeTrigger):
            while self.world.wall() < trigger.moment.timestamp():
                self.world.tick()
            return {}
        result = None
        while result is None and self.world.wall() < trigger.until:
            self.world.tick()
            read = self.world.channel.read(paths.result(trigger.operation), Result)
            result = None if read is None else read.value
        answer = None if result is None else result.model_dump(mode="json")
        return {"operation": trigger.operation, "result": answer, "heard": ""}

    def states(self):
        return {self.world.state(name) for name in self.world.specs}


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


@pytest.mark.parametrize("loses_events", [False, True], ids=["with events", "each wait is another try"])
def test_the_receipt_is_returned_when_every_tier_is_paused(site, loses_events):
    receipt = site.go(loses_events=loses_events)
    assert receipt["sentence"].startswith("0 records in flight; paused: entry, outbound")
    assert [tier["tier"] for tier in receipt["tiers"]] == ["entry", "outbound"]
    assert site.states() == {State.PAUSED}
    assert site.go(task=TakeDrainBackOperator) == {}, "an ended drain is left alone"
    assert site.states() == {State.PAUSED}


@pytest.mark.parametrize("loses_events", [False, True], ids=["with events", "each wait is another try"])
def test_a_tier_that_does_not_get_empty_fails_the_task_and_resumes_all(site, loses_events):
    site.left = 9
    with pytest.raises(PipelineFailedError, match="outbound has 9 records left"):
        site.go(loses_events=loses_events)
    assert site.states() == {State.RUNNING}


@pytest.mark.parametrize("waits", [1, 2, 3])
def test_a_run_that_a_person_ended_is_taken_back(site, waits):
    site.left = 9
    assert site.go(waits=waits) == "it waits"
    with pytest.raises(PipelineFailedError, match=r"its run was ended|was aborted"):
        site.go(task=TakeDrainBackOperator)
    assert site.states() == {State.RUNNING}


def test_nothing_begins_while_nobody_can_tell_what_is_in_flight(site):
    site.missing = "PostgreSQL does not answer"
    with pytest.raises(NothingPostedError, match="nobody can tell what is in flight"):
        site.go()
    assert site.states() == {State.RUNNING}


def test_a_dry_run_pauses_nothing(site):
    assert "would do: the tiers that read from outside are paused" in site.go(dry_run=True)["sentence"]
    assert not site.world.channel.exists(paths.PIPELINE_DRAIN)


def test_the_form_has_a_deadline_only():
    dag = DagBag(str(ROOT / "dags" / "runbooks.py")).dags["drain_to_empty"]
    assert set(dag.params) == {"deadline", "dry_run"}
    assert dag.get_task("take_back").is_teardown
