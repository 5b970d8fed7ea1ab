"""`python -m pipeline.classdata`: write the class data archive that every tier driver and executor starts from.

Starting Spark is mostly loading classes. This runs each tier's query once, on this machine alone and into nothing, and has the JVM keep
the classes it met, laid out for mapping: later JVMs with the same class path start with half the processor time and share the pages.
An archive that no longer fits its jars is ignored by the JVM, so it can be old but not wrong. Run by the platform at its first start.
"""

import os
import sys
import tempfile
from pathlib import Path

from ops import endpoints, site
from ops.java import OF_TIERS, leaving
from ops.model.ids import HostName, Incarnation
from ops.model.incarnation import IncarnationSpec, Placement
from ops.model.streams import User
from pipeline import declare
from pipeline.driver.jvm import launch
from pipeline.driver.session import open_session, settings

THREADS = 4
ARCHIVE_SECONDS = 600.0
"""How long the JVM may take to write the archive."""
LOADED_BY_NAME = (
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.deploy.client.StandaloneAppClient",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
    "org.apache.spark.rpc.netty.NettyRpcEnv",
    "org.apache.spark.network.netty.NettyBlockTransferService",
)
"""Classes of the roles that a single machine does not play."""


def main() -> int:
    """Train and write."""
    where = endpoints.load()
    target = where.home / OF_TIERS
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    written = target.with_suffix(".part")
    written.unlink(missing_ok=True)
    _train(where, written)
    if not written.exists():
        sys.stderr.write(f"the JVM wrote no archive at {written}: its own words are above; tiers start without it, only slower\n")
        return 1
    written.rename(target)
    return 0


def _train(where: endpoints.Endpoints, written: Path) -> None:
    """Run every tier's query in one local JVM, which writes the archive when it ends."""
    from pipeline.driver.engine import Setting, engine_of  # noqa: PLC0415 — Spark takes a second
    from pipeline.driver.streams import Streams  # noqa: PLC0415

    kafka = where.kafka_as(User.DRIVER)
    declared = declare.load(site.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).pipeline)
    first = declared.specs()[0]
    placement = Placement(driver=HostName("here"), slots=())
    incarnation = IncarnationSpec(tier=first.name, incarnation=Incarnation(0), placement=placement, reason="class data", created_at=0)
    chosen = settings(first, incarnation, "127.0.0.1", where.home)
    for key in [key for key in chosen if ".resource." in key or key == "spark.cores.max"]:
        del chosen[key]
    process = launch(first.driver.heap, where.home, *leaving(written))
    session = open_session(f"local[{THREADS}]", chosen, process)
    jvm = session.sparkContext._jvm  # noqa: SLF001 — Python has no public way to load a class
    for name in LOADED_BY_NAME:
        jvm.java.lang.Class.forName(name)
    with tempfile.TemporaryDirectory(prefix="sluice-classdata-") as scratch:
        for tier in declared.tiers:
            setting = Setting(session, tier, 0, Streams(kafka), kafka, where.postgres, Path(scratch), list, lambda: 0, lambda: True)
            engine_of(setting).warm(lambda: True)
    session.stop()
    session.sparkContext._gateway.shutdown()  # noqa: SLF001
    process.end(ARCHIVE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
