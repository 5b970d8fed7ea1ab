"""One answer holds for the whole run of several changes, and for its way back."""

from dataclasses import replace

import pytest
from simulation.world import HOSTS, NEW, OLD, TIERS, World, host, with_new_release

from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, Severity
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.change import ChangeRecord, ChangeState, PartOf, Step
from sluice_ops.operations.approvals import answer, waiting

RACK = PartOf(run="reboot-r1", hosts=("h1", "h2"))
PIPELINE = PartOf(run="upgrade-1", tiers=("outbound", "counts"))


def rebooting(**rule):
    """Return a world in which the first batch of two asks, or begins."""
    world = World(hosts=(*HOSTS, host("h4")))
    world.bring_up()
    world.rules = replace(world.rules, approval=ApprovalRule(always=(), **rule))
    return world, reboot(world, "c1", "h1")


def reboot(world, change, name, by="cli:anna", part_of=RACK):
    runbook = world.begin(change, by=by, kind="reboot-hosts", hosts=(name,), part_of=part_of)
    world.tick()
    world.tick()
    return runbook


def asked(world):
    return [change.id for change in waiting(world.channel)]


def record(world, name):
    return world.channel.read(paths.change(name), ChangeRecord).value


def approve(world, change="c1"):
    answer(world.channel, change, "cli:ben", approved=True)
    world.settle()


def test_the_first_batch_asks_for_all_hosts_and_the_others_begin():
    world, first = rebooting(hosts=2)
    assert asked(world) == ["c1"]
    assert record(world, "c1").asked.hosts == ("h1", "h2")
    assert record(world, "c1").asked.plan.endswith("; the answer holds for the whole run: h1, h2")
    approve(world)
    second = reboot(world, "c2", "h2")
    world.settle()
    assert first.ok
    assert second.ok
    assert second.results[Step.PREFLIGHT].sentence.startswith("approved by cli:ben; planned: ")
    assert record(world, "c2").asked.waited_seconds == 0.0
    assert record(world, "c2").asked.began


def test_all_tiers_on_the_hosts_of_the_run_count():
    world, _ = rebooting(tiers=1)
    on_them = {name for name in world.specs if world.placement(name).hosts & {"h1", "h2"}}
    assert {*record(world, "c1").asked.tiers} >= on_them
    assert asked(world) == ["c1"]


def test_a_further_host_asks_again():
    world, _ = rebooting(hosts=2)
    approve(world)
    more = RACK.model_copy(update={"hosts": ("h1", "h2", "h3")})
    reboot(world, "c2", "h2", part_of=more)
    assert asked(world) == ["c2"]


def test_a_further_condition_asks_again():
    world, _ = rebooting(hosts=2, alerts=True)
    approve(world)
    fields = {"severity": Severity.WARNING, "wait": 600, "happened": "busy", "did": "", "do": ""}
    busy = Alert(kind="tier-starved", subject="counts", since=1.0, fired_at=2.0, told_at=2.0, **fields)
    world.channel.put(paths.ALERTS, AlertRecord(alerts={busy.key: busy}))
    reboot(world, "c2", "h2")
    assert [*record(world, "c2").asked.reasons] == ["hosts", "alerts"]


def test_another_run_asks_again():
    world, _ = rebooting(hosts=2)
    approve(world)
    reboot(world, "c2", "h2", part_of=RACK.model_copy(update={"run": "reboot-r2"}))
    assert asked(world) == ["c2"]


def test_who_approved_a_run_and_then_continues_it_asks_another_person():
    world, _ = rebooting(hosts=2)
    approve(world)
    reboot(world, "c2", "h2", by="airflow:ben")
    assert asked(world) == ["c2"]


def test_a_refused_run_asks_again():
    world, _ = rebooting(hosts=2)
    answer(world.channel, "c1", "cli:ben", approved=False, why="not today")
    world.settle()
    reboot(world, "c2", "h1")
    assert asked(world) == ["c2"]


def upgrade(world, change, tier, release=NEW):
    return world.begin(change, by="cli:anna", kind="upgrade", tier=tier, release=release, part_of=PIPELINE)


@pytest.mark.parametrize(
    "rule",
    [{"tiers": 2}, {"always": ("upgrade",)}, {"alerts": True}],
    ids=["tiers", "always", "alerts"],
)
def test_an_upgrade_of_all_tiers_asks_once_and_goes_back_without(rule):
    world = with_new_release(TIERS[2:])
    world.rules = replace(world.rules, approval=ApprovalRule(**{"always": (), **rule}))
    first = upgrade(world, "c1", "outbound")
    world.tick()
    world.tick()
    if "alerts" not in rule:
        assert asked(world) == ["c1"]
        approve(world)
    world.settle()
    fields = {"severity": Severity.WARNING, "wait": 0, "happened": "failed", "did": "", "do": ""}
    fails = Alert(kind="driver-failed", subject="outbound", since=1.0, fired_at=2.0, told_at=2.0, **fields)
    world.channel.put(paths.ALERTS, AlertRecord(alerts={fails.key: fails}))
    back = upgrade(world, "c2", "outbound", OLD)
    world.settle()
    assert first.ok
    assert back.ok
    assert record(world, "c2").state is ChangeState.DONE
    assert asked(world) == []


def test_a_change_of_an_older_version_belongs_to_no_run():
    world, _ = rebooting(hosts=2)
    approve(world)
    old = record(world, "c1").model_dump(mode="json")
    del old["spec"]["part_of"]
    assert ChangeRecord.model_validate(old, extra="allow").spec.part_of is None
