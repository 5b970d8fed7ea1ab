"""The task of `rolling_reboot` goes on after a death at any point, and reboots no host twice."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from simulation.mortal import MortalChannel
from simulation.world import RULES, World, host

from sluice_airflow.errors import NothingPostedError, StepFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.fleet import RollingRebootOperator
from sluice_ops.channel import trail_queue
from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, Severity
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.assignment import Assignment, HostState
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.model.rolling import RollingReboot
from sluice_ops.site.repair_config import WindowConfig
from tests.unit.sluice_airflow.conftest import ROOT
from tests.unit.sluice_airflow.simulated_airflow import SimulatedAirflow

HOSTS = ("h1", "h2", "h3")
MOST_TURNS = 60
NODE = paths.rolling_reboot("rack:r1")


@cache
def settled():
    rules = replace(RULES, shifts={})
    return World(
        hosts=[*(host(name, rack="r1") for name in HOSTS), host("h4", cpu=6)], rules=rules
    ).bring_up()


class Site(SimulatedAirflow):
    """A simulated site with a rack of three hosts."""

    dag = "rolling_reboot"

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch, deepcopy(settled()))
        self.window, self.most_out = None, 0
        monkeypatch.setattr(SluiceHook, "site", lambda _: SimpleNamespace(reboot_window=self.window))

    def tick(self, _seconds=1.0):
        super().tick()
        out = [name for name in HOSTS if self.world.host_state(name) is not HostState.UP]
        self.most_out = max(self.most_out, len(out))

    def go(self, *, run="r1", place="rack:r1", at_once=2, dry_run=False, kill_at=None, before=False):
        """Run the task to its end."""
        mortal = MortalChannel(self.world.channel, kill_at, before=before) if kill_at else self.world.channel
        self.channel = mortal
        make = partial(RollingRebootOperator, task_id="roll", place=place, at_once=str(at_once))
        return self.carry_out(make, run=run, dry_run=dry_run, turns=MOST_TURNS)

    @property
    def reboots(self):
        return {name: len(agent.reboots) for name, agent in self.world.agents.items()}

    def check_complete(self):
        assert self.reboots == dict.fromkeys(HOSTS, 1) | {"h4": 0}
        assert {self.world.host_state(name) for name in HOSTS} == {HostState.UP}
        assert self.world.channel.read(NODE, RollingReboot).value.complete
        assert not self.world.channel.exists(paths.LOCK)

    def batches(self):
        named = self.world.channel.children("/changes")
        records = (self.world.channel.read(paths.change(name), ChangeRecord) for name in named)
        return [each.value.spec.hosts for each in records if each is not None and each.value.spec.hosts]


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


def alert(key):
    kind, subject = key.split(":")
    return Alert(
        kind=kind, subject=subject, severity=Severity.WARNING, wait=60, happened="counts lags", did="", do="",
        since=1.0, fired_at=2.0,
    )  # fmt: skip


def test_hosts_reboot_in_batches_and_are_up_again(site):
    assert site.go()["sentence"] == "rebooted: h1, h2, h3"
    site.check_complete()
    assert site.most_out == 2
    assert sorted(site.batches()) == [("h1", "h2"), ("h3",)]


@pytest.mark.parametrize("before", [True, False], ids=["before a write", "after a write"])
def test_a_worker_that_dies_at_any_write_is_continued(monkeypatch, before):
    for kill_at in range(1, MOST_TURNS):
        site = Site(monkeypatch)
        site.go(kill_at=kill_at, before=before)
        site.check_complete()
        assert site.most_out <= 2
        if site.channel is not site.world.channel:
            assert kill_at > 2 * len(RollingRebootOperator.kind.steps)
            return
    message = "the task writes more than expected"
    raise AssertionError(message)


def test_a_task_that_begins_again_at_each_wait_reboots_no_host_twice(site, monkeypatch):
    """The triggerer, the scheduler or the worker is lost at each step, so no event comes."""
    monkeypatch.setattr(Site, "waited", lambda self, trigger, real=Site.waited: real(self, trigger) and None)
    site.go()
    site.check_complete()


def test_a_second_run_continues_with_the_hosts_that_are_left(site):
    site.world.channel.put(paths.ALERTS, AlertRecord())
    real = site.tick

    def tick(seconds=1.0):
        real(seconds)
        if site.reboots["h1"]:
            lags = alert("tier-lags:counts")
            site.world.channel.put(paths.ALERTS, AlertRecord(alerts={lags.key: lags}))

    site.tick = tick
    with pytest.raises(StepFailedError, match=r"alert tier-lags:counts is open.*To continue with the hosts"):
        site.go()
    assert sum(site.reboots.values()) == 2, "the batch that was under way ended"
    site.tick = real
    site.world.channel.put(paths.ALERTS, AlertRecord())
    site.go(run="r2")
    site.check_complete()


def test_a_host_that_does_not_come_back_fails_the_run_and_stops_the_next(site, monkeypatch):
    agent = site.world.agents["h1"]
    alive = agent.step

    def step():
        assigned = site.world.channel.read(paths.assignment("h1"), Assignment)
        if assigned is not None and assigned.value.reboot:
            agent.die()
        alive()

    monkeypatch.setattr(agent, "step", step)
    with pytest.raises(StepFailedError, match=r"batch 1 \(h1, h2\) failed and was undone: reboot failed"):
        site.go()
    assert site.reboots["h3"] == 0
    assert site.world.host_state("h2") is HostState.CORDONED, "no worker has proved it"
    with pytest.raises(StepFailedError, match="a batch of h3 is not possible, so nothing began"):
        site.go(run="r2")
    assert site.reboots["h3"] == 0
    monkeypatch.setattr(agent, "step", alive)
    agent.register()
    site.world.settle()
    site.world.begin("returned", kind="return", host="h2")
    site.world.settle()
    site.go(run="r3")
    site.check_complete()


def test_a_batch_without_room_begins_nothing(site):
    with pytest.raises(StepFailedError, match=r"batch of h1, h2, h3 is not possible, so nothing began"):
        site.go(at_once=3)
    assert sum(site.reboots.values()) == 0
    assert site.batches() == []


def test_a_place_without_a_host_is_a_refusal_that_no_controller_knows(site):
    with pytest.raises(NothingPostedError, match=r"no host is at 'rack:r9'.*known hosts: h1, h2, h3, h4"):
        site.go(place="rack:r9")
    assert not site.world.channel.exists(paths.rolling_reboot("rack:r9"))


def test_a_dry_run_plans_each_batch_and_changes_nothing(site):
    plan = site.go(dry_run=True)
    assert [each["hosts"] for each in plan["batches"]] == [("h1", "h2"), ("h3",)]
    assert all("would do" in each["sentence"] for each in plan["batches"])
    assert not site.world.channel.exists(NODE)
    assert site.batches() == []


def test_batches_begin_only_inside_the_window(site):
    opens = datetime.fromtimestamp(site.world.wall() + 300, UTC).replace(second=0)
    site.window = WindowConfig(schedule=f"{opens.minute} {opens.hour} * * *", hours=1)
    site.go()
    site.check_complete()
    assert site.world.wall() > opens.timestamp()


def test_a_batch_that_the_controller_refuses_as_too_early_comes_again(site):
    opens = datetime.fromtimestamp(site.world.wall() + 300, UTC).replace(second=0)
    window = WindowConfig(schedule=f"{opens.minute} {opens.hour} * * *", hours=1)
    site.world.rules = replace(site.world.rules, reboot_window=window)  # the run's site file has none
    site.deadline = 120.0
    site.go()
    site.check_complete()
    assert site.world.wall() > opens.timestamp()
    assert site.world.channel.read(NODE, RollingReboot).value.number == 3
    begun = [entry for entry in _trail(site.world.channel) if entry.outcome == "begun"]
    assert min(entry.at for entry in begun) >= opens.timestamp()


def _trail(channel):
    return [queued.entry for queued in trail_queue.queued(channel) if "reboot" in queued.entry.what]


def test_one_approval_holds_for_the_whole_rack(site):
    site.world.rules = replace(site.world.rules, approval=ApprovalRule(hosts=2))
    site.go(at_once=1)
    site.check_complete()
    assert len(site.batches()) == 3
    assert len(site.approved) == 1


def test_a_run_that_another_run_has_replaced_ends(site):
    def replaced(_trigger):
        read = site.world.channel.read(NODE, RollingReboot)
        site.world.channel.put(NODE, read.value.model_copy(update={"run": "another"}))
        return "event"

    site.waited = replaced
    with pytest.raises(StepFailedError, match="stopped: another continues it"):
        site.go()


def test_the_form_takes_places_and_a_deadline_for_each_batch():
    dag = DagBag(str(ROOT / "dags" / "runbooks.py")).dags["rolling_reboot"]
    params = dag.params
    assert set(params) == {"place", "at_once", "only_needed", "deadline", "dry_run"}
    assert "each batch" in params.get_param("deadline").description
    for accepted in ("h1", "h1,h2", "rack:r1,label:fast"):
        params["place"] = accepted
    assert Step.REBOOT in RollingRebootOperator.kind.steps
