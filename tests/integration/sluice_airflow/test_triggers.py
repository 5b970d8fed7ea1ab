"""The triggers against a real ZooKeeper: they wait through interruptions and change nothing."""

import asyncio
import time

import pytest
from airflow.triggers.base import TaskSuccessEvent

from sluice_airflow.triggers.operations import HostsTrigger, OperationTrigger, TierTrigger
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.change import ChangeSpec, Operation, Step
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, Placement, State
from sluice_ops.operations import requests
from tests.integration.sluice_airflow.controller import AnsweringController

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.timeout(90)]


@pytest.fixture
def channel(zookeeper):
    with Channel(zookeeper) as opened:
        yield opened


def posted(channel, step=Step.PREPARE):
    operation = Operation(
        id=requests.operation_id("drain_host.r1", step),
        change=requests.change_id("drain_host.r1"),
        step=step,
        spec=ChangeSpec(kind="drain", host="h1"),
        by="test",
        posted_at=time.time(),
    )
    requests.post(channel, operation)
    return operation.id


async def first(trigger):
    async for event in trigger.run():
        return event
    return None


def fire(trigger):
    return asyncio.run(first(trigger))


def serialized_copy(trigger):
    """Create the trigger from its serialized form, as a triggerer does."""
    path, arguments = trigger.serialize()
    assert path == f"sluice_airflow.triggers.operations.{type(trigger).__name__}"
    return type(trigger)(**arguments)


def test_a_success_ends_the_task_with_the_journal_in_its_log(zookeeper, channel, capsys):
    identity = posted(channel)
    with AnsweringController(zookeeper, seconds={Step.PREPARE: 0.5}):
        event = fire(serialized_copy(OperationTrigger(identity, time.time() + 30)))
    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms["return_value"]["sentence"] == "prepare is done"
    log = capsys.readouterr().out
    assert (
        log.index("prepare has begun") < log.index("prepare has ended") < log.index("Done: prepare is done")
    )
    assert log.count("prepare has begun") == 1


def test_a_failure_goes_back_to_the_task(zookeeper, channel):
    identity = posted(channel)
    with AnsweringController(zookeeper, fails={Step.PREPARE: "no room on h2"}):
        event = fire(OperationTrigger(identity, time.time() + 30))
    assert event.payload["result"]["ok"] is False
    assert event.payload["result"]["sentence"] == "no room on h2"


def test_a_timeout_reports_the_last_journal_entry(channel):
    identity = posted(channel)
    event = fire(OperationTrigger(identity, time.time() + 0.3))
    assert event.payload == {"operation": identity, "result": None, "heard": "the journal is empty"}


def test_a_cancelled_trigger_keeps_the_operation_for_the_next_trigger(zookeeper, channel):
    identity = posted(channel)

    async def cancelled():
        trigger = OperationTrigger(identity, time.time() + 30)
        task = asyncio.create_task(first(trigger))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await trigger.cleanup()

    asyncio.run(cancelled())
    assert channel.children("/operations") == [identity]
    assert not channel.exists(paths.result(identity))
    with AnsweringController(zookeeper):
        assert isinstance(fire(OperationTrigger(identity, time.time() + 30)), TaskSuccessEvent)


def test_all_triggers_of_a_process_share_one_connection(zookeeper, channel, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "sluice_airflow.hooks.sluice.Channel",
        lambda hosts, credential: opened.append(hosts) or Channel(hosts, credential),
    )
    identities = [posted(channel, step) for step in (Step.PREPARE, Step.CUT, Step.VERIFY)]

    async def together():
        return await asyncio.gather(
            *(first(OperationTrigger(identity, time.time() + 30)) for identity in identities)
        )

    with AnsweringController(zookeeper, seconds=dict.fromkeys((Step.PREPARE, Step.CUT, Step.VERIFY), 1.5)):
        events = asyncio.run(together())
    assert all(isinstance(event, TaskSuccessEvent) for event in events)
    assert opened == [zookeeper]


def test_a_tiers_failure_is_reported_within_a_second_with_its_error(channel):
    tier = TierName("counts")
    requests.want(channel, tier, by="test", running=True)
    spec = IncarnationSpec(
        tier=tier,
        incarnation=Incarnation(1),
        placement=Placement(driver="h1", slots=("h1",)),
        reason="launch",
        created_at=0,
    )
    channel.put(paths.incarnation(tier, 1), spec)
    channel.put(paths.report(tier, 1), IncarnationReport(state=State.RUNNING, since=0, pid=1))

    async def fails_later():
        wait = asyncio.create_task(first(serialized_copy(TierTrigger(tier, 0, 0, time.time() + 60))))
        await asyncio.sleep(1.0)
        failed = IncarnationReport(state=State.FAILED, since=0, pid=1, error="no such column: campain")
        await asyncio.to_thread(channel.put, paths.report(tier, 1), failed)
        failed_at = time.monotonic()
        return await wait, time.monotonic() - failed_at

    event, seconds = asyncio.run(fails_later())
    assert event.payload["kind"] == "failed"
    assert event.payload["error"] == "no such column: campain"
    assert seconds < 3.0, "a watch reports the failure, not the periodic check"


def test_a_stopped_tier_ends_its_supervision(channel):
    requests.want(channel, "counts", by="cli:anna", running=False)
    assert fire(TierTrigger("counts", 0, 0, time.time() + 30)).payload["kind"] == "unwanted"


def test_the_hosts_trigger_waits_and_names_missing_hosts(channel):
    facts = HostFacts(name="ec2-0a1b2c3d", address="127.0.2.1", zone="ec2", cpu=4, memory=4096)
    channel.put(paths.host("ec2-0a1b2c3d"), facts)
    channel.create(paths.live("ec2-0a1b2c3d"), facts, ephemeral=True)
    assert isinstance(fire(HostsTrigger(["ec2-0a1b2c3d"], time.time() + 5)), TaskSuccessEvent)
    event = fire(serialized_copy(HostsTrigger(["ec2-0a1b2c3d", "ec2-ffffffff"], time.time() + 0.3)))
    assert event.payload == {"missing": ["ec2-ffffffff"]}
