"""The installed Spark: its folder, the class paths of its JVMs, and their AOT caches."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from sluice_ops.model.spark import SPARK_SECURITY
from sluice_ops.site.installation import INSTALL_AGENT
from sluice_ops.site.java import JAVA, STARTED_OFTEN, cache

SECRET = "_SPARK_AUTH_SECRET"  # noqa: S105 - the name of a variable
"""The variable that gives a Worker and its executors the secret; every user can read a command
line.
"""
SMALL_HEAP = {"spark.testing.reservedMemory": str(64 * 1024 * 1024)}
"""Spark's setting of the heap that it reserves for itself.

With its default of 300 MiB, it refuses the small heaps of one slot. Unit: bytes.
"""
OWN_CLASSES = tuple(Path(__file__).with_name(f"{name}.java") for name in ("LocalFiles", "RunningTasks"))
"""Spark's access to files of this machine (decision 114), and what tasks in a driver have read
(decision 116).
"""
WORKER_MEMORY = 96
"""MiB of heap for a slot's Worker, which only starts the executor and talks to the master."""


def home() -> Path:
    """Return the folder of the installed Spark; RuntimeError if pyspark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        message = f"pyspark is not installed on this host: {INSTALL_AGENT}"
        raise RuntimeError(message)
    return Path(spec.origin).parent


def own_classes(shared: Path) -> Path:
    """Return the path of the jar with `OWN_CLASSES`, which may not exist yet."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in OWN_CLASSES)).hexdigest()[:10]
    return shared / "jars" / "sluice" / f"sluice-{digest}.jar"


def connector(shared: Path) -> str:
    """Return the class path of the Kafka connector, followed by Sluice's own classes and those for
    S3 if there are any.

    The path is the same on every host; it is empty if the jars were never fetched.
    """
    kafka, buckets = (sorted((shared / "jars" / folder).glob("*.jar")) for folder in ("connector", "s3"))
    files = filter(Path.exists, [own_classes(shared)])
    return ":".join(str(jar) for jar in (*kafka, *files, *buckets)) if kafka else ""


def path_of_tiers(shared: Path) -> str:
    """Return the class path of a driver: the connector before Spark's jars, as in executors."""
    spark = home()
    first = sorted((spark / "jars").glob("slf4j-api-*.jar"))
    kafka = connector(shared)
    return ":".join([*([kafka] if kafka else []), f"{spark}/conf", *map(str, first), f"{spark}/jars/*"])


def cache_of_tiers(shared: Path) -> Path:
    """Return the path of the AOT cache of drivers and executors, which may not exist yet."""
    return cache(shared, "tier", path_of_tiers(shared))


def cache_of_workers(shared: Path) -> Path:
    """Return the path of the AOT cache of Workers, which may not exist yet."""
    return cache(shared, "worker", _path_of_workers())


def worker(*options: str, secret: str | None) -> list[str]:
    """Return the command of a Worker, without the Worker's own arguments.

    With a secret, the Worker authenticates; the command does not contain the secret.
    """
    small = (
        f"-Xmx{WORKER_MEMORY}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-XX:ReservedCodeCacheSize=32m",
    )
    security = [f"-D{key}={value}" for key, value in SPARK_SECURITY.items() if secret is not None]
    return [
        str(JAVA),
        *small,
        *STARTED_OFTEN,
        *options,
        *security,
        "-cp",
        _path_of_workers(),
        "org.apache.spark.deploy.worker.Worker",
    ]


def _path_of_workers() -> str:
    return f"{home()}/jars/*"
