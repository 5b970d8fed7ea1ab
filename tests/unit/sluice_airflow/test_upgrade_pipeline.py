"""The task of `upgrade_pipeline` goes on after a death at any wait, and can go back."""

from dataclasses import replace
from functools import partial

import pytest
from airflow.dag_processing.dagbag import DagBag
from simulation.world import NEW, OLD, TIERS, with_new_release

from sluice_airflow.errors import StepFailedError
from sluice_airflow.operators.fleet import UpgradePipelineOperator
from sluice_ops.model import paths
from sluice_ops.model.approval import ApprovalRule
from tests.unit.sluice_airflow.conftest import ROOT
from tests.unit.sluice_airflow.simulated_airflow import SimulatedAirflow

pytestmark = pytest.mark.timeout(240)


class Site(SimulatedAirflow):
    """A pipeline of two tiers on an old release."""

    dag = "upgrade_pipeline"

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch, with_new_release(TIERS[2:]))

    def go(self, *, loses_events=False, dry_run=False):
        """Run the task to its end."""
        make = partial(UpgradePipelineOperator, task_id="upgrade", canary="outbound")
        return self.carry_out(make, loses_events=loses_events, dry_run=dry_run)

    def releases(self):
        world = self.world
        return {world.incarnation(name, world.owner(name).owner).release for name in world.specs}


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


@pytest.mark.parametrize("loses_events", [False, True], ids=["with events", "each wait is another try"])
def test_every_tier_gets_the_release(site, capsys, loses_events):
    sentence = site.go(loses_events=loses_events)["sentence"]
    assert sentence.startswith("outbound, counts upgraded")
    assert site.releases() == {NEW}
    assert len(site.world.channel.children("/changes")) == 2
    assert capsys.readouterr().out.count("The run of 2 changes took") == 1


@pytest.mark.parametrize("loses_events", [False, True], ids=["with events", "each wait is another try"])
def test_after_a_failed_trial_the_canary_goes_back(site, capsys, loses_events):
    site.world.logs["counts"].sets_aside[NEW] = 40
    with pytest.raises(StepFailedError, match=r"counts: trial failed.*went back, in this order: outbound"):
        site.go(loses_events=loses_events)
    assert site.releases() == {OLD}
    said = capsys.readouterr().out
    assert (said.count("The run of 3 changes took"), said.count("The run took")) == (1, 0)


@pytest.mark.parametrize("rule", [{"tiers": 2}, {"always": ("upgrade",)}], ids=["tiers", "always"])
def test_one_approval_holds_for_all_tiers_and_the_way_back(site, rule):
    site.world.rules = replace(site.world.rules, approval=ApprovalRule(**rule))
    site.world.logs["counts"].sets_aside[NEW] = 40
    with pytest.raises(StepFailedError, match="went back, in this order: outbound"):
        site.go()
    assert site.releases() == {OLD}
    assert len(site.world.channel.children("/changes")) == 3
    assert len(site.approved) == 1


def test_a_dry_run_names_the_tiers_in_order_and_changes_nothing(site):
    assert site.go(dry_run=True)["tiers"] == ["outbound", "counts"]
    assert not site.world.channel.exists(paths.PIPELINE_UPGRADE)


def test_the_form_has_a_release_and_a_canary():
    params = DagBag(str(ROOT / "dags" / "runbooks.py")).dags["upgrade_pipeline"].params
    assert set(params) == {"release", "canary", "deadline", "dry_run"}
