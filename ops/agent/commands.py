"""The commands and environments of units. Pure but for the paths of this environment's Python and Spark."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ops.agent import classdata
from ops.endpoints import SPARK_SECURITY
from ops.java import JAVA, STARTED_OFTEN, home_for_spark
from ops.model.assignment import HostFacts, Unit, UnitKind

WORKER_DAEMON_MEMORY = 96
"""MiB of heap for a slot's Worker daemon, which only starts its executor and talks to the master."""


SPARK_SECRET = "_SPARK_AUTH_SECRET"  # noqa: S105 - its name
"""Where Spark's Worker, and each executor that it starts, finds the secret: everybody may read a command line."""


@dataclass(frozen=True)
class Installation:
    """What every unit of this host is started with."""

    home: Path
    endpoints: Path
    site: Path
    spark_master: str
    spark_secret: str | None
    facts: HostFacts

    @property
    def spark_home(self) -> Path:
        """The folder of the installed Spark."""
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            message = "pyspark is not installed beside the agent: install the project's environment on this host"
            raise RuntimeError(message)
        return Path(spec.origin).parent

    @property
    def scala_version(self) -> str:
        """The Scala that Spark was built with, which a Worker has to be told to launch executors: `spark-class` would have said it."""
        jar = next((self.spark_home / "jars").glob("spark-core_*.jar"), None)
        if jar is None:
            message = f"{self.spark_home / 'jars'} has no Spark: install the project's environment on this host"
            raise RuntimeError(message)
        return jar.name.split("_")[1].split("-")[0]

    @property
    def class_data(self) -> Path:
        """Where the Workers' class data is kept."""
        return classdata.archive(self.home, JAVA, self.spark_home / "jars")


def command(unit: Unit, scratch: Path, installation: Installation) -> list[str]:
    """Return what to run for a unit."""
    if unit.kind is UnitKind.DRIVER:
        return [sys.executable, "-m", "pipeline.driver", unit.tenant, str(unit.incarnation), str(unit.quantum.heap)]
    return [
        str(JAVA),
        f"-Xmx{WORKER_DAEMON_MEMORY}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        *STARTED_OFTEN,
        "-XX:-UsePerfData",
        "-XX:ReservedCodeCacheSize=32m",
        *classdata.options(installation.class_data, installation.facts.name, unit.id),
        f"-Dspark.worker.resourcesFile={scratch / 'resources.json'}",
        f"-Dspark.worker.resource.{unit.label}.amount=1",
        "-Dspark.decommission.enabled=true",
        *(f"-D{key}={value}" for key, value in SPARK_SECURITY.items() if installation.spark_secret is not None),
        "-Dspark.worker.cleanup.enabled=true",
        "-Dspark.worker.cleanup.appDataTtl=600",
        "-Dspark.executor.logs.rolling.strategy=size",
        "-Dspark.executor.logs.rolling.maxSize=2000000",
        "-Dspark.executor.logs.rolling.maxRetainedFiles=2",
        "-cp",
        f"{installation.spark_home / 'jars'}/*",
        "org.apache.spark.deploy.worker.Worker",
        "--host",
        installation.facts.address,
        "--cores",
        str(unit.quantum.threads),
        "--memory",
        f"{unit.quantum.heap}m",
        "--webui-port",
        "0",
        "--work-dir",
        str(scratch / "work"),
        installation.spark_master,
    ]


def environment(unit: Unit, scratch: Path, installation: Installation, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return what a unit sees of the world."""
    facts = installation.facts
    secret = {} if unit.kind is UnitKind.DRIVER or installation.spark_secret is None else {SPARK_SECRET: installation.spark_secret}
    return {**inherited, **secret} | {
        "SLUICE_HOME": str(installation.home),
        "SLUICE_ENDPOINTS": str(installation.endpoints),
        "SLUICE_SITE": str(installation.site),
        "SLUICE_HOST": facts.name,
        "SLUICE_HOST_ADDRESS": facts.address,
        "SLUICE_UNIT": f"{facts.name}/{unit.id}",
        "SPARK_LOCAL_IP": facts.address,
        "JAVA_HOME": str(home_for_spark(installation.home)),
        "SPARK_HOME": str(installation.spark_home),
        "SPARK_SCALA_VERSION": installation.scala_version,
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
        # for the driver's JVM and executors too: what they unpack (native libraries) goes away with the unit, also after kill -9
        "JDK_JAVA_OPTIONS": f'"-Djava.io.tmpdir={scratch}"',
        "MALLOC_ARENA_MAX": "2",
    }


def resources_file(unit: Unit) -> list[dict[str, object]]:
    """Return the content of the Worker's resources file: one of the label, which only this incarnation's executors ask for.

    It is called like the slot, by which a driver knows on which of its workers an executor is.
    """
    return [{"id": {"componentName": "spark.worker", "resourceName": unit.label}, "addresses": [unit.id]}]
