"""The Spark session of a driver: its settings bind it to the incarnation's slots, and keep it small
and quick.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice import metrics
from sluice.dependencies.environment import Environment
from sluice.driver.spark.jvm import Jvm, add_to_class_path, java_options
from sluice_ops.model.assignment import label_of
from sluice_ops.model.incarnation import IncarnationSpec
from sluice_ops.model.tier import TierSpec
from sluice_ops.site import spark

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

AT_ONCE = 8
"""A collected batch may take the heap divided by this.

Python holds it several times over, outside of the heap.
"""
EXECUTORS_SECONDS = 60.0
"""How long the driver waits for missing executors."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "sluice.LocalFiles",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Checkpoints on this machine without a process for each file; the second setting makes Spark use
the first.
"""
RUNNING_TASKS = "sluice.RunningTasks"
"""The plugin that tells what tasks in a driver have read."""
MLLIB = "pyspark.ml"
"""A pipeline that imports this module gets vector functions in SQL (`vector_to_array`).

Without them a session opens sooner.
"""


PACKAGES = "packages"
"""The folder in which executors unpack the packages of an environment, in their own folder."""


class NoExecutorError(Exception):
    """Executors are missing: their slots do not run, or are too small."""


def settings(spec: TierSpec, incarnation: IncarnationSpec, address: str, shared: Path) -> dict[str, str]:
    """Return the Spark settings of this incarnation."""
    kafka = spark.connector(shared)
    if not kafka:
        message = f"{shared}/jars/connector holds no jars; `sluice up` fetches the Kafka connector there"
        raise FileNotFoundError(message)
    has_classes = spark.own_classes(shared).exists()
    if spec.light and not has_classes:
        message = f"{spark.own_classes(shared)} is missing, which a light tier needs; `sluice up` makes it"
        raise FileNotFoundError(message)
    return {
        "spark.app.name": f"sluice {spec.name} {incarnation.incarnation}",
        **({} if spec.light else _of_executors(spec, incarnation, kafka)),
        "spark.driver.maxResultSize": f"{spec.driver.heap // AT_ONCE}m",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        **spark.SMALL_HEAP,
        **(LOCAL_FILES if has_classes else {}),
        **({"spark.plugins": RUNNING_TASKS} if spec.light else {}),
        "spark.decommission.enabled": "true",
        "spark.task.maxFailures": str(_most_failures(spec)),
        "spark.stage.maxConsecutiveAttempts": "1" if spec.state else "4",
        "spark.executor.heartbeatInterval": "2s",
        # the agent ends a frozen executor; if the agent is frozen too, the executor counts as lost
        # after this
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
        # case tables of the JVM: those of ICU take 2 s of processor time at the first lower() of
        # each executor
        "spark.sql.icu.caseMappings.enabled": "false",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # a tier with a sink paces itself, and asks Kafka only after a batch without records
        "spark.sql.streaming.pollingDelay": "25ms" if spec.outputs and not spec.state else "500ms",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }


def _of_executors(spec: TierSpec, incarnation: IncarnationSpec, kafka: str) -> dict[str, str]:
    """Return the settings that bind executors to the incarnation's slots."""
    label, threads = label_of(spec.name, incarnation.incarnation), spec.quantum.threads
    return {
        "spark.executor.cores": str(threads),
        "spark.executor.memory": f"{spec.quantum.heap}m",
        f"spark.executor.resource.{label}.amount": "1",
        f"spark.task.resource.{label}.amount": str(1 / threads),
        "spark.executor.extraClassPath": kafka,
        "spark.executor.extraJavaOptions": java_options(busy=True),
    }


def _most_failures(spec: TierSpec) -> int:
    """Return how often a task may fail.

    A task that Spark retries writes again from the start of the batch, in realtime hours ago. With
    state, records that are read twice would count twice. So the driver restarts the query instead.
    """
    return 1 if spec.outputs or spec.state else 4


def master_of(spec: TierSpec, cluster: str) -> str:
    """Return the Spark master of a tier: the cluster, or the threads of a light tier's driver."""
    return f"local[{spec.driver.threads},{_most_failures(spec)}]" if spec.light else cluster


def open_session(
    master: str, chosen: dict[str, str], jvm: Jvm, environment: Environment | None = None
) -> "SparkSession":
    """Open the session in a JVM that was launched before, with the packages and jars of an
    environment.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = chosen["spark.driver.bindAddress"]
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 — takes a second, while the JVM starts
    from pyspark.sql import SparkSession  # noqa: PLC0415

    jvm.join()
    metrics.receive()
    variables: dict[str, str] = {}
    if environment is not None:
        SparkContext._ensure_initialized()  # noqa: SLF001 — the jars come before the first use of a class
        add_to_class_path(SparkContext._gateway, environment.jars)  # noqa: SLF001
        is_local = master.startswith("local[")
        chosen = chosen if is_local else {**chosen, **_shipped(environment)}
        if environment.packages is not None:
            variables["PYTHONPATH"] = str(environment.packages) if is_local else PACKAGES
    conf = SparkConf().setMaster(master).setAll(list(chosen.items()))
    context = SparkContext(conf=conf, environment=variables)
    return SparkSession(context, None if MLLIB in sys.modules else _plain(context))


def _shipped(environment: Environment) -> dict[str, str]:
    """Return the settings by which executors get packages and jars from this driver.

    They do not take them from the shared folder, which other hosts can change.
    """
    packed = {} if environment.archive is None else {"spark.archives": f"{environment.archive}#{PACKAGES}"}
    jars = {"spark.jars": ",".join(map(str, environment.jars))} if environment.jars else {}
    # the cache is for several executors with one folder, and would keep the files once more
    return {**packed, **jars, "spark.files.useFetchCache": "false"}


def _plain(context: "SparkContext") -> "JavaObject":
    """Make the JVM's session without extensions, which take a third of the time (decision 7).

    Only MLlib has extensions. Spark looks for them by the thread's class loader; Java's platform
    class loader finds none.
    """
    jvm: Any = context._jvm  # noqa: SLF001 — Python has no public way to its JVM
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    builder = sessions.builder().sparkContext(context._jsc.sc())  # noqa: SLF001
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
    """Return once `count` executors have registered; NoExecutorError after so many seconds."""
    deadline = time.monotonic() + seconds
    while (registered := len(executors(session))) < count:
        if time.monotonic() > deadline:
            raise NoExecutorError(missing(registered, count, label))
        time.sleep(0.05)


def executors(session: "SparkSession") -> frozenset[str]:
    """Return the ids of the registered executors."""
    ids = session.sparkContext._jsc.sc().getExecutorIds()  # noqa: SLF001 — Python has no public way to ask
    return frozenset(str(ids.apply(index)) for index in range(ids.size()))


def is_stopped(session: "SparkSession") -> bool:
    """Ask the JVM whether the application has ended. No other question to the JVM is cheaper."""
    return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 — likewise


def missing(registered: int, count: int, label: str) -> str:
    """Return a message about missing executors, with the next step."""
    return (
        f"{registered} of {count} executors came within {EXECUTORS_SECONDS:.0f} s: "
        f"either no free Worker offers the resource {label} and the memory (`sluice slots` shows whether "
        "the slots of this incarnation run), or executors end as soon as they start: "
        "the slot's log has the exit code, and hosts/<host>/units/<slot>/work/*/*/stderr in the host's "
        "SLUICE_HOME the reason"
    )
