"""Batch jobs: a Spark application on slots that are lent to the tenant `batch`.

A job is queued with the controller, which divides the slots (decision 72). It waits in the
triggerer, and its Spark application gets exactly the granted slots.
"""

import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sluice_airflow import lineage
from sluice_airflow.errors import NoSlotsError, SlotsTakenBackError, UnusableJobError, translated_errors
from sluice_airflow.forms import dag_id
from sluice_airflow.operators import base
from sluice_airflow.operators.base import TRIGGERER_SECONDS, WATCH_SECONDS, SluiceOperator, asked_by
from sluice_airflow.operators.steps import seconds_left
from sluice_airflow.triggers.batch import BatchGrantTrigger
from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, UnitKind, label_of
from sluice_ops.model.batch import (
    DEFAULT_TENANT,
    LEASE_SECONDS,
    RENEW_SECONDS,
    BatchRequest,
    Grant,
    task_seconds,
)
from sluice_ops.model.ids import BATCH
from sluice_ops.model.wording import counted
from sluice_ops.operations import batch_jobs
from sluice_ops.operations.requests import POLL_SECONDS
from sluice_ops.site.site_file import Site
from sluice_ops.site.spark import SMALL_HEAP

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

CONNECTION = "sluice_spark"
LOOPBACK = "127.0.0.1"
_SHORT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SHORT_LIVED = {"spark.driver.extraJavaOptions": _SHORT, "spark.executor.extraJavaOptions": _SHORT}
"""`conf` for jobs of a few minutes: their JVMs end before the optimizing compiler pays off."""
KEEPS_FINISHED_WORK = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.rddBlocks.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
}
"""An executor whose slot goes back finishes its tasks, and moves their results to the others."""
WATCH_PERIOD_SECONDS = 2.0
"""Time between two looks of a running job at its grant."""


def lent_slots(channel: Channel) -> int:
    """Return how many slots the controller has assigned to the tenant `batch`."""
    hosts = (channel.read(paths.assignment(name), Assignment) for name in channel.children("/assignments"))
    return sum(
        unit.kind is UnitKind.SLOT and unit.tenant == BATCH
        for host in hosts
        if host is not None
        for unit in host.value.units
    )


def file_of(module: str) -> str:
    """Return the path of a module's file, without importing its package or Spark."""
    package, *names = module.split(".")
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder).joinpath(*names).with_suffix(".py")
        if file.exists():
            return str(file)
    message = f"Airflow finds no module {module}: install its package in Airflow's environment"
    raise FileNotFoundError(message)


class JobWatch:
    """Watches a running job from a thread: renews its request, and tells its log of lost slots.

    The job is stopped if it has to end: at the deadline, without slots, or without its request.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a running job consists of
        self,
        channel: Channel,
        job: str,
        grant: Grant,
        seconds: float,
        reclaim_seconds: float,
        log: Any,
        stop: Callable[[], None],
    ) -> None:
        """Watch `job`, which may run for `seconds`. `stop` ends its Spark application."""
        self.failure: AirflowException | None = None
        """Why the job was stopped; None: it was not."""
        self._channel, self._job, self._log, self._stop = channel, job, log, stop
        self._deadline = time.monotonic() + seconds
        self._reclaim_seconds = reclaim_seconds
        self._slots = grant.started_with
        self._end: float | None = None
        self._reason = ""
        self._renewed = self._heard = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batch-job-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            if self.failure is None:
                try:
                    self._look()
                    self._heard = time.monotonic()
                except ChannelAwayError as error:
                    self._away(error)
                self.failure = self.failure or self._late()
            if self.failure is not None:
                self._stop()  # again, too: the application may only just have started
            if self._over.wait(WATCH_PERIOD_SECONDS):
                return

    def _look(self) -> None:
        if time.monotonic() - self._renewed >= RENEW_SECONDS:
            if not batch_jobs.renew(self._channel, self._job):
                self.failure = _gone()
                return
            self._renewed = time.monotonic()
        grant = batch_jobs.read_grants(self._channel).grants.get(self._job)
        if grant is None or grant.slots == self._slots:
            return
        if grant.slots > self._slots:
            self._log.info("batch has a slot again: the job has %d slot(s)", grant.slots)
        else:
            self._tell_loss(grant)
        self._slots = grant.slots

    def _tell_loss(self, grant: Grant) -> None:
        left = self._reclaim_seconds
        if grant.back_by is not None:
            left = min(left, max(0.0, grant.back_by - time.time()))
        until = f"{datetime.fromtimestamp(time.time() + left, UTC):%H:%M:%S} UTC"
        self._log.warning(
            "batch takes back %d of the job's %d slot(s): %s. Tasks in these slots may run until %s; %s",
            self._slots - grant.slots,
            self._slots,
            grant.reason,
            until,
            f"the job continues with {grant.slots}"
            if grant.slots
            else "then the job ends, and a retry queues it again",
        )
        if grant.slots == 0:
            self._end, self._reason = time.monotonic() + left, grant.reason

    def _away(self, error: ChannelAwayError) -> None:
        if time.monotonic() - self._heard < WATCH_PERIOD_SECONDS * 2:
            self._log.warning("%s. The job runs on", error)

    def _late(self) -> AirflowException | None:
        now = time.monotonic()
        if self._end is not None and now >= self._end:
            return taken_back(self._reason)
        if now >= self._deadline:
            message = (
                "the job was killed at the run's deadline. "
                "Trigger the DAG again with a longer deadline, or lend more slots"
            )
            return AirflowFailException(message)
        return None


def taken_back(reason: str) -> SlotsTakenBackError:
    """Return the error of a job that lost all its slots."""
    return SlotsTakenBackError(f"batch took back all slots of the job: {reason}. A retry queues it again")


def _gone() -> SlotsTakenBackError:
    message = (
        f"the controller freed the job's slots, because the task was silent for {LEASE_SECONDS:.0f} s. "
        "A retry queues the job again"
    )
    return SlotsTakenBackError(message)


class SluiceBatchOperator(SluiceOperator, SparkSubmitOperator):
    """Runs a Spark application on lent slots, once the controller grants some.

    The job waits in the triggerer while no slot is free. It gets exactly the granted slots.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "tenant")
    ui_color = "#e6dcf2"

    def __init__(
        self,
        *,
        tenant: str = DEFAULT_TENANT,
        application: str = "",
        module: str | None = None,
        slots: int | None = None,
        least: int = 1,
        **kwargs: Any,
    ) -> None:
        """Run a file or jar (`application`), or a module such as `module="hits.nightly_report"`.

        `tenant` is a key of `batch_tenants`. The job wants `slots` (None: as many as its tenant may
        have), and starts with `least` or more. Other arguments, such as `application_args`,
        `py_files`, `packages` and `conf`, are those of `SparkSubmitOperator`. Sluice sets cores and
        memory of executors.
        """
        if bool(application) is (module is not None):
            message = "give either `application`, a file or jar, or `module`, a module of your package"
            raise ValueError(message)
        if least < 1 or (slots is not None and slots < least):
            message = f"least={least}, slots={slots}: write 1 <= least <= slots"
            raise ValueError(message)
        if "properties_file" in kwargs:
            message = "Sluice writes the properties file: give its settings as `conf`"
            raise ValueError(message)
        self.tenant = tenant
        self.module = module
        self.slots = slots
        self.least = least
        kwargs.setdefault("name", module.rpartition(".")[2] if module else Path(application).stem)
        kwargs.setdefault("driver_memory", "512m")
        super().__init__(
            application=application,
            conn_id=CONNECTION,
            spark_binary="spark-submit",
            execution_timeout=None,
            **kwargs,
        )

    def execute(self, context: Context) -> None:
        """Queue the job; run it at once if it gets slots soon, otherwise wait in the triggerer."""
        with translated_errors():
            site = self.hook.site()
            self._check(site)
            self._find_file()
            with self.hook.open() as channel:
                if context["params"].get("dry_run"):
                    self.outlets = []  # nothing is written, so no other DAG may start
                    self._tell_plan(channel, context)
                    return
                job = self._post(channel, context)
                granted = self._granted_soon(channel, job)
        if not granted:
            self._wait(context, job)
        self._run(context, job)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Continue after the trigger has fired."""
        if event["outcome"] == "late":
            with translated_errors(), self.hook.open() as channel:
                how = self._how_to_lend(self.hook.site())
                batch_jobs.end(channel, event["job"])
            message = f"the job got no slot until the run's deadline: {event['reason']}. {how}"
            raise NoSlotsError(message)
        with translated_errors(), self.hook.open() as channel:
            kept = event["outcome"] == "granted" and batch_jobs.renew(channel, event["job"])
        if not kept:
            self.log.warning(
                "The controller deleted the request, because it was not renewed for %.0f s. "
                "The job is queued again",
                LEASE_SECONDS,
            )
            self.execute(context)
            return
        self._find_file()
        self._run(context, event["job"])

    def get_openlineage_facets_on_start(self) -> "OperatorLineage[Any, Any]":
        """Return the application, for the events of the task's start and end."""
        return lineage.of_application(self.application if self.module is None else file_of(self.module))

    def _find_file(self) -> None:
        if self.module is not None:
            with translated_errors():
                self.application = file_of(self.module)

    def _check(self, site: Site) -> None:
        """Raise UnusableJobError if the site file cannot give the job slots."""
        tenant = site.batch_tenants.get(self.tenant)
        if tenant is None:
            message = (
                f"the site file has no batch tenant {self.tenant!r}: "
                f"use one of {', '.join(site.batch_tenants)}, or add it to `batch_tenants`. "
                "The job was not queued"
            )
            raise UnusableJobError(message)
        if tenant.maximum is not None and self.least > tenant.maximum:
            message = (
                f"the job needs {counted(self.least, 'slot')}, but the batch tenant {self.tenant} has at "
                f"most {tenant.maximum}: lower `least`, or raise the tenant's maximum. The job was not queued"
            )
            raise UnusableJobError(message)

    def _tell_plan(self, channel: Channel, context: Context) -> None:
        queue, lent = batch_jobs.read_grants(channel), lent_slots(channel)
        plan = {
            "lent": lent,
            "granted": sum(grant.slots for grant in queue.grants.values()),
            "queued": len(queue.waiting),
        }
        self.log.info(
            "Dry run: %d slots are lent to batch, %d of them are granted, and %d job(s) wait. "
            "No job is queued",
            *plan.values(),
        )
        context["ti"].xcom_push("plan", plan)

    def _post(self, channel: Channel, context: Context) -> str:
        now = time.time()
        task = context["ti"].task_id
        request = BatchRequest(
            tenant=self.tenant,
            slots=self.slots,
            least=self.least,
            by=f"{asked_by(context)}/{task}",
            at=now,
            renewed_at=now,
        )
        job = batch_jobs.post(channel, f"{context['dag'].dag_id}.{task}", request)
        self.log.info("Queued batch job %s of tenant %s; `sluice batch` shows the queue", job, self.tenant)
        return job

    def _granted_soon(self, channel: Channel, job: str) -> bool:
        end = time.monotonic() + base.LOOK_SECONDS
        while job not in batch_jobs.read_grants(channel).grants:
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _wait(self, context: Context, job: str) -> NoReturn:
        """Free the worker until the job has slots; then `resume` is called."""
        seconds = _seconds_left(context)
        self.defer(
            trigger=BatchGrantTrigger(job, time.time() + seconds, self.sluice_conn_id),
            method_name="resume",
            timeout=seconds + TRIGGERER_SECONDS,
        )

    def _run(self, context: Context, job: str) -> None:
        """Run the application with the granted slots, and free them at its end."""
        with translated_errors(), self.hook.open() as channel:
            try:
                self._run_granted(context, channel, job)
            finally:
                # if ZooKeeper is away, the lease ends
                with suppress(ChannelAwayError):
                    batch_jobs.end(channel, job)

    def _run_granted(self, context: Context, channel: Channel, job: str) -> None:
        services, site = self.hook.endpoints(), self.hook.site()
        grant = batch_jobs.read_grants(channel).grants.get(job)
        if grant is None or not batch_jobs.renew(channel, job):
            raise _gone()
        if grant.slots == 0:
            raise taken_back(grant.reason)
        self.log.info("Batch job %s has %d slot(s)", job, grant.slots)
        self._configure(services, site, grant.started_with)
        seconds, reclaim = _seconds_left(context), task_seconds(site.reclaim_seconds)
        with JobWatch(channel, job, grant, seconds, reclaim, self.log, self.on_kill) as watch:
            self._submit(context, services.spark_settings, watch)

    def _configure(self, services: Any, site: Site, slots: int) -> None:
        """Set the resources of the application: those of the granted slots."""
        quantum, label = site.batch_quantum, label_of(BATCH, 0)
        self.conf = {
            "spark.ui.enabled": "false",
            "spark.log.level": "WARN",
            **SMALL_HEAP,
            **KEEPS_FINISHED_WORK,
            **(self.conf or {}),
            f"spark.executor.resource.{label}.amount": "1",
            f"spark.task.resource.{label}.amount": str(1 / quantum.threads),
            "spark.dynamicAllocation.enabled": "false",
        }
        self._executor_cores = quantum.threads
        self._total_executor_cores = quantum.threads * slots
        self._executor_memory = f"{quantum.heap}m"
        self.env_vars = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **(self.env_vars or {}),
        }
        if LOOPBACK in services.spark:
            self.conf["spark.driver.host"] = LOOPBACK
            self.conf["spark.driver.bindAddress"] = LOOPBACK
            self.env_vars["SPARK_LOCAL_IP"] = LOOPBACK
        host, _, port = services.spark.rpartition(":")
        os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = json.dumps(
            {"conn_type": "spark", "host": host, "port": int(port)}
        )

    def _submit(self, context: Context, secrets: dict[str, str], watch: JobWatch) -> None:
        """Run the application; raise the reason if it was stopped."""
        # secrets go into a file that only its owner can read: all users can read a command line
        with tempfile.NamedTemporaryFile("w", prefix="spark-", suffix=".conf") as properties:
            properties.writelines(f"{key} {value}\n" for key, value in secrets.items())
            properties.flush()
            self.properties_file = properties.name if secrets else None
            try:
                SparkSubmitOperator.execute(self, context)
            except AirflowException as error:
                if watch.failure is None:
                    raise
                raise watch.failure from error

    def _how_to_lend(self, site: Site) -> str:
        if site.lending_shifts:
            dags = (dag_id(f"{name}_shift", self.sluice_conn_id) for name in site.lending_shifts)
            return f"Slots are lent by {' or '.join(dags)}; `sluice batch` shows who has them"
        return (
            "No shift of the site file gives slots to batch: add a shift with batch in its `shares`, "
            "or run `sluice scale batch 1`"
        )


def _seconds_left(context: Context) -> float:
    """Return the seconds until the run's deadline; a week if the run has none."""
    return seconds_left(context) if "deadline" in context["params"] else WATCH_SECONDS
