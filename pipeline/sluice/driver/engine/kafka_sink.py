"""What puts a tier's records into Kafka: its query, and the jobs that let records in by measure. Called by `into_streams`."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluice.driver.engine.contract import INTERVAL, Setting, offsets_option, source
from sluice.kafka.positions import GIVE_UP_MS
from sluice.records import lineage
from sluice.records.routing import outgoing
from sluice_ops.model.tier import Mode
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

BATCH_MINUTES = 24 * 60
"""Length of a batch of real-time mode. Its end costs a second of output; it tells exactly up to where all is out (decision record 0042)."""
APART_MINUTES = 17
"""So much longer it is with each hop to the pipeline's end: those that begin together end a quarter of an hour apart for a month."""
LINGER_MS = {Mode.REALTIME: "0", Mode.BATCH: "5"}
"""How long a record may wait for company: without it every record is a request to the broker, and none waits."""


def begin(  # noqa: PLR0913, PLR0917 - what one run is
    setting: Setting,
    begins: dict[str, int],
    folder: str,
    by: str,
    partitions: dict[str, int],
    guard: Mapping[str, str],
    suffix: str = "",
) -> "StreamingQuery":
    """Begin the query of the run `by` there, on a checkpoint of its own; `partitions` are those over which it spreads its records."""
    realtime = setting.tier.mode is Mode.REALTIME
    most = {} if realtime else {"maxOffsetsPerTrigger": str(setting.tier.max_offsets)}
    records = source(setting, {"startingOffsets": json.dumps(offsets_option(begins))} | most)
    out = written(setting, records, by, partitions, suffix)
    writer = (
        out.writeStream.format("kafka")
        .queryName(f"{setting.tier.name} {by}")
        .outputMode("update" if realtime else "append")
    )
    writer = writer.options(checkpointLocation=folder, **into_kafka(setting, guard))
    if realtime:
        return writer.trigger(realTime=batch_length(setting.distance)).start()
    return writer.trigger(processingTime=f"{INTERVAL:g} seconds").start()


def batch_length(distance: int) -> str:
    """Return how long a realtime tier's batches are, so many hops from the pipeline's end."""
    return f"{BATCH_MINUTES + APART_MINUTES * distance} minutes"


def written(
    setting: Setting, records: "DataFrame", by: str, partitions: dict[str, int], suffix: str = ""
) -> "DataFrame":
    """Turn the input into what Kafka's sink takes."""
    tier = setting.tier
    return outgoing(lineage.transformed(records, tier), tier, by, partitions, suffix=suffix)


def into_kafka(setting: Setting, guard: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Kafka's sink; `guard` has executors end before they leave a hole, or with the right to write."""
    return {
        **brokers(setting.kafka).spark,
        "kafka.delivery.timeout.ms": str(GIVE_UP_MS),
        "kafka.request.timeout.ms": str(GIVE_UP_MS // 2),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": LINGER_MS[setting.tier.mode],
        "kafka.max.request.size": str(4 * 1024 * 1024),
        **guard,
        **setting.writers.options(),
    }
