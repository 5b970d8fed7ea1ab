"""`python -m sluice.commands.class_data`: cache the loaded classes of tiers and Workers, so that
later JVMs start faster (decision 7).

A start of Spark mostly loads classes. This command runs each tier's query once, in a local JVM and
without writing output, and then a Worker without a slot. Each JVM writes the classes that it loaded
to a cache. Later JVMs with the same class path map the cache: they start with half the processor
time and share the memory pages. An existing cache for this Java and these jars is kept.

Exit codes: 0 both caches exist; 1 a cache or the endpoints file is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice import releases
from sluice.driver.spark.jvm import launch
from sluice.driver.spark.session import open_session, settings
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.ids import HostName, Incarnation
from sluice_ops.model.incarnation import IncarnationSpec, Placement
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.site import endpoints, project, site_file, spark
from sluice_ops.site.java import cache_output_options

THREADS = 4
WRITE_SECONDS = 600.0
"""How long a JVM may take to write its cache."""
REGISTER_SECONDS = 30.0
LOADED_BY_NAME = (
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.deploy.client.StandaloneAppClient",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
    "org.apache.spark.rpc.netty.NettyRpcEnv",
    "org.apache.spark.network.netty.NettyBlockTransferService",
)
"""Classes that Spark loads in a cluster and not in local mode."""


def main(arguments: list[str] | None = None) -> int:
    """Make both caches."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.commands.class_data",
        description="Cache the classes that JVMs of tiers and Workers load, so that later ones start faster.",
    )
    parser.parse_args(arguments)
    try:
        where = endpoints.load()
    except (FileNotFoundError, endpoints.EndpointsError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    exist = [
        _make_cache("tiers", spark.cache_of_tiers(where.home), lambda new: _run_tiers(where, new)),
        _make_cache("Workers", spark.cache_of_workers(where.home), lambda new: _run_worker(where, new)),
    ]
    return 0 if all(exist) else 1


def _make_cache(owners: str, cache: Path, run: Callable[[Path], None]) -> bool:
    """Call `run`, which starts a JVM that writes a cache; rename the complete cache to its name.

    Return whether the cache exists.
    """
    if cache.exists():
        sys.stdout.write(f"class data of {owners}: {cache} exists already\n")
        return True
    cache.parent.mkdir(parents=True, exist_ok=True)
    new = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        run(new)
        if new.exists():
            new.rename(cache)
            sys.stdout.write(f"class data of {owners}: {cache} was written\n")
            return True
    finally:
        new.unlink(missing_ok=True)
    sys.stderr.write(
        f"class data of {owners}: the JVM wrote no cache (see its output above); "
        f"{owners} start without a cache, only slower\n"
    )
    return False


def _run_tiers(where: endpoints.Endpoints, new: Path) -> None:
    """Run every tier's query in one local JVM, which writes the cache `new` at its end."""
    from sluice.driver.engine.contract import Standalone  # noqa: PLC0415 — Spark takes a second
    from sluice.driver.engine.factory import create_engine  # noqa: PLC0415 — as above
    from sluice.driver.engine.settings import EngineConfig  # noqa: PLC0415 — as above
    from sluice.kafka.reader import Streams  # noqa: PLC0415

    kafka = where.kafka_as(User.DRIVER)
    loaded = _code(where)
    declared = loaded.pipeline
    first = declared.specs()[0]
    placement = Placement(driver=HostName("here"), slots=())
    incarnation = IncarnationSpec(
        tier=first.name, incarnation=Incarnation(0), placement=placement, reason="class data", created_at=0
    )
    chosen = settings(first, incarnation, "127.0.0.1", where.home)
    for key in [key for key in chosen if ".resource." in key]:
        del chosen[key]
    process = launch(first.driver.heap, where.home, leaves=new)
    session = open_session(f"local[{THREADS}]", chosen, process, loaded.environment)
    jvm = session.sparkContext._jvm  # noqa: SLF001 — Python has no public API to load a class
    for name in LOADED_BY_NAME:
        jvm.java.lang.Class.forName(name)
    with tempfile.TemporaryDirectory(prefix="sluice-classdata-") as scratch, _temporary_below(scratch):
        for tier in declared.tiers:
            config = EngineConfig(
                session=session,
                tier=tier,
                incarnation=0,
                streams=Streams(kafka),
                kafka=kafka,
                postgres=where.postgres_as(Role.DRIVER),
                home=Path(scratch),
            )
            create_engine(config, Standalone()).warm(lambda: True)
    session.stop()
    session.sparkContext._gateway.shutdown()  # noqa: SLF001
    process.end(WRITE_SECONDS)


def _code(where: endpoints.Endpoints) -> releases.Loaded:
    """Return the newest release of the pipeline, whose packages a host may be unable to fetch; the
    present code if none is published.
    """
    module = site_file.load(project.site_path()).pipeline
    stored = [release for release in releases.all_stored(where.home) if release.module == module]
    if not stored:
        return releases.load_current(module)
    name = stored[-1].name
    with Channel(where.zookeeper, where.credential(Role.DRIVER)) as channel:
        node = channel.read(paths.release(name), Release)
    return releases.load(where.home, name, None if node is None else node.value)


@contextmanager
def _temporary_below(folder: str) -> Iterator[None]:
    """Create temporary files of the warm-up in `folder`, so that they are deleted with the
    folder.
    """
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before


def _run_worker(where: endpoints.Endpoints, new: Path) -> None:
    """Run a Worker until a master has registered it; the Worker writes the cache `new` at its end.

    No application uses the Worker: it has no slot's label, and 1 MiB of memory.
    """
    secret = {} if where.spark_secret is None else {spark.SECRET: where.spark_secret}
    with tempfile.TemporaryDirectory(prefix="sluice-classdata-") as scratch:
        log = Path(scratch) / "log"
        options = [
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
                [*spark.worker(*cache_output_options(new), secret=where.spark_secret), *options],
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
