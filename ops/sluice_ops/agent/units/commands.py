"""The command lines and environment variables of drivers and slots.

The functions are pure, except for the paths of the running Python and of Spark.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice_ops.model.assignment import HostFacts, Unit, UnitKind
from sluice_ops.site import spark
from sluice_ops.site.java import cache_options, home_for_spark

HEARTBEAT = "heartbeat"
"""The file in a driver's scratch folder in which the driver counts its heartbeats."""


@dataclass(frozen=True)
class Installation:
    """The paths, secret and host facts that every unit of this host gets."""

    home: Path
    """This host's own folder."""
    shared: Path
    """The folder that all hosts share."""
    endpoints: Path
    site: Path
    spark_master: str
    spark_secret: str | None
    facts: HostFacts

    @property
    def scala_version(self) -> str:
        """The Scala version that Spark was built with; RuntimeError if Spark is not installed.

        A Worker needs the version to launch executors. Spark's script `spark-class`, which the
        agent does not use, would set it.
        """
        jars = spark.home() / "jars"
        jar = next(jars.glob("spark-core_*.jar"), None)
        if jar is None:
            message = (
                f"no spark-core jar in {jars}, so units cannot start; "
                "install the project's environment on this host"
            )
            raise RuntimeError(message)
        return jar.name.split("_")[1].split("-")[0]


def command(unit: Unit, scratch: Path, installation: Installation) -> list[str]:
    """Return the command line of a unit: the tier's driver, or a Spark Worker for a slot."""
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
            *cache_options(spark.cache_of_workers(installation.shared)),
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
    """Return the environment variables of a unit: the inherited ones and Sluice's."""
    facts = installation.facts
    secret = {spark.SECRET: installation.spark_secret} if installation.spark_secret is not None else {}
    return {**inherited, **(secret if unit.kind is UnitKind.SLOT else {})} | {
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
        "JDK_JAVA_OPTIONS": " ".join(f'"{option}"' for option in _jvm_options(unit, scratch, installation)),
        "MALLOC_ARENA_MAX": "2",
    }


def _jvm_options(unit: Unit, scratch: Path, installation: Installation) -> tuple[str, ...]:
    """Return the options of all JVMs of a unit, also of executors, whose command lines their driver
    makes.
    """
    # JVMs unpack native libraries here; the agent removes them with the unit, also after kill -9.
    temporary = f"-Djava.io.tmpdir={scratch}"
    return (
        (temporary, *cache_options(spark.cache_of_tiers(installation.shared)))
        if unit.kind is UnitKind.SLOT
        else (temporary,)
    )


def resources_file(unit: Unit) -> list[dict[str, object]]:
    """Return the content of the Worker's resources file: one resource named by the unit's label.

    Only executors of this incarnation request this resource. Its address is the slot's id, so the
    driver knows in which slot an executor runs.
    """
    return [{"id": {"componentName": "spark.worker", "resourceName": unit.label}, "addresses": [unit.id]}]
