"""Spark as this environment has it: its folder, what its JVMs have on their class path, and the caches that they start from."""

from importlib.util import find_spec
from pathlib import Path

from sluice_ops.model.spark import SPARK_SECURITY
from sluice_ops.site.java import JAVA, STARTED_OFTEN, cache

SECRET = "_SPARK_AUTH_SECRET"  # noqa: S105 - its name
"""Where a Worker, and each executor that it starts, finds the secret: everybody may read a command line."""
WORKER_MEMORY = 96
"""MiB of heap for a slot's Worker, which only starts its executor and talks to the master."""


def home() -> Path:
    """Return the folder of the installed Spark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        message = "pyspark is not installed here: install the project's environment on this host"
        raise RuntimeError(message)
    return Path(spec.origin).parent


def connector(shared: Path) -> str:
    """Return the class path of the Kafka connector, the same on every host; empty where it was never fetched.

    What Spark reads buckets with comes after it, where the site's checkpoints are in one.
    """
    kafka, buckets = (sorted((shared / "jars" / folder).glob("*.jar")) for folder in ("connector", "s3"))
    return ":".join(str(jar) for jar in (*kafka, *buckets)) if kafka else ""


def path_of_tiers(shared: Path) -> str:
    """Return the class path of a driver, the connector before Spark's own jars: in the very order that executors have."""
    spark = home()
    first = sorted((spark / "jars").glob("slf4j-api-*.jar"))
    kafka = connector(shared)
    return ":".join([*([kafka] if kafka else []), f"{spark}/conf", *map(str, first), f"{spark}/jars/*"])


def cache_of_tiers(shared: Path) -> Path:
    """Return where the cache of drivers and executors is, or will be."""
    return cache(shared, "tier", path_of_tiers(shared))


def cache_of_workers(shared: Path) -> Path:
    """Return where the cache of Workers is, or will be."""
    return cache(shared, "worker", _path_of_workers())


def worker(*options: str, secret: str | None) -> list[str]:
    """Return the command of a Worker, up to the words that it takes itself; with a secret, which is not in it, it proves who it is."""
    sparing = (
        f"-Xmx{WORKER_MEMORY}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-XX:ReservedCodeCacheSize=32m",
    )
    proves = [f"-D{key}={value}" for key, value in SPARK_SECURITY.items() if secret is not None]
    return [
        str(JAVA),
        *sparing,
        *STARTED_OFTEN,
        *options,
        *proves,
        "-cp",
        _path_of_workers(),
        "org.apache.spark.deploy.worker.Worker",
    ]


def _path_of_workers() -> str:
    return f"{home()}/jars/*"
