"""Batch jobs: submits a Spark application to the slots that are lent to the tenant `batch`."""

import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sluice_airflow.errors import NothingLentError, translated_errors
from sluice_airflow.forms import dag_id
from sluice_airflow.operators.base import SluiceOperator
from sluice_airflow.operators.steps import seconds_left
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, Observed, UnitKind, UnitState, label_of
from sluice_ops.model.ids import BATCH
from sluice_ops.site.site_file import Site

CONNECTION = "sluice_spark"
LOOPBACK = "127.0.0.1"
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of JVMs that end before the optimizing compiler pays off."""
LENT_SECONDS = 30.0
"""How long a job waits for the first assigned slot: a shift ends a moment before slots are
assigned.
"""
START_SECONDS = 60.0
"""How long an assigned slot may take to start."""
POLL_SECONDS = 0.5


def assigned_slots(channel: Channel) -> int:
    """Return how many slots the controller has assigned to the tenant `batch`."""
    hosts = (channel.read(paths.assignment(name), Assignment) for name in channel.children("/assignments"))
    return sum(
        unit.kind is UnitKind.SLOT and unit.tenant == BATCH
        for host in hosts
        if host is not None
        for unit in host.value.units
    )


def running_slots(channel: Channel) -> int:
    """Return how many slots of the tenant `batch` run now."""
    hosts = (channel.read(paths.observed(name), Observed) for name in channel.children("/observed"))
    return sum(
        unit.state is UnitState.RUNNING and unit.id.startswith(f"{UnitKind.SLOT}-{BATCH}-")
        for host in hosts
        if host is not None
        for unit in host.value.units
    )


def lent_slots(channel: Channel) -> int:
    """Wait until all slots that are lent to `batch` run; return how many run, 0 if none is lent."""
    began = time.monotonic()
    while True:
        assigned, running = assigned_slots(channel), running_slots(channel)
        waited = time.monotonic() - began
        if (running and running >= assigned) or waited > (START_SECONDS if assigned else LENT_SECONDS):
            return running
        time.sleep(POLL_SECONDS)


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


class BatchJobOperator(SluiceOperator, SparkSubmitOperator):
    """Submits a module's file with the resources of the lent slots; fails if none is lent."""

    ui_color = "#e6dcf2"

    def __init__(self, *, module: str, **kwargs: Any) -> None:
        """Prepare the job, such as `module="hits.nightly_report"`.

        `execute` sets the job's size; the run's deadline limits its time.
        """
        self.module = module
        super().__init__(
            conn_id=CONNECTION,
            name=module.rsplit(".", 1)[-1],
            spark_binary="spark-submit",
            execution_timeout=None,
            **kwargs,
        )

    def execute(self, context: Context) -> None:
        """Count the lent slots, and submit the job with exactly their resources."""
        with translated_errors():
            services, site = self.hook.endpoints(), self.hook.site()
            quantum = site.batch_quantum
            with self.hook.open() as channel:
                slots = lent_slots(channel)
            self.application = file_of(self.module)
        if context["params"]["dry_run"]:
            self.log.info(
                "Dry run: the job would run on %d slots that are lent to batch. No job is submitted",
                slots,
            )
            context["ti"].xcom_push("plan", {"slots": slots})
            return
        if slots == 0:
            message = f"the job was not started: no slot is lent to batch. {self._how_to_lend(site)}"
            raise NothingLentError(message)
        label = label_of(BATCH, 0)
        self.conf = {
            f"spark.executor.resource.{label}.amount": "1",
            f"spark.task.resource.{label}.amount": str(1 / quantum.threads),
            "spark.dynamicAllocation.enabled": "false",
            "spark.ui.enabled": "false",
            "spark.log.level": "WARN",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.extraJavaOptions": SHORT_LIVED,
        }
        self._executor_cores = quantum.threads
        self._total_executor_cores = quantum.threads * slots
        self._executor_memory = f"{quantum.heap}m"
        self._driver_memory = "512m"
        self.env_vars = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        if LOOPBACK in services.spark:
            self.conf["spark.driver.host"] = LOOPBACK
            self.conf["spark.driver.bindAddress"] = LOOPBACK
            self.env_vars["SPARK_LOCAL_IP"] = LOOPBACK
        host, _, port = services.spark.rpartition(":")
        os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = json.dumps(
            {"conn_type": "spark", "host": host, "port": int(port)}
        )
        self.log.info("%d slots are lent to batch; the job runs on them", slots)
        # secrets go into a file that only its owner can read: all users can read a command line
        with tempfile.NamedTemporaryFile("w", prefix="spark-", suffix=".conf") as properties:
            properties.writelines(f"{key} {value}\n" for key, value in services.spark_settings.items())
            properties.flush()
            self.properties_file = properties.name if services.spark_settings else None
            self._submit(context)

    def _how_to_lend(self, site: Site) -> str:
        if site.lending_shifts:
            dags = (dag_id(f"{name}_shift", self.sluice_conn_id) for name in site.lending_shifts)
            return f"Run {' or '.join(dags)} first: it gives slots to batch"
        return (
            "No shift of the site file gives slots to batch: add a shift with batch in its `shares`, "
            "or run `sluice scale batch 1`"
        )

    def _submit(self, context: Context) -> None:
        """Run the job; kill it at the run's deadline."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self.on_kill()

        timer = threading.Timer(seconds_left(context), end)
        timer.start()
        try:
            super().execute(context)
        except AirflowException as error:
            if not late.is_set():
                raise
            message = (
                "the job was killed at the run's deadline. "
                "Trigger the DAG again with a longer deadline, or lend more slots"
            )
            raise AirflowFailException(message) from error
        finally:
            timer.cancel()
