"""A batch job: queued, granted, watched while it runs, told of lost slots, and freed at its end."""

import asyncio
import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from simulation.memory import MemoryChannel

from sluice_airflow.assets import table
from sluice_airflow.errors import NoSlotsError, SlotsTakenBackError, UnusableJobError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import base, batch
from sluice_airflow.operators.batch import SluiceBatchOperator, file_of
from sluice_airflow.triggers import batch as batch_trigger
from sluice_airflow.triggers.batch import BatchGrantTrigger
from sluice_ops.channel import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.batch import BatchGrants, BatchRequest, Grant
from sluice_ops.operations import batch_jobs
from sluice_ops.site.site_file import Site
from sluice_ops.site.spark import SMALL_HEAP
from tests.unit.sluice_airflow.memory import share_with_triggers

SITE = Site.model_validate(
    {
        "pipeline": "p",
        "hosts": [],
        "shares": {"batch": {"target": 0}},
        "shifts": {"night": {"schedule": "0 22 * * *", "shares": {"batch": 2}}},
        "batch_tenants": {"default": {}, "reports": {"minimum": 1, "maximum": 2}},
    }
)


class Channel(MemoryChannel):
    """A channel in which a controller grants each job `slots` at once."""

    slots = 0
    away = False

    def create(self, path, value, **how):
        made = super().create(path, value, **how)
        if self.slots and path.startswith(paths.BATCH_JOBS):
            self.grant(path.rpartition("/")[2], self.slots)
        return made

    def read(self, path, model, **watch):
        if self.away:
            message = "ZooKeeper is not connected"
            raise ChannelAwayError(message)
        return super().read(path, model, **watch)

    def grant(self, job, slots, *, started_with=None, **fields):
        grant = Grant(slots=slots, started_with=started_with or slots, at=0.0, **fields)
        self.put(paths.BATCH_GRANTS, BatchGrants(grants={job: grant}))

    @property
    def jobs(self):
        return self.children(paths.BATCH_JOBS)


@pytest.fixture
def channel(monkeypatch):
    channel = Channel()
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SITE)
    services = SimpleNamespace(spark="spark://127.0.0.1:7077", spark_settings={"spark.secret": "s"})
    monkeypatch.setattr(SluiceHook, "endpoints", lambda _hook: services)
    monkeypatch.setattr(base, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(batch, "WATCH_PERIOD_SECONDS", 0.02)
    monkeypatch.setattr(batch, "RENEW_SECONDS", 0.0)
    share_with_triggers(channel, monkeypatch, batch_trigger)
    monkeypatch.setenv("AIRFLOW_CONN_SLUICE_SPARK", "")
    return channel


@pytest.fixture
def spark(monkeypatch):
    """A Spark application that runs until it is killed, or `ended`."""
    state = SimpleNamespace(killed=threading.Event(), submitted=[], ends=False, while_it_runs=lambda: None)

    def submit(operator, _context):
        state.submitted.append(operator)
        state.while_it_runs()
        if state.ends:
            return
        assert state.killed.wait(20)
        message = "Cannot execute: spark-submit. Error code is: 137"
        raise AirflowException(message)

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    monkeypatch.setattr(SparkSubmitOperator, "on_kill", lambda _self: state.killed.set())
    return state


def context(**params):
    pushed = {}
    run = SimpleNamespace(start_date=datetime.now(UTC))
    task = SimpleNamespace(xcom_push=pushed.__setitem__, task_id="report")
    return {
        "params": {"deadline": 60, "dry_run": False, **params},
        "dag": SimpleNamespace(dag_id="nightly"),
        "run_id": "r1",
        "dag_run": run,
        "ti": task,
        "pushed": pushed,
    }


def operator(**fields):
    return SluiceBatchOperator(task_id="report", **({"module": "hits.nightly_report"} | fields))


def test_a_job_without_free_slots_waits_in_the_triggerer(channel, spark):
    with pytest.raises(TaskDeferred) as deferred:
        operator(tenant="reports", slots=2, least=1).execute(context())
    (job,) = channel.jobs
    request = channel.read(paths.batch_job(job), BatchRequest).value
    assert (request.tenant, request.slots, request.by) == ("reports", 2, "airflow:nightly/r1/report")
    assert isinstance(deferred.value.trigger, BatchGrantTrigger)
    assert (deferred.value.trigger.job, deferred.value.method_name) == (job, "resume")
    assert not spark.submitted


def test_an_application_gets_exactly_the_granted_slots(channel, spark):
    channel.slots, spark.ends = 2, True
    task = operator(
        module=None,
        application="s3a://jobs/train.jar",
        conf={"spark.sql.shuffle.partitions": "8", "spark.dynamicAllocation.enabled": "true"},
        application_args=["--day", "1"],
        packages="org.example:lib:1",
        env_vars={"DAY": "1"},
    )
    task.execute(context())
    (submitted,) = spark.submitted
    threads = SITE.batch_quantum.threads
    assert (submitted._total_executor_cores, submitted._executor_cores) == (2 * threads, threads)
    assert (
        submitted.conf.items()
        >= {
            "spark.sql.shuffle.partitions": "8",
            "spark.dynamicAllocation.enabled": "false",
            "spark.storage.decommission.enabled": "true",
            **SMALL_HEAP,
            "spark.executor.resource.sluice_batch_0.amount": "1",
        }.items()
    )
    assert (submitted.application, submitted.name) == ("s3a://jobs/train.jar", "train")
    assert (submitted.application_args, submitted.packages) == (["--day", "1"], "org.example:lib:1")
    assert submitted.env_vars["DAY"] == "1"
    assert channel.jobs == [], "the slots are free again"


def test_a_job_frees_its_slots_when_it_fails(channel, spark):
    channel.slots, spark.while_it_runs = 2, spark.killed.set
    with pytest.raises(AirflowException, match="Error code is: 137") as raised:
        operator().execute(context())
    assert not isinstance(raised.value, AirflowFailException), "Airflow may retry it"
    assert channel.jobs == []


def test_at_the_deadline_the_job_is_killed_with_the_next_step(channel, spark):
    channel.slots = 1
    with pytest.raises(AirflowFailException, match=r"killed at the run's deadline. Trigger the DAG again"):
        operator().execute(context(deadline=1))
    assert spark.killed.is_set()
    assert channel.jobs == []


def test_a_running_job_renews_its_request(channel, spark):
    channel.slots, spark.ends = 1, True

    def renewed():
        (job,) = channel.jobs
        before = channel.read(paths.batch_job(job), BatchRequest).value.renewed_at
        wait_for(lambda: channel.read(paths.batch_job(job), BatchRequest).value.renewed_at > before)

    spark.while_it_runs = renewed
    operator().execute(context())


def test_a_job_that_loses_a_slot_is_told_and_continues(channel, spark, monkeypatch):
    channel.slots, spark.ends = 2, True
    lines = logged(monkeypatch)

    def lose():
        (job,) = channel.jobs
        channel.grant(job, 1, started_with=2, back_by=time.time() + 30, reason="h1 is needed for enrich")
        wait_for(lambda: any("takes back 1 of the job's 2 slot(s)" in line for line in lines))

    spark.while_it_runs = lose
    operator().execute(context())
    (line,) = [line for line in lines if "takes back" in line]
    assert "h1 is needed for enrich" in line
    assert line.endswith("the job continues with 1")
    assert not spark.killed.is_set()


def test_a_job_that_loses_all_slots_ends_at_the_time_and_is_retried(channel, spark):
    channel.slots = 1

    def lose():
        (job,) = channel.jobs
        channel.grant(job, 0, started_with=1, back_by=time.time() + 0.3, reason="enrich needs h1")
        time.sleep(0.1)
        assert not spark.killed.is_set(), "its tasks may finish"

    spark.while_it_runs = lose
    with pytest.raises(SlotsTakenBackError, match=r"all slots of the job: enrich needs h1\. A retry"):
        operator().execute(context())
    assert not issubclass(SlotsTakenBackError, AirflowFailException)
    assert channel.jobs == []


def test_a_job_that_ends_before_its_slots_are_gone_succeeds(channel, spark):
    channel.slots, spark.ends = 1, True
    spark.while_it_runs = lambda: channel.grant(
        channel.jobs[0], 0, started_with=1, back_by=time.time() + 30, reason="r"
    )
    operator().execute(context())


def test_a_job_whose_request_was_deleted_is_stopped_and_retried(channel, spark):
    channel.slots = 1
    spark.while_it_runs = lambda: channel.delete(paths.batch_job(channel.jobs[0]))
    with pytest.raises(SlotsTakenBackError, match="the task was silent for 120 s"):
        operator().execute(context())
    assert spark.killed.is_set()


def test_a_job_runs_on_while_zookeeper_is_away(channel, spark):
    channel.slots, spark.ends = 1, True

    def away():
        channel.away = True
        time.sleep(0.1)
        channel.away = False

    spark.while_it_runs = away
    operator().execute(context())
    assert not spark.killed.is_set()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tenant": "report"}, "no batch tenant 'report': use one of default, reports, or add it"),
        ({"tenant": "reports", "slots": 3, "least": 3}, "needs 3 slots, but the batch tenant reports has at"),
    ],
)
def test_a_job_that_can_never_run_is_refused_before_it_is_queued(channel, fields, reason):
    with pytest.raises(UnusableJobError, match=reason):
        operator(**fields).execute(context())
    assert channel.jobs == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"module": None}, "give either `application`"),
        ({"application": "a.py"}, "give either `application`"),
        ({"slots": 1, "least": 2}, "least=2, slots=1: write 1 <= least <= slots"),
        ({"least": 0}, "1 <= least"),
        ({"properties_file": "f"}, "give its settings as `conf`"),
    ],
)
def test_contradicting_arguments_are_refused_when_the_dag_is_read(fields, reason):
    with pytest.raises(ValueError, match=reason):
        operator(**fields)


def test_a_dry_run_tells_the_queue_and_queues_nothing(channel, spark):
    channel.grant("other", 2)
    task_context = context(dry_run=True)
    report = operator(outlets=[table("campaign_daily")])
    report.execute(task_context)
    assert task_context["pushed"] == {"plan": {"lent": 0, "granted": 2, "queued": 0}}
    assert report.outlets == [], "a dry run writes no table, so it announces none"
    assert (channel.jobs, spark.submitted) == ([], [])


def test_a_granted_job_runs_when_its_task_resumes(channel, spark):
    job = posted(channel)
    channel.grant(job, 2)
    spark.ends = True
    operator().resume(context(), {"job": job, "outcome": "granted", "reason": ""})
    assert len(spark.submitted) == 1
    assert channel.jobs == []


def test_a_job_without_slots_at_the_deadline_names_the_reason_and_shifts(channel):
    job = posted(channel)
    with pytest.raises(NoSlotsError, match=r"no slot is lent to batch\. Slots are lent by night_shift"):
        operator().resume(context(), {"job": job, "outcome": "late", "reason": "no slot is lent to batch"})
    assert channel.jobs == []


@pytest.mark.parametrize("outcome", ["gone", "granted"])
def test_a_job_whose_request_expired_is_queued_again(channel, outcome):
    with pytest.raises(TaskDeferred):
        operator().resume(context(), {"job": "expired", "outcome": outcome, "reason": ""})
    assert len(channel.jobs) == 1


def test_a_dag_without_a_deadline_may_wait_for_a_week(channel):
    task_context = context()
    del task_context["params"]["deadline"]
    with pytest.raises(TaskDeferred) as deferred:
        operator().execute(task_context)
    assert deferred.value.trigger.until == pytest.approx(time.time() + base.WATCH_SECONDS, abs=60)
    assert len(channel.jobs) == 1


# -- the trigger


def fired(trigger):
    async def first():
        return (await anext(trigger.run())).payload

    return asyncio.run(asyncio.wait_for(first(), 10))


def test_the_trigger_fires_when_the_job_has_slots(channel):
    job = posted(channel)
    threading.Timer(0.1, lambda: channel.grant(job, 1)).start()
    assert fired(BatchGrantTrigger(job, time.time() + 60))["outcome"] == "granted"


def test_the_trigger_renews_the_request_while_the_job_waits(channel):
    job = posted(channel)
    channel.put(paths.BATCH_GRANTS, BatchGrants(waiting={job: "no slot is lent to batch"}))
    event = fired(BatchGrantTrigger(job, time.time() + 0.2))
    assert (event["outcome"], event["reason"]) == ("late", "no slot is lent to batch")
    assert channel.read(paths.batch_job(job), BatchRequest).value.renewed_at > 1.0


@pytest.mark.usefixtures("channel")
def test_the_trigger_fires_when_the_request_was_deleted():
    assert fired(BatchGrantTrigger("gone", time.time() + 60))["outcome"] == "gone"


def test_a_person_who_ends_the_task_takes_the_job_from_the_queue(channel):
    job = posted(channel)
    asyncio.run(BatchGrantTrigger(job, time.time() + 60).on_kill())
    assert channel.jobs == []


def test_the_trigger_is_made_again_from_its_arguments():
    trigger = BatchGrantTrigger("j", 5.0, "shop")
    path, arguments = trigger.serialize()
    assert path.endswith("triggers.batch.BatchGrantTrigger")
    assert BatchGrantTrigger(**arguments).serialize() == (path, arguments)


def posted(channel):
    return batch_jobs.post(
        channel, "nightly.report", BatchRequest(tenant="default", by="d", at=1.0, renewed_at=1.0)
    )


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def logged(monkeypatch):
    lines = []
    log = SimpleNamespace(
        info=lambda text, *values: lines.append(text % values),
        warning=lambda text, *values: lines.append(text % values),
    )
    monkeypatch.setattr(SluiceBatchOperator, "log", log)
    return lines


def test_the_file_of_a_module_is_found_without_importing_it():
    assert file_of("hits.nightly_report") == str(
        Path(batch.__file__).parents[3] / "pipeline/hits/nightly_report.py"
    )
    with pytest.raises(FileNotFoundError, match=r"no module hits\.daily: install its package"):
        file_of("hits.daily")
