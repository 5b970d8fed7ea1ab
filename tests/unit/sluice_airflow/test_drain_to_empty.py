"""The task of `drain_to_empty` goes on after a death at any wait, and always takes pauses back."""

from dataclasses import replace
from functools import partial

import pytest
from airflow.dag_processing.dagbag import DagBag
from simulation.world import TIERS, World

from sluice_airflow.errors import NothingPostedError, PipelineFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.fleet import DrainToEmptyOperator, TakeDrainBackOperator
from sluice_ops.model import paths
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.incarnation import State
from sluice_ops.planning.pipeline_drain import Flow, Measured
from tests.unit.sluice_airflow.conftest import ROOT
from tests.unit.sluice_airflow.simulated_airflow import MOST_TURNS, SimulatedAirflow, StillWaitsError

WIRED = (
    TIERS[0].model_copy(update={"outputs": ("hits",)}),
    TIERS[3].model_copy(update={"inputs": ("hits",)}),
)
pytestmark = pytest.mark.timeout(120)


class Site(SimulatedAirflow):
    """A pipeline of two tiers, and what is measured of it."""

    dag = "drain_to_empty"
    deadline = 60.0

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch, World(tiers=WIRED))
        self.world.bring_up()
        self.left, self.missing = 0, ""
        monkeypatch.setattr(SluiceHook, "measured", lambda _: self.measured())

    def measured(self):
        flows = {"outbound": Flow(self.world.wall(), self.left, 0.0)}
        return Measured(self.missing, {"in/0": 10**6, "hits/0": 0}, self.world.wall(), flows)

    def go(self, *, run="r1", loses_events=False, dry_run=False, task=DrainToEmptyOperator, waits=MOST_TURNS):
        """Run a task to its end, or let it wait so many times."""
        make = partial(task, task_id="drain")
        return self.carry_out(make, run=run, loses_events=loses_events, dry_run=dry_run, turns=waits)

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


def test_one_approval_holds_for_every_pause_and_the_way_back(site):
    rule = ApprovalRule(always=("drain-to-empty", "resume"))
    site.world.rules = replace(site.world.rules, approval=rule)
    site.left = 9
    with pytest.raises(PipelineFailedError, match="outbound has 9 records left"):
        site.go()
    assert site.states() == {State.RUNNING}
    site.left = 0
    site.go(run="r2")
    assert site.states() == {State.PAUSED}
    assert len(site.approved) == 2, "one for each run"


@pytest.mark.parametrize("waits", [1, 2, 3])
def test_a_run_that_a_person_ended_is_taken_back(site, waits):
    site.left = 9
    with pytest.raises(StillWaitsError):
        site.go(waits=waits)
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
