"""The night's batch job, submitted with the Spark provider's operator to the slots that the tenant `batch` was lent."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context

from ops import endpoints
from ops.channel import Channel
from ops.model import paths
from ops.model.assignment import Observed, UnitKind, UnitState, label_of
from ops.model.ids import BATCH
from sluice_airflow import forms
from sluice_airflow.errors import NothingLentError, kinds
from sluice_airflow.hook import ChannelHook

CONNECTION = "sluice_spark"
LOOPBACK = "127.0.0.1"


def lent_slots(channel: Channel) -> int:
    """Return how many slots run for the tenant `batch` now."""
    seen = (channel.read(paths.observed(name), Observed) for name in channel.children("/observed"))
    return sum(
        unit.state is UnitState.RUNNING and unit.id.startswith(f"{UnitKind.SLOT}-{BATCH}-")
        for host in seen
        if host is not None
        for unit in host.value.units
    )


def application() -> str:
    """Return the job's file, wherever the package is installed, without importing it (or Spark)."""
    spec = importlib.util.find_spec("pipeline")
    if spec is None or not spec.submodule_search_locations:
        message = "the package `pipeline` is not installed beside Airflow: install the project into Airflow's environment"
        raise FileNotFoundError(message)
    return str(Path(next(iter(spec.submodule_search_locations))) / "nightly.py")


class ReportOperator(SparkSubmitOperator):
    """Submits `pipeline/nightly.py` with the resources of the lent slots; refuses when none is lent."""

    ui_color = "#e6dcf2"

    def __init__(self, **kwargs: Any) -> None:
        """Prepare the job; where and how large is found out when it runs."""
        super().__init__(conn_id=CONNECTION, name="nightly_report", spark_binary="spark-submit", **kwargs)

    def execute(self, context: Context) -> None:
        """Look at what is lent, and submit for exactly that."""
        with kinds():
            found = endpoints.load()
            with ChannelHook().open() as channel:
                slots = lent_slots(channel)
            self.application = application()
        if slots == 0:
            message = "no slot is lent to batch now, so the report was not started; run night_shift first (it lends what shifts.night says)"
            raise NothingLentError(message)
        quantum = forms.the_site().batch_quantum
        label = label_of(BATCH, 0)
        self.conf = {
            f"spark.executor.resource.{label}.amount": "1",
            f"spark.task.resource.{label}.amount": str(1 / quantum.threads),
            "spark.dynamicAllocation.enabled": "false",
            "spark.ui.enabled": "false",
        }
        self._executor_cores = quantum.threads
        self._total_executor_cores = quantum.threads * slots
        self._executor_memory = f"{quantum.heap}m"
        self._driver_memory = "512m"
        self.env_vars = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        if LOOPBACK in found.spark:
            self.conf["spark.driver.host"] = LOOPBACK
            self.conf["spark.driver.bindAddress"] = LOOPBACK
            self.env_vars["SPARK_LOCAL_IP"] = LOOPBACK
        host, _, port = found.spark.rpartition(":")
        os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = json.dumps({"conn_type": "spark", "host": host, "port": int(port)})
        self.log.info("%d slots are lent to batch; the report runs on them", slots)
        super().execute(context)
