"""The commands and environments of units. Pure but for the paths of this environment's Python and Spark."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice_ops.model.assignment import HostFacts, Unit, UnitKind
from sluice_ops.site import spark
from sluice_ops.site.java import cached, home_for_spark

HEARTBEAT = "heartbeat"
"""The file in a driver's scratch in which it counts its heartbeats, for its agent."""


@dataclass(frozen=True)
class Installation:
    """What every unit of this host is started with."""

    home: Path
    """This host's own folder."""
    shared: Path
    """The one that all hosts share."""
    endpoints: Path
    site: Path
    spark_master: str
    spark_secret: str | None
    facts: HostFacts

    @property
    def scala_version(self) -> str:
        """The Scala that Spark was built with, which a Worker has to be told to launch executors: `spark-class` would have said it."""
        jars = spark.home() / "jars"
        jar = next(jars.glob("spark-core_*.jar"), None)
        if jar is None:
            message = f"{jars} has no Spark: install the project's environment on this host"
            raise RuntimeError(message)
        return jar.name.split("_")[1].split("-")[0]


def command(unit: Unit, scratch: Path, installation: Installation) -> list[str]:
    """Return what to run for a unit."""
    if unit.kind is UnitKind.DRIVER:
        return [
            sys.executable,
            "-m",
            "sluice.driver",
            unit.tenant,
            str(unit.incarnation),
            str(unit.quantum.heap),
            str(installation.shared),
        ]
    return [
        *spark.worker(
            *cached(spark.cache_of_workers(installation.shared)),
            f"-Dspark.worker.resourcesFile={scratch / 'resources.json'}",
            f"-Dspark.worker.resource.{unit.label}.amount=1",
            "-Dspark.decommission.enabled=true",
            "-Dspark.worker.cleanup.enabled=true",
            "-Dspark.worker.cleanup.appDataTtl=600",
            "-Dspark.executor.logs.rolling.strategy=size",
            "-Dspark.executor.logs.rolling.maxSize=2000000",
            "-Dspark.executor.logs.rolling.maxRetainedFiles=2",
            secret=installation.spark_secret,
        ),
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


def environment(
    unit: Unit, scratch: Path, installation: Installation, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return what a unit sees of the world."""
    facts = installation.facts
    of_slot = {spark.SECRET: installation.spark_secret} if installation.spark_secret is not None else {}
    return {**inherited, **(of_slot if unit.kind is UnitKind.SLOT else {})} | {
        "SLUICE_HOME": str(installation.home),
        "SLUICE_ENDPOINTS": str(installation.endpoints),
        "SLUICE_SITE": str(installation.site),
        "SLUICE_HOST": facts.name,
        "SLUICE_HOST_ADDRESS": facts.address,
        "SLUICE_HEARTBEAT": str(scratch / HEARTBEAT),
        "SLUICE_UNIT": f"{facts.name}/{unit.id}",
        "SPARK_LOCAL_IP": facts.address,
        "JAVA_HOME": str(home_for_spark(installation.home)),
        "SPARK_HOME": str(spark.home()),
        "SPARK_SCALA_VERSION": installation.scala_version,
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
        "JDK_JAVA_OPTIONS": " ".join(f'"{option}"' for option in _of_all_jvms(unit, scratch, installation)),
        "MALLOC_ARENA_MAX": "2",
    }


def _of_all_jvms(unit: Unit, scratch: Path, installation: Installation) -> tuple[str, ...]:
    """Return what all JVMs of a unit are told, executors too, whose command lines are their driver's."""
    # what they unpack (native libraries) goes away with the unit, also after kill -9
    below = f"-Djava.io.tmpdir={scratch}"
    return (
        (below, *cached(spark.cache_of_tiers(installation.shared)))
        if unit.kind is UnitKind.SLOT
        else (below,)
    )


def resources_file(unit: Unit) -> list[dict[str, object]]:
    """Return the content of the Worker's resources file: one of the label, which only this incarnation's executors ask for.

    It is called like the slot, by which a driver knows on which of its workers an executor is.
    """
    return [{"id": {"componentName": "spark.worker", "resourceName": unit.label}, "addresses": [unit.id]}]
