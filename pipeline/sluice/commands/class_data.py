"""`python -m sluice.commands.class_data`: keep what the JVMs of tiers and Workers load at their start, for all later starts (decision 7).

Starting Spark is mostly loading classes. This runs each tier's query once, on this machine alone and into nothing, then a Worker that has
no slot, and has each JVM write down the classes that it met, laid out for mapping: later ones with the same class path start with half the
processor time and share the pages. What is there already, for this Java and these jars, is kept.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice.api import declarations
from sluice.driver.spark.jvm import launch
from sluice.driver.spark.session import open_session, settings
from sluice_ops.model.access import Role
from sluice_ops.model.ids import HostName, Incarnation
from sluice_ops.model.incarnation import IncarnationSpec, Placement
from sluice_ops.model.kafka_access import User
from sluice_ops.site import endpoints, site_file, spark
from sluice_ops.site.java import leaving

THREADS = 4
WRITE_SECONDS = 600.0
"""How long a JVM may take to write."""
REGISTER_SECONDS = 30.0
LOADED_BY_NAME = (
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.deploy.client.StandaloneAppClient",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
    "org.apache.spark.rpc.netty.NettyRpcEnv",
    "org.apache.spark.network.netty.NettyBlockTransferService",
)
"""Classes of the roles that a single machine does not play."""


def main() -> int:
    """Keep both."""
    where = endpoints.load()
    kept = [
        _keep("tiers", spark.cache_of_tiers(where.home), lambda new: _run_tiers(where, new)),
        _keep("Workers", spark.cache_of_workers(where.home), lambda new: _run_worker(where, new)),
    ]
    return 0 if all(kept) else 1


def _keep(whose: str, cache: Path, run: Callable[[Path], None]) -> bool:
    """Have a JVM that `run` starts leave a cache, which takes its name when it is whole; tell whether there is one now."""
    if cache.exists():
        sys.stdout.write(f"class data of {whose}: {cache} is there\n")
        return True
    cache.parent.mkdir(parents=True, exist_ok=True)
    new = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        run(new)
        if new.exists():
            new.rename(cache)
            sys.stdout.write(f"class data of {whose}: {cache} is kept\n")
            return True
    finally:
        new.unlink(missing_ok=True)
    sys.stderr.write(
        f"class data of {whose}: the JVM wrote none; its own words are above; they start without it, only slower\n"
    )
    return False


def _run_tiers(where: endpoints.Endpoints, new: Path) -> None:
    """Run every tier's query in one local JVM."""
    from sluice.driver.engine.contract import Setting, engine_of  # noqa: PLC0415 — Spark takes a second
    from sluice.kafka.reader import Streams  # noqa: PLC0415

    kafka = where.kafka_as(User.DRIVER)
    declared = declarations.load(site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).pipeline)
    first = declared.specs()[0]
    placement = Placement(driver=HostName("here"), slots=())
    incarnation = IncarnationSpec(
        tier=first.name, incarnation=Incarnation(0), placement=placement, reason="class data", created_at=0
    )
    chosen = settings(first, incarnation, "127.0.0.1", where.home)
    for key in [key for key in chosen if ".resource." in key or key == "spark.cores.max"]:
        del chosen[key]
    process = launch(first.driver.heap, where.home, leaves=new)
    session = open_session(f"local[{THREADS}]", chosen, process)
    jvm = session.sparkContext._jvm  # noqa: SLF001 — Python has no public way to load a class
    for name in LOADED_BY_NAME:
        jvm.java.lang.Class.forName(name)
    with tempfile.TemporaryDirectory(prefix="sluice-classdata-") as scratch, _temporary_below(scratch):
        for tier in declared.tiers:
            setting = Setting(
                session,
                tier,
                0,
                Streams(kafka),
                kafka,
                where.postgres_as(Role.DRIVER),
                Path(scratch),
                list,
                lambda: 0,
                lambda: True,
            )
            engine_of(setting).warm(lambda: True)
    session.stop()
    session.sparkContext._gateway.shutdown()  # noqa: SLF001
    process.end(WRITE_SECONDS)


@contextmanager
def _temporary_below(folder: str) -> Iterator[None]:
    """Have what is made for a time meanwhile, by warming, made in a folder, with which it goes."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before


def _run_worker(where: endpoints.Endpoints, new: Path) -> None:
    """Run a Worker until a master has taken it; nobody is given anything on it, since it has no slot's label and a MiB of memory."""
    secret = {} if where.spark_secret is None else {spark.SECRET: where.spark_secret}
    with tempfile.TemporaryDirectory(prefix="sluice-classdata-") as scratch:
        log = Path(scratch) / "log"
        words = [
            "--host",
            "127.0.0.1",
            "--cores",
            "1",
            "--memory",
            "1m",
            "--webui-port",
            "0",
            "--work-dir",
            scratch,
            where.spark,
        ]
        environment = os.environ | secret | {"SPARK_HOME": str(spark.home())}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*spark.worker(*leaving(new), secret=where.spark_secret), *words],
                env=environment,
                stdout=out,
                stderr=out,
            )
        deadline = time.monotonic() + REGISTER_SECONDS
        while (
            process.poll() is None
            and "Successfully registered" not in log.read_text()
            and time.monotonic() < deadline
        ):
            time.sleep(0.2)
        process.terminate()
        try:
            process.wait(WRITE_SECONDS)
        finally:
            process.kill()
            sys.stdout.write(log.read_text())


if __name__ == "__main__":
    sys.exit(main())
