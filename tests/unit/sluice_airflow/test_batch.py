"""A batch job on lent slots: its file, its dry run, and its end at the deadline."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sluice_airflow.errors import NothingLentError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import batch
from sluice_airflow.operators.batch import BatchJobOperator, file_of
from sluice_ops.site.site_file import Site


def context(**params):
    pushed = {}
    run = SimpleNamespace(start_date=datetime.now(UTC))
    task = SimpleNamespace(xcom_push=pushed.__setitem__)
    return {"params": {"deadline": 1, "dry_run": False, **params}, "dag_run": run, "ti": task}, pushed


@pytest.fixture
def job(monkeypatch):
    """A Spark job that runs until it is killed."""
    state = SimpleNamespace(killed=threading.Event(), submitted=0, fails=False)

    def submit(_self, _context):
        state.submitted += 1
        if not state.fails:
            assert state.killed.wait(20)
        message = "Cannot execute: spark-submit. Error code is: 137"
        raise AirflowException(message)

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    monkeypatch.setattr(SparkSubmitOperator, "on_kill", lambda _self: state.killed.set())
    return state


@pytest.fixture
def lent(monkeypatch):
    @contextmanager
    def opened(_hook):
        yield None

    monkeypatch.setattr(SluiceHook, "open", opened)
    services = SimpleNamespace(spark="spark://127.0.0.1:7077", spark_settings={})
    monkeypatch.setattr(SluiceHook, "endpoints", lambda _hook: services)
    monkeypatch.setattr(batch, "lent_slots", lambda _channel: 2)


@pytest.mark.usefixtures("lent")
def test_a_dry_run_reports_the_slots_and_submits_no_job(job):
    task_context, pushed = context(dry_run=True)
    BatchJobOperator(task_id="report", module="hits.nightly_report").execute(task_context)
    assert (pushed, job.submitted) == ({"plan": {"slots": 2}}, 0)


@pytest.mark.usefixtures("lent")
def test_at_the_deadline_the_job_is_killed_with_the_next_step(job, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SLUICE_SPARK", "")
    with pytest.raises(
        AirflowFailException,
        match=r"killed at the run's deadline. Trigger the DAG again with a longer deadline",
    ):
        BatchJobOperator(task_id="report", module="hits.nightly_report").execute(context()[0])
    assert job.killed.is_set()


@pytest.mark.usefixtures("lent")
def test_a_job_that_fails_by_itself_may_be_retried(job, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SLUICE_SPARK", "")
    job.fails = True
    with pytest.raises(AirflowException, match="Error code is: 137") as raised:
        BatchJobOperator(task_id="report", module="hits.nightly_report").execute(context()[0])
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.usefixtures("lent")
@pytest.mark.parametrize(
    ("shifts", "connection", "advice"),
    [
        ({"night": 1, "day": 0, "weekend": 2}, None, "Run night_shift or weekend_shift first"),
        ({"night": 1}, "shop", "Run shop_night_shift first"),
        ({"day": 0}, None, "No shift of the site file gives slots to batch: add a shift"),
    ],
)
def test_without_slots_a_job_names_the_shifts_that_give_some(monkeypatch, shifts, connection, advice):
    site = Site.model_validate(
        {
            "pipeline": "p",
            "hosts": [],
            "shares": {"batch": {"target": 0}},
            "shifts": {
                name: {"schedule": f"0 {hour} * * *", "shares": {"batch": slots}}
                for hour, (name, slots) in enumerate(shifts.items())
            },
        }
    )
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: site)
    monkeypatch.setattr(batch, "lent_slots", lambda _channel: 0)
    job = BatchJobOperator(task_id="report", module="hits.nightly_report", sluice_conn_id=connection)
    with pytest.raises(NothingLentError, match=f"no slot is lent to batch. {advice}"):
        job.execute(context()[0])


def test_the_file_of_a_module_is_found_without_importing_it():
    assert file_of("hits.nightly_report") == str(
        Path(batch.__file__).parents[3] / "pipeline/hits/nightly_report.py"
    )
    with pytest.raises(FileNotFoundError, match=r"no module hits\.daily: install its package"):
        file_of("hits.daily")
