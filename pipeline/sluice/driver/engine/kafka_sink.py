"""Writes a tier's records into Kafka: the query, the jobs of a metered tier, and the producers'
guard.
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.driver.engine.offsets import offsets_option, partitions_option, read_inputs
from sluice.driver.engine.settings import EngineConfig
from sluice.kafka.positions import GIVE_UP_MS
from sluice.records import lineage
from sluice.records.routing import outgoing
from sluice_ops.model.tier import Mode
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH_MINUTES = 24 * 60
"""Length of a batch in realtime mode.

The next run takes over before that (decision 113).
"""
APART_MINUTES = 17
"""Batches are longer by this for each hop to the pipeline's end. Tiers that start together then end
their batches at least a quarter of an hour apart for a month."""
LINGER_MS = {Mode.REALTIME: "0", Mode.BATCH: "5"}
"""How long a record may wait for others in one request.

At 0 each record is a request of its own.
"""
GUARD_SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in ("ProducerGuard", "WriterFence"))
GUARD = {"kafka.interceptor.classes": "sluice.WriterFence,sluice.ProducerGuard"}
"""The option of Kafka's sink after `install_guard`.

Without options of its own the fence does nothing (`sluice.driver.control.write_fence`).
"""


def install_guard(session: "SparkSession") -> dict[str, str]:
    """Give the executors the producer guard, and return the option that makes their producers use
    it.

    An executor ends with the first record that Kafka refuses, so that the output has no hole
    (decision 33). Spark offers no place for that except a class of Kafka's producer. The
    guard is Java, compiled by the compiler that Spark uses for its own code.
    """
    spark, jvm = session.sparkContext, session.sparkContext._jvm  # noqa: SLF001 — not public in Python
    with (
        tempfile.NamedTemporaryFile(prefix="sluice-holes-", suffix=".jar", delete=False) as jar,
        zipfile.ZipFile(jar, "w") as archive,
    ):
        # each jar has a name of its own, for Spark knows jars by their names
        for java_file in GUARD_SOURCES:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(java_file.read_text())
            for name, code in dict(compiler.getBytecodes()).items():
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    spark._jsc.sc().addJar(jar.name)  # noqa: SLF001
    return GUARD


def start_query(  # noqa: PLR0913, PLR0917 - the parts of one run
    config: EngineConfig,
    begins: dict[str, int],
    folder: str,
    by: str,
    partitions: dict[str, int],
    guard: Mapping[str, str],
    suffix: str = "",
) -> "StreamingQuery":
    """Start the query of the run `by` at the offsets `begins`, with its checkpoint in `folder`.

    `partitions` gives the number of partitions over which the records of each output are spread.
    A query with a `suffix`, which warms up, reads only the partitions in `begins`.
    """
    realtime = config.tier.mode is Mode.REALTIME
    batch_limit = {} if realtime else {"maxOffsetsPerTrigger": str(config.tier.max_offsets)}
    only = {"assign": json.dumps(partitions_option(begins))} if suffix else {}
    where = {"startingOffsets": json.dumps(offsets_option(begins))}
    records = read_inputs(config, where | batch_limit | only)
    out = output_rows(config, records, by, partitions, suffix)
    writer = (
        out.writeStream.format("kafka")
        .queryName(f"{config.tier.name} {by}")
        .outputMode("update" if realtime else "append")
    )
    writer = writer.options(checkpointLocation=folder, **sink_options(config, guard))
    if realtime:
        return writer.trigger(realTime=f"{batch_minutes(config.hops_to_end)} minutes").start()
    return writer.trigger(processingTime=f"{config.tier.interval:g} seconds").start()


def batch_minutes(hops_to_end: int) -> int:
    """Return the length of a realtime tier's batches, `hops_to_end` hops from the
    pipeline's end.
    """
    return BATCH_MINUTES + APART_MINUTES * hops_to_end


def output_rows(
    config: EngineConfig, records: "DataFrame", by: str, partitions: dict[str, int], suffix: str = ""
) -> "DataFrame":
    """Return the transformed input in the columns of Kafka's sink."""
    tier = config.tier
    return outgoing(
        lineage.transformed(records, tier),
        tier,
        by,
        partitions,
        packed=config.packed_lineage,
        suffix=suffix,
    )


def sink_options(config: EngineConfig, guard: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Kafka's sink.

    With `guard`, an executor ends before it leaves a hole in the output, and when it loses the
    right to write.
    """
    return {
        **brokers(config.kafka).spark,
        "kafka.delivery.timeout.ms": str(GIVE_UP_MS),
        "kafka.request.timeout.ms": str(GIVE_UP_MS // 2),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": LINGER_MS[config.tier.mode],
        "kafka.max.request.size": str(4 * 1024 * 1024),
        **guard,
        **config.writers.options(),
    }
