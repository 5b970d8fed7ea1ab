"""After its canary, `new_hosts` moves workers onto the new host."""

from dataclasses import replace
from functools import partial

import pytest
from simulation.world import RULES, World, host, tier

from sluice_airflow.errors import StepFailedError
from sluice_airflow.operators.fleet import SpreadOperator
from sluice_ops.model import paths
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from tests.unit.sluice_airflow.simulated_airflow import SimulatedAirflow

NAMES = ("counts", "enrich", "outbound")
pytestmark = pytest.mark.timeout(120)


class Site(SimulatedAirflow):
    """Three busy tiers on `h1`, and the new host `h2`."""

    dag = "new_hosts"

    def __init__(self, monkeypatch):
        shares = {name: Share(minimum=1, target=1, maximum=4) for name in NAMES}
        tiers = [tier(name, Mode.BATCH, number) for number, name in enumerate(NAMES)]
        rules = replace(RULES, shares=shares, shifts={})
        super().__init__(monkeypatch, World(hosts=(host("h1", cpu=8),), tiers=tiers, rules=rules))
        self.world.bring_up()
        self.world.add_host(host("h2", cpu=8))
        self.world.channel.put(paths.SCALER, ScalerRecord(busy=dict.fromkeys(NAMES, 1.0)))
        self.world.settle()

    def spread(self):
        return self.carry_out(partial(SpreadOperator, task_id="spread"))

    def workers(self):
        return sorted(slot for name in NAMES for slot in self.world.placement(name).slots)


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


def test_a_worker_of_a_busy_host_moves_to_the_new_one(site):
    assert site.workers() == ["h1", "h1", "h1"]
    site.spread()
    assert site.workers() == ["h1", "h1", "h2"]


def test_the_forms_deadline_limits_the_spread(site):
    site.deadline = 0.0
    with pytest.raises(StepFailedError):
        site.spread()
    site.world.settle()
    assert site.workers() == ["h1", "h1", "h1"], "it was undone"
