"""The DAG `scaler` runs the runbook that the scaler wants, and waits after a failed one."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from sluice_airflow.operators.scaler import PAUSE_SECONDS, WaitForWishOperator
from sluice_airflow.triggers import operations
from sluice_airflow.triggers.operations import WishTrigger
from sluice_ops.model import paths
from sluice_ops.model.scaler import ScalerRecord, Wish
from tests.unit.sluice_airflow.conftest import ROOT
from tests.unit.sluice_airflow.memory import MemoryChannel, share_with_triggers

WISH = Wish(tier="enrich", k=2, reason="9,000 records/s need 4 workers, 2 of them by a burst")
BURST = {"runbook": "burst_to_ec2", "form": {"tier": "enrich", "k": 2}, "reason": WISH.reason}


def waits_after(previous):
    task = SimpleNamespace(get_previous_dagrun=lambda: previous)
    with pytest.raises(TaskDeferred) as deferred:
        WaitForWishOperator(task_id="wait", sluice_conn_id="shop").execute({"ti": task})
    return deferred.value.trigger


def ended(state, seconds_ago):
    return SimpleNamespace(state=state, end_date=datetime.fromtimestamp(time.time() - seconds_ago, UTC))


def test_after_a_failed_runbook_ten_minutes_pass():
    trigger = waits_after(ended("failed", 30))
    assert trigger.sluice_conn_id == "shop"
    assert trigger.pause_until - time.time() == pytest.approx(PAUSE_SECONDS - 30, abs=5)
    for previous in (None, ended("success", 30), ended("failed", PAUSE_SECONDS + 1)):
        assert waits_after(previous).pause_until == pytest.approx(time.time(), abs=5)


def test_a_wish_becomes_the_runbook_and_its_form():
    operator = WaitForWishOperator(task_id="wait", sluice_conn_id="shop")
    assert operator.resume({}, BURST) == {**BURST, "runbook": "shop_burst_to_ec2"}
    assert WaitForWishOperator(task_id="wait").resume({}, BURST) == BURST
    with pytest.raises(AirflowSkipException, match="no runbook for a week"):
        operator.resume({}, None)


@pytest.fixture
def channel(monkeypatch):
    channel = MemoryChannel()
    share_with_triggers(channel, monkeypatch, operations)
    return channel


def first_event(trigger):
    async def first():
        return await anext(trigger.run())

    return asyncio.run(first()).payload


def test_only_a_record_written_after_the_start_of_the_wait_counts(channel, monkeypatch):
    channel.put(paths.SCALER, ScalerRecord(wish=WISH, at=1.0))
    now = time.time()
    assert first_event(WishTrigger(now, now + 0.1)) is None, "the record is from before the last runbook"
    reads = iter([ScalerRecord(wish=WISH, at=1.0), ScalerRecord(at=2.0), ScalerRecord(wish=WISH, at=3.0)])
    read = channel.read

    def later(path, model, *, watch):
        channel.put(path, next(reads))
        return read(path, model, watch=watch)

    monkeypatch.setattr(channel, "read", later)
    assert first_event(WishTrigger(now, now + 30.0)) == BURST


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"leave": Wish(tier="enrich", k=1)}, {"tier": "enrich", "k": 1}),
        ({"wish": Wish()}, {}),
    ],
    ids=["a part of a burst", "an older controller ends all bursts"],
)
def test_a_wish_to_leave_becomes_the_runbook_leave_ec2(record, form):
    expected = {"runbook": "leave_ec2", "form": form, "reason": ""}
    assert operations._runbook(ScalerRecord(**record)) == expected
    assert operations._runbook(ScalerRecord()) is None


def test_the_dag_exists_only_where_the_scaler_may_burst(own_home, monkeypatch):
    assert "scaler" not in DagBag(str(ROOT / "dags")).dags
    bursts = "\nscaler: {tiers: {enrich: {mode: act, burst: true}}}\n"
    (own_home / "site.yaml").write_text((ROOT / "site.yaml").read_text() + bursts)
    monkeypatch.setenv("SLUICE_SITE", str(own_home / "site.yaml"))
    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    dag = bag.dags["scaler"]
    assert dag.start_date < datetime.now(UTC), "otherwise Airflow makes no second run"
    wait, run = dag.topological_sort()
    assert (wait.task_id, run.task_id, run.deferrable) == ("wait", "run", True)
    assert "note" in run.template_fields
    delays = [min(wait.retry_delay * 2**number, timedelta(days=1)) for number in range(wait.retries)]
    assert sum(delays, timedelta()) == timedelta(minutes=15.5), "then it alerts, and a new run begins"
    (alert,) = wait.on_failure_callback
    assert "none ends" in alert.did
    assert alert.did != run.on_failure_callback[0].did
