"""The task of `upgrade_pipeline` goes on after a death at any wait, and can go back."""

from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import TaskDeferred
from simulation.world import NEW, OLD, TIERS, with_new_release

from sluice_airflow.errors import PipelineFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import base, changes, fleet
from sluice_airflow.operators.fleet import UpgradePipelineOperator
from sluice_ops.model import paths
from sluice_ops.model.change import Result
from sluice_ops.operations import requests
from tests.unit.sluice_airflow.conftest import ROOT

MOST_TURNS = 80
pytestmark = pytest.mark.timeout(240)


class Site:
    """A pipeline of two tiers on an old release, and Airflow around one task."""

    def __init__(self, monkeypatch):
        self.world = with_new_release(TIERS[2:])
        monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
        tick = lambda _seconds: self.world.tick()
        clock = SimpleNamespace(time=self.world.wall, monotonic=self.world.clock, sleep=tick)
        for module in (base, changes, fleet, requests):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(SluiceHook, "open", self.opened)

    @contextmanager
    def opened(self):
        yield self.world.channel

    def go(self, *, loses_events=False, dry_run=False):
        """Run the task as Airflow does. Without events, each wait begins another try."""
        event = None
        for _ in range(MOST_TURNS):
            operator = UpgradePipelineOperator(task_id="upgrade", canary="outbound")
            try:
                if event is None:
                    return operator.execute(self.context(dry_run=dry_run))
                return operator.resume(self.context(), event)
            except TaskDeferred as deferred:
                event = self.waited(deferred.trigger)
                event = None if loses_events else event
        message = "the task does not end"
        raise AssertionError(message)

    def context(self, *, dry_run=False):
        self.pushed = {}
        task = SimpleNamespace(xcom_push=lambda key, value: self.pushed.update({key: value}))
        began = datetime.fromtimestamp(self.world.wall(), UTC)
        return {
            "ti": task,
            "dag": SimpleNamespace(dag_id="upgrade_pipeline"),
            "run_id": "r1",
            "dag_run": SimpleNamespace(start_date=began, triggering_user_name=None),
            "params": {"deadline": 300.0, "dry_run": dry_run},
        }

    def waited(self, trigger):
        """Let time pass until a trigger fires; return its event."""
        result = None
        while result is None and self.world.wall() < trigger.until:
            self.world.tick()
            read = self.world.channel.read(paths.result(trigger.operation), Result)
            result = None if read is None else read.value
        answer = None if result is None else result.model_dump(mode="json")
        return {"operation": trigger.operation, "result": answer, "heard": ""}

    def releases(self):
        world = self.world
        return {world.incarnation(name, world.owner(name).owner).release for name in world.specs}


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


@pytest.mark.parametrize("loses_events", [False, True], ids=["with events", "each wait is another try"])
def test_every_tier_gets_the_release(site, loses_events):
    sentence = site.go(loses_events=loses_events)["sentence"]
    assert sentence.startswith("outbound, counts upgraded")
    assert site.releases() == {NEW}
    assert len(site.world.channel.children("/changes")) == 2


@pytest.mark.parametrize("loses_events", [False, True], ids=["with events", "each wait is another try"])
def test_after_a_failed_trial_the_canary_goes_back(site, loses_events):
    site.world.logs["counts"].sets_aside[NEW] = 40
    with pytest.raises(
        PipelineFailedError, match=r"counts: trial failed.*went back, in this order: outbound"
    ):
        site.go(loses_events=loses_events)
    assert site.releases() == {OLD}


def test_a_dry_run_names_the_tiers_in_order_and_changes_nothing(site):
    assert site.go(dry_run=True)["tiers"] == ["outbound", "counts"]
    assert not site.world.channel.exists(paths.PIPELINE_UPGRADE)


def test_the_form_has_a_release_and_a_canary():
    params = DagBag(str(ROOT / "dags" / "runbooks.py")).dags["upgrade_pipeline"].params
    assert set(params) == {"release", "canary", "deadline", "dry_run"}
