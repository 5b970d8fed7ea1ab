"""Reads a tier's inputs with Spark, from given offsets on."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.driver.engine.settings import EngineConfig
from sluice_ops.model.tier import Mode
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


ANSWER_MS = 14_000
"""How long Kafka's clients in the JVM wait for an answer about offsets, in driver and executors.

Spark's admin client keeps asking a killed leader until then (decision 84). Kafka elects another
leader within 13 s, so the executors outlast that.
"""
FETCH_WAIT_MS = 10
"""How long the broker may hold back the answer to a fetch that finds no record.

After each fetch, Spark asks for the ends of the partition, on the connection on which the client
already fetches ahead. The broker answers in order, so at the end of its partition each task would
wait for Kafka's default of 500 ms (decision 107).
"""


def offsets_option(positions: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return positions in the form of Spark's options `startingOffsets` and `endingOffsets`."""
    by_topic: dict[str, dict[str, int]] = {}
    for name, offset in positions.items():
        topic, _, partition = name.rpartition("/")
        by_topic.setdefault(topic, {})[partition] = offset
    return by_topic


def partitions_option(positions: dict[str, int]) -> dict[str, list[int]]:
    """Return the partitions of positions in the form of Spark's option `assign`."""
    return {topic: [*map(int, numbers)] for topic, numbers in offsets_option(positions).items()}


def client_options(kafka: str, *, waits: bool = False) -> dict[str, str]:
    """Return the options with which Spark reads records from Kafka.

    With `waits`, a fetch waits for the next record as long as Kafka's default says.
    """
    options = brokers(kafka).spark | {
        "includeHeaders": "true",
        # as the driver itself reads: records of aborted transactions do not count
        "kafka.isolation.level": "read_committed",
        "kafka.default.api.timeout.ms": str(ANSWER_MS),
        "kafka.request.timeout.ms": str(ANSWER_MS),
    }
    return options if waits else options | {"kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS)}


def read_inputs(
    config: EngineConfig, options: dict[str, str], topics: Sequence[str] = (), *, stream: bool = True
) -> "DataFrame":
    """Read the given topics, or all of the tier's inputs, or the partitions in the option `assign`.

    Without `stream`, read the offsets in `options` once.
    """
    source = {} if "assign" in options else {"subscribe": ",".join(topics or config.inputs)}
    # a realtime query waits for records all the time: shorter waits would only be more requests
    waits = stream and config.tier.mode is Mode.REALTIME
    session = config.session
    reader = (session.readStream if stream else session.read).format("kafka")
    return reader.options(**client_options(config.kafka, waits=waits) | source | options).load()


def read_between(config: EngineConfig, begins: dict[str, int], ends: dict[str, int]) -> "DataFrame":
    """Read once the records between two positions of all input partitions."""
    bounds = {
        "startingOffsets": json.dumps(offsets_option(begins)),
        "endingOffsets": json.dumps(offsets_option(ends)),
    }
    return read_inputs(config, bounds, stream=False)
