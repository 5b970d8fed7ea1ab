"""The DAG `scaler` runs what the scaler wants, and shows each of its changes as one run."""

import asyncio
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskDeferred,
)

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.scaler import PAUSE_SECONDS, WaitForWishOperator
from sluice_airflow.triggers import operations
from sluice_airflow.triggers.operations import WishTrigger
from sluice_ops.model import paths
from sluice_ops.model.change import (
    CONTROLLER,
    SCALER,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    MaintenanceLock,
    Operation,
    Plan,
    Step,
)
from sluice_ops.model.scaler import ScalerRecord, Wish
from sluice_ops.operations.requests import operation_id
from sluice_ops.site.site_file import Alerts
from tests.unit.sluice_airflow.conftest import ROOT
from tests.unit.sluice_airflow.memory import MemoryChannel, share_with_triggers
from tests.unit.sluice_ops.controller.alerting.site import settled

WISH = Wish(tier="enrich", k=2, reason="9,000 records/s need 4 workers, 2 of them by a burst")
REASON = "4,022 records/s need 3 workers"
FOLLOWED = {
    "runbook": "follow_change",
    "form": {"change": "scale-enrich-to-3-1"},
    "reason": REASON,
    "run": "scaler__scale-enrich-to-3-1-19700101T000140",
}
BURST = {"runbook": "burst_to_ec2", "form": {"tier": "enrich", "k": 2}, "reason": WISH.reason}


def waits_after(failed, run="failed"):
    """Return the trigger that `wait` makes after a failed run, whose task `run` has this state."""

    def states(dag_id, task_ids, run_ids):
        assert (dag_id, task_ids) == ("scaler", ["run"])
        return {run_ids[0]: {"run": run}}

    task = SimpleNamespace(
        get_previous_dagrun=lambda state: failed if state == "failed" else None, get_task_states=states
    )
    with pytest.raises(TaskDeferred) as deferred:
        WaitForWishOperator(task_id="wait", sluice_conn_id="shop").execute({"ti": task})
    return deferred.value.trigger


def failed(seconds_ago):
    end = datetime.fromtimestamp(time.time() - seconds_ago, UTC)
    return SimpleNamespace(dag_id="scaler", run_id="scheduled__1", end_date=end)


def test_after_a_failed_runbook_ten_minutes_pass():
    trigger = waits_after(failed(30))
    assert trigger.sluice_conn_id == "shop"
    assert trigger.pause_until - time.time() == pytest.approx(PAUSE_SECONDS - 30, abs=5)
    for earlier in (None, failed(PAUSE_SECONDS + 1)):
        assert waits_after(earlier).pause_until == pytest.approx(time.time(), abs=5)


def test_a_run_that_could_not_show_a_change_holds_no_runbook_back():
    assert waits_after(failed(30), run="skipped").pause_until == pytest.approx(time.time(), abs=5)


def resumed(event, conn=None):
    """Return the run that `wait` hands on, and the task that it skips."""
    pushed = {}
    context = {
        "ti": SimpleNamespace(xcom_push=pushed.__setitem__),
        "dag_run": SimpleNamespace(start_date=datetime(2026, 11, 28, 22, 40, 5, tzinfo=UTC)),
    }
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        WaitForWishOperator(task_id="wait", sluice_conn_id=conn).resume(context, event)
    return pushed["wish"], skipped.value.tasks


def test_a_wish_becomes_the_runbook_and_its_form():
    named = {**BURST, "run": "scaler__20261128T224005"}
    assert resumed(BURST) == (named, ["follow"])
    assert resumed(BURST, "shop") == ({**named, "runbook": "shop_burst_to_ec2"}, ["follow"])
    with pytest.raises(AirflowSkipException, match="for a week"):
        WaitForWishOperator(task_id="wait").resume({}, None)


def test_a_change_becomes_a_run_of_follow_change():
    assert resumed(FOLLOWED) == (FOLLOWED, ["run"])
    assert resumed(FOLLOWED, "shop") == ({**FOLLOWED, "runbook": "shop_follow_change"}, ["run"])


@pytest.fixture
def channel(monkeypatch):
    channel = MemoryChannel()
    share_with_triggers(channel, monkeypatch, operations)
    return channel


@pytest.fixture(autouse=True)
def asked(monkeypatch, runs):
    """Return the ids of the runs for which a trigger asked Airflow."""
    asked = []

    def count(dag_id, run_ids):
        assert dag_id == "follow_change"
        asked.extend(run_ids)
        return len({*runs} & {*run_ids})

    monkeypatch.setattr(operations.RuntimeTaskInstance, "get_dr_count", count)
    return asked


@pytest.fixture
def runs():
    """Return the ids of the runs that Airflow has."""
    return []


def begin(channel, change, at, by=SCALER):
    spec = ChangeSpec(kind="scale", tier="enrich", k=3)
    identity = operation_id(change, Step.PREFLIGHT)
    step = Operation(
        id=identity, change=change, step=Step.PREFLIGHT, spec=spec, by=by, posted_at=at, reason=REASON
    )
    record = ChangeRecord(
        id=change, spec=spec, plan=Plan(), state=ChangeState.ACTIVE, by=by, started_at=at, stepped_at=at
    )
    channel.put(paths.operation(identity), step)
    channel.put(paths.change(change), record)


def looks():
    now = time.time()
    return first_event(WishTrigger(now, now + 0.05))


def first_event(trigger):
    async def first():
        return await anext(trigger.run())

    return asyncio.run(first()).payload


def test_each_change_of_the_scaler_gets_one_run_the_oldest_first(channel, runs):
    channel.put(paths.LOCK, MaintenanceLock(change="c", by="x", since=1.0))
    begin(channel, "repair-enrich-from-3-1", 90.0, by=CONTROLLER)
    assert looks() is None, "a change of somebody else"
    begin(channel, "scale-enrich-to-4-1", 200.0)
    begin(channel, "scale-enrich-to-3-1", 100.0)
    assert looks() == FOLLOWED
    assert looks() == FOLLOWED, "the triggerer restarted before the run was made"
    runs.append(FOLLOWED["run"])
    later = looks()
    assert later["form"] == {"change": "scale-enrich-to-4-1"}
    runs.append(later["run"])
    assert looks() is None


def test_an_id_that_comes_again_gets_a_run_of_its_own(channel, runs):
    begin(channel, "scale-enrich-to-3-1", 100.0)
    runs.append(looks()["run"])
    begin(channel, "scale-enrich-to-3-1", 86_500.0)
    assert looks()["run"] == "scaler__scale-enrich-to-3-1-19700102T000140"


def test_a_change_whose_reason_is_pruned_gets_no_run(channel, runs):
    begin(channel, "scale-enrich-to-3-1", 100.0)
    channel.delete(paths.operation(operation_id("scale-enrich-to-3-1", Step.PREFLIGHT)))
    assert (looks(), runs) == (None, [])


@pytest.mark.usefixtures("channel")
def test_the_first_look_asks_airflow_whose_first_answer_is_slow(asked):
    assert looks() is None
    assert asked == [""], "one question, also without a change"


def test_a_change_that_begins_during_the_wait_gets_its_run_too(channel, monkeypatch):
    records = iter([ScalerRecord(at=1.0), ScalerRecord(wish=WISH, at=2.0)])
    read = channel.read

    def later(path, model, *, watch=False):
        if path == paths.SCALER:
            record = next(records, None)
            if record is None:
                begin(channel, "scale-enrich-to-3-1", 100.0)
            else:
                channel.put(path, record)
        return read(path, model, watch=watch)

    monkeypatch.setattr(channel, "read", later)
    now = time.time()
    assert first_event(WishTrigger(now + 20.0, now + 30.0)) == FOLLOWED, "the wish waits for the pause"


def test_only_a_record_written_after_the_start_of_the_wait_counts(channel, monkeypatch):
    channel.put(paths.SCALER, ScalerRecord(wish=WISH, at=1.0))
    now = time.time()
    assert first_event(WishTrigger(now, now + 0.1)) is None, "the record is from before the last runbook"
    reads = iter([ScalerRecord(wish=WISH, at=1.0), ScalerRecord(at=2.0), ScalerRecord(wish=WISH, at=3.0)])
    read = channel.read

    def later(path, model, *, watch=False):
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


@pytest.fixture
def dag():
    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    return bag.dags["scaler"]


def test_a_failed_burst_is_told_as_an_alert_and_asked_for_again(dag, monkeypatch, tmp_path, capsys):
    """The wish becomes the run; the run's failure becomes the controller's alert."""
    site = settled()
    site.channel.put(paths.SCALER, ScalerRecord(wish=WISH))
    alerts = Alerts(channels=({"url": "json://ops.example"},))
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SimpleNamespace(alerts=alerts))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(site.channel))
    monkeypatch.setattr(SluiceHook, "home", property(lambda _hook: tmp_path))
    wish, _ = resumed(operations._runbook(site.channel.read(paths.SCALER, ScalerRecord).value))
    task = SimpleNamespace(dag_id="scaler", task_id="run", run_id="r1", try_number=1, log_url="http://log")
    task.xcom_pull = lambda task_ids, key: {("wait", "wish"): wish}[task_ids, key]
    run = dag.get_task("run")
    run.render_template_fields({"ti": task})
    assert (run.trigger_dag_id, run.trigger_run_id, run.note) == ("burst_to_ec2", wish["run"], WISH.reason)
    with pytest.raises(AirflowException) as error:
        run.execute_complete({}, ("", {"run_ids": [wish["run"]], wish["run"]: "failed"}))
    for notifier in run.on_failure_callback:
        notifier.notify({"ti": task, "exception": error.value})
    site.wait(6)
    (message,) = site.delivery.offered
    assert "run of scaler failed: burst_to_ec2 failed with failed states" in message.text
    assert "The scaler asks again in ten minutes." in message.text
    assert waits_after(failed(30)).pause_until > time.time() + PAUSE_SECONDS / 2
    assert "The last runbook failed; the next one runs in 5" in capsys.readouterr().out


def test_the_dag_waits_and_then_runs_a_runbook_or_shows_a_change(dag):
    assert dag.start_date < datetime.now(UTC), "otherwise Airflow makes no second run"
    wait, run, follow = (dag.get_task(task) for task in ("wait", "run", "follow"))
    assert wait.downstream_task_ids == {"run", "follow"}
    assert (run.wait_for_completion, run.deferrable, run.fail_when_dag_is_paused) == (True, True, True)
    assert (follow.wait_for_completion, follow.skip_when_already_exists) == (False, True)
    assert "note" in run.template_fields
    delays = [min(wait.retry_delay * 2**number, timedelta(days=1)) for number in range(wait.retries)]
    assert sum(delays, timedelta()) == timedelta(minutes=15.5), "then it alerts, and a new run begins"
    alerts = [task.on_failure_callback[0].did for task in (wait, run, follow)]
    assert "none ends" in alerts[0]
    assert len({*alerts}) == 3
