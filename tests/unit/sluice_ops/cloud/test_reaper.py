"""The reaper terminates orphaned instances, and nothing else."""

import pytest
from simulation.ec2 import MemoryCloud, instance
from simulation.memory import MemoryChannel

from sluice_ops.channel import trail_queue
from sluice_ops.cloud import reaper
from sluice_ops.cloud.reaper import BOOT_SECONDS, reap, retire_soon, why_unowned
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostFacts, HostRecord, Unit, UnitKind
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Plan
from sluice_ops.model.resources import Quantum

NOW = 1_000_000.0
OLD, YOUNG = NOW - BOOT_SECONDS - 1, NOW - BOOT_SECONDS + 60
UNIT = Unit(
    id="slot-enrich-1-0", kind=UnitKind.SLOT, tenant="enrich", incarnation=1, quantum=Quantum(), label="l"
)


def registered(channel, host, *, live=True, units=(), zone="ec2"):
    facts = HostFacts(name=host, address="10.0.0.1", zone=zone, cpu=4, memory=4096)
    channel.put(paths.host(host), facts)
    channel.put(paths.host_record(host), HostRecord())
    channel.put(paths.assignment(host), Assignment(units=units))
    if live:
        channel.put(paths.live(host), facts)


def changed(channel, identity, state):
    spec = ChangeSpec(kind="burst", tier="enrich", k=1)
    record = ChangeRecord(id=identity, spec=spec, plan=Plan(), state=state, by="a", started_at=1.0)
    channel.put(paths.change(identity), record)


@pytest.mark.parametrize(
    ("launched_at", "host", "state", "reason"),
    [
        (YOUNG, None, None, None),
        (OLD, None, None, "it has run for 30 minutes, and no agent serves ec2-00000001"),
        (OLD, {"live": False}, ChangeState.DONE, "no agent serves ec2-00000001"),
        (OLD, {"live": False, "units": (UNIT,)}, ChangeState.DONE, None),
        (YOUNG, {}, ChangeState.ABORTED, "change c1 was aborted, and no tier is on ec2-00000001"),
        (YOUNG, {"units": (UNIT,)}, ChangeState.ABORTED, None),
        (OLD, {}, ChangeState.ACTIVE, None),
        (OLD, {}, ChangeState.DONE, None),
        (YOUNG, {}, None, None),
        (OLD, {}, None, "without a tier, and change c1, which launched it, is not known"),
        (OLD, {"units": (UNIT,)}, None, None),
    ],
)
def test_an_instance_is_unowned_only_if_nothing_can_need_it(launched_at, host, state, reason):
    channel, each = MemoryChannel(), instance("i-0000000000000001", "c1", launched_at=launched_at)
    if host is not None:
        registered(channel, each.host, **host)
    if state is not None:
        changed(channel, "c1", state)
    why = why_unowned(channel, each, NOW)
    assert (why is None) is (reason is None)
    assert (reason or "") in (why or "")


def test_an_unreadable_change_is_no_reason_to_terminate():
    channel, each = MemoryChannel(), instance("i-0000000000000001", "c1", launched_at=OLD)
    registered(channel, each.host)
    channel.put(paths.change("c1"), Assignment())
    assert channel.read(paths.change("c1"), ChangeRecord) is None
    assert why_unowned(channel, each, NOW) is None


def cloud_with(*changes):
    cloud = MemoryCloud()
    for change in changes:
        cloud.launch(change, 1, print)
    return cloud


def test_a_reap_terminates_the_unowned_and_retires_ended_hosts():
    channel, cloud = MemoryChannel(), cloud_with("undone", "done")
    undone, done = cloud.instances()
    for each in (undone, done):
        registered(channel, each.host)
    changed(channel, "undone", ChangeState.ABORTED)
    changed(channel, "done", ChangeState.DONE)
    registered(channel, "ec2-0000dead", live=False)
    registered(channel, "ec2-0000beef", live=False, units=(UNIT,))
    registered(channel, "ec2-gateway", live=False)
    registered(channel, "h1", live=False, zone="onprem")
    planned = reap(cloud, channel, "anna", done.launched_at, dry_run=True)
    assert len(cloud.ec2.running) == 2
    assert reap(cloud, channel, "anna", done.launched_at) == planned
    assert list(planned.terminated) == [str(undone)]
    assert cloud.ec2.running == [done.id]
    assert planned.retired == ["ec2-0000dead"]
    assert channel.children("/hosts") == sorted([undone.host, done.host, "ec2-0000beef", "ec2-gateway", "h1"])
    (entry,) = [queued.entry for queued in trail_queue.queued(channel)]
    assert (entry.what, entry.by) == ("retire ec2-0000dead", "anna")


def test_a_leave_waits_until_the_agents_of_ended_instances_are_gone():
    channel, cloud = MemoryChannel(), cloud_with("done")
    (each,) = cloud.instances()
    registered(channel, each.host)
    cloud.terminate([each.id])
    waits = []

    def pause(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            channel.delete(paths.live(each.host))

    assert retire_soon(channel, cloud, "anna", {each.host: "it cost 0.24"}, pause) == [each.host]
    assert waits == [reaper.POLL_SECONDS] * 3
    (entry,) = [queued.entry for queued in trail_queue.queued(channel)]
    assert (entry.what, entry.sentence) == (f"retire {each.host}", "it cost 0.24")
    assert channel.children("/hosts") == []
    assert retire_soon(channel, cloud, "anna", {each.host: "it cost 0.24"}, pause) == []


def test_a_leave_does_not_wait_for_ever():
    channel, waits = MemoryChannel(), []
    registered(channel, "ec2-0000dead")
    assert retire_soon(channel, MemoryCloud(), "anna", {}, waits.append) == []
    assert sum(waits) == reaper.RETIRE_SECONDS
