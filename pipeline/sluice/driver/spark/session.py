"""The Spark session of a tier driver: settings that bind it to its incarnation's slots and keep it small and quick."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.driver.spark.jvm import Jvm, java_options
from sluice_ops.model.assignment import label_of
from sluice_ops.model.incarnation import IncarnationSpec
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.site import spark

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

RESERVED = 64 * 1024 * 1024
"""Heap that Spark keeps for itself. Its default of 300 MiB refuses the small heaps of one slot. Unit: bytes."""
AT_ONCE = 8
"""What a driver collects of a batch may take this part of its heap: Python holds it several times over, outside of the heap."""
EXECUTORS_SECONDS = 60.0
MLLIB = "pyspark.ml"
"""Who imports it with the pipeline has the functions of vectors in SQL (`vector_to_array`); without them a session is there sooner."""


class NoExecutorError(Exception):
    """No executor came: the slots are not there, or too small."""


def settings(spec: TierSpec, incarnation: IncarnationSpec, address: str, shared: Path) -> dict[str, str]:
    """Return the Spark settings of this incarnation."""
    kafka = spark.connector(shared)
    if not kafka:
        message = f"{shared}/jars/connector holds no jars; `make up` fetches the Kafka connector there"
        raise FileNotFoundError(message)
    label = label_of(spec.name, incarnation.incarnation)
    threads = spec.quantum.threads
    return {
        "spark.app.name": f"sluice {spec.name} {incarnation.incarnation}",
        "spark.cores.max": str(threads * len(incarnation.placement.slots)),
        "spark.executor.cores": str(threads),
        "spark.executor.memory": f"{spec.quantum.heap}m",
        f"spark.executor.resource.{label}.amount": "1",
        f"spark.task.resource.{label}.amount": str(1 / threads),
        "spark.driver.maxResultSize": f"{spec.driver.heap // AT_ONCE}m",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.executor.extraClassPath": kafka,
        "spark.executor.extraJavaOptions": java_options(busy=spec.mode is Mode.REALTIME),
        "spark.testing.reservedMemory": str(RESERVED),
        "spark.decommission.enabled": "true",
        # a task that Spark began again by itself would write again from the batch's begin, in realtime hours ago: the driver begins the
        # query again, from what is put out; where state is held, records that were read twice would be counted twice
        "spark.task.maxFailures": "1" if spec.outputs or spec.state else "4",
        "spark.stage.maxConsecutiveAttempts": "1" if spec.state else "4",
        "spark.executor.heartbeatInterval": "2s",
        # an executor that stands still is ended by its agent; where that stands still, too, it counts as lost after this
        "spark.storage.blockManagerHeartbeatTimeoutMs": "60s",
        "spark.network.timeoutInterval": "10s",
        "spark.locality.wait": "0s",
        "spark.cleaner.periodicGC.interval": "6h",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(incarnation.partitions),
        "spark.sql.session.timeZone": "UTC",
        # the JVM's own tables of upper and lower case: ICU's take 2 s of processor time at the first lower() of every executor
        "spark.sql.icu.caseMappings.enabled": "false",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # who writes a sink paces itself, and asks Kafka only when there was nothing
        "spark.sql.streaming.pollingDelay": "25ms" if spec.outputs else "500ms",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }


def open_session(master: str, chosen: dict[str, str], jvm: Jvm) -> "SparkSession":
    """Start the application in a JVM that was launched before."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = chosen["spark.driver.bindAddress"]
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 — takes a second, while the JVM starts
    from pyspark.sql import SparkSession  # noqa: PLC0415

    jvm.join()
    context = SparkContext(conf=SparkConf().setMaster(master).setAll(list(chosen.items())))
    return SparkSession(context, None if MLLIB in sys.modules else _plain(context))


def _plain(context: "SparkContext") -> "JavaObject":
    """Make the JVM's session without looking for extensions: only MLlib has any, and they take a third of it (decision record 0007).

    They are looked for where the thread's class loader finds services, and Java's own one finds none.
    """
    jvm: Any = context._jvm  # noqa: SLF001 — Python has no public way to its JVM
    builder = jvm.org.apache.spark.sql.classic.SparkSession.builder().sparkContext(context._jsc.sc())  # noqa: SLF001
    bare, thread = jvm.java.lang.ClassLoader.getPlatformClassLoader(), jvm.java.lang.Thread.currentThread()
    usual = thread.getContextClassLoader()
    thread.setContextClassLoader(bare)
    try:
        return builder.getOrCreate()
    finally:
        thread.setContextClassLoader(usual)


def wait_for_executors(
    session: "SparkSession", count: int, label: str, seconds: float = EXECUTORS_SECONDS
) -> None:
    """Return when `count` executors are there."""
    deadline = time.monotonic() + seconds
    while (there := len(executors(session))) < count:
        if time.monotonic() > deadline:
            raise NoExecutorError(missing(there, count, label))
        time.sleep(0.05)


def executors(session: "SparkSession") -> frozenset[str]:
    """Return the ids of the executors that are there."""
    found = session.sparkContext._jsc.sc().getExecutorIds()  # noqa: SLF001 — Python has no public way to ask
    return frozenset(str(found.apply(index)) for index in range(found.size()))


def is_stopped(session: "SparkSession") -> bool:
    """Ask the JVM whether the application has ended: the cheapest question that it has to answer itself."""
    return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 — likewise


def missing(there: int, count: int, label: str) -> str:
    """Say what is to be done about executors that do not come."""
    return (
        f"{there} of {count} executors came within {EXECUTORS_SECONDS:.0f} s: either no free Worker offers the resource {label} and the "
        "memory (`sluice slots` shows whether the slots of this incarnation run), or executors end as soon as they start: the slot's log "
        "says with which exit code, and hosts/<host>/units/<slot>/work/*/*/stderr in the host's SLUICE_HOME says why"
    )
