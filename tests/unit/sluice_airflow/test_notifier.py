"""With channels in the site file the controller tells alerts, and one failure is told once."""

import json
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from simulation.memory import MemoryChannel

from sluice_airflow.errors import (
    AbortFailedError,
    EndedByPersonError,
    NoResultError,
    NoSlotsError,
    NothingPostedError,
    StepFailedError,
    TierFailedError,
)
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_ops.channel import ChannelAwayError
from sluice_ops.doctor.alerts import check
from sluice_ops.doctor.finding import Verdict
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRequests
from sluice_ops.site.site_file import Alerts

NOTIFIER = SluiceNotifier(did="Nothing.", do="Read the log.")


@pytest.fixture
def channel(monkeypatch, tmp_path):
    memory = MemoryChannel()
    memory.put(paths.ALERT_REQUESTS, AlertRequests())
    alerts = Alerts(channels=({"url": "json://ops.example"},), webhook="http://127.0.0.1:1/never")
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SimpleNamespace(alerts=alerts))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(memory))
    monkeypatch.setattr(SluiceHook, "home", property(lambda _hook: tmp_path))
    return memory


def context(error, attempt=1):
    task = SimpleNamespace(
        dag_id="nightly_report", task_id="report", run_id="r1", try_number=attempt, log_url="http://log"
    )
    return {"ti": task, "exception": error}


def reports(channel):
    return channel.read(paths.ALERT_REQUESTS, AlertRequests).value.reports


@pytest.mark.parametrize("error", [StepFailedError("cut failed"), TierFailedError("counts failed")])
def test_a_failure_that_the_controller_tells_is_not_told_again(channel, error, tmp_path):
    NOTIFIER.notify(context(error))
    assert reports(channel) == {}
    assert not (tmp_path / "alerts").exists()


@pytest.mark.parametrize(
    "error",
    [
        NoSlotsError("no slot"),
        AbortFailedError("abort failed"),
        NothingPostedError("no host is at 'rack:r9'"),
        NoResultError("no result"),
        None,
    ],
)
def test_a_failure_that_only_airflow_knows_is_reported_to_the_controller(channel, error):
    NOTIFIER.notify(context(error))
    (report,) = reports(channel).values()
    assert (report.what, report.link) == ("report of nightly_report", "http://log")
    assert report.change == ("nightly_report.r1" if isinstance(error, NoResultError) else "")
    assert (report.did, report.do) == ("Nothing.", "Read the log.")


def test_a_run_that_a_person_ended_is_not_reported(channel):
    NOTIFIER.notify(context(EndedByPersonError("ended")))
    assert reports(channel) == {}


@pytest.mark.parametrize(("run", "told"), [("manual__1", False), ("scheduled__1", True)])
def test_a_refused_dry_run_that_nobody_reads_is_told(channel, run, told):
    refused = context(NothingPostedError("no host is at 'rack:r9'")) | {"params": {"dry_run": True}}
    refused["ti"].run_id = run
    NOTIFIER.notify(refused)
    assert bool(reports(channel)) is told


@pytest.mark.parametrize(("run", "sent"), [("manual__1", False), ("scheduled__1", True)])
def test_without_channels_only_the_schedules_refused_dry_run_is_sent(monkeypatch, run, sent):
    told = []
    monkeypatch.setattr(SluiceNotifier, "send", lambda _notifier, alert, known: told.append((alert, known)))
    refused = context(StepFailedError("preflight failed: no room")) | {"params": {"dry_run": True}}
    refused["ti"].run_id = run
    NOTIFIER.notify(refused)
    assert bool(told) is sent
    NOTIFIER.notify(refused | {"params": {"dry_run": False}})
    assert len(told) == 1 + sent, "a refused run is always sent"


def test_one_try_is_reported_once_and_a_later_try_replaces_it(channel):
    NOTIFIER.notify(context(NoSlotsError("no slot")))
    first = reports(channel)
    NOTIFIER.notify(context(NoSlotsError("no slot")))
    assert reports(channel) == first
    NOTIFIER.notify(context(NoSlotsError("still no slot"), attempt=2))
    (report,) = reports(channel).values()
    assert "still no slot" in report.reason


@pytest.mark.usefixtures("channel")
def test_while_zookeeper_is_away_the_alert_is_kept_and_the_doctor_names_it(monkeypatch, tmp_path):
    @contextmanager
    def away(_hook):
        message = "ZooKeeper does not answer"
        raise ChannelAwayError(message)
        yield

    monkeypatch.setattr(SluiceHook, "open", away)
    monkeypatch.setattr("sluice_airflow.notifiers.alerts.RETRY_DELAY_SECONDS", 0.0)
    with pytest.raises(ConnectionError, match="ZooKeeper does not answer"):
        NOTIFIER.notify(context(NoSlotsError("no slot")))
    (file,) = (tmp_path / "alerts").iterdir()
    assert json.loads(file.read_text())["unsent"] == ["the controller"]
    (finding,) = check(tmp_path)
    assert finding.verdict is Verdict.BAD
