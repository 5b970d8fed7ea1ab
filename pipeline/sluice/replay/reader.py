"""Reads records of long ago with Spark and takes them through the tier's transform, in this process alone: it needs no slot."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sluice.api.declarations import Tier
from sluice.api.grouping import Direct
from sluice.driver.engine.contract import offsets_option
from sluice.driver.spark.jvm import Jvm, launch
from sluice.driver.spark.session import open_session
from sluice.kafka.reader import Streams
from sluice.records import lineage
from sluice.records.routing import between, outgoing
from sluice.replay.book import Replay
from sluice_ops.model.routing_epochs import Ways, begun
from sluice_ops.site import spark
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAP = 700
"""Of the JVM that does it all. Unit: MiB."""
LOOPBACK = "127.0.0.1"
SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.icu.caseMappings.enabled": "false",
}
"""One thread, and answers that are those of the tier's own drivers (`sluice.driver.spark.session`)."""


class Reader:
    """The Spark of one replay."""

    def __init__(  # noqa: PLR0913, PLR0917 — what one replay is
        self, kafka: str, shared: Path, tier: Tier, replay: Replay, streams: Streams, ways: Ways | None
    ) -> None:
        """Start it, which takes some seconds; its JVM ends with this process."""
        self._kafka, self._tier, self._replay, self._streams, self._ways = kafka, tier, replay, streams, ways
        if not spark.connector(shared):
            message = f"{shared}/jars/connector holds no jars; `make up` fetches the Kafka connector there"
            raise FileNotFoundError(message)
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # its JVM would warn that it has to choose
        settings, told = SETTINGS | {"spark.app.name": f"sluice {replay.by}"}, signal.getsignal(signal.SIGINT)
        self._session: SparkSession = open_session("local[1]", settings, _launch_where_idle(shared))
        signal.signal(signal.SIGINT, told)  # PySpark has put its own in its place
        self._session.sparkContext.setLogLevel("ERROR")

    def rows(
        self, begins: dict[str, int], ends: dict[str, int], whole: Sequence[str] = ()
    ) -> tuple[pa.Table, int]:
        """Return what the tier makes of the records between, as `outgoing` or `collected` has it, and how many records they are."""
        tier, records = self._tier, self._records(begins, ends)
        count = sum(end - begins[place] for place, end in ends.items())
        read = lineage.incoming
        if self._replay.quarantined:
            records, read = records.where(lineage.quarantined_by(tier)), lineage.reprocessed
            count = records.count()
        made = lineage.transformed(records, tier, read)
        if tier.sink is not None:
            return lineage.collected(made, tier, whole).toArrow(), count
        return pa.concat_tables(self._parts(made)), count

    def _parts(self, made: "DataFrame") -> Iterator[pa.Table]:
        """Yield what goes out, by the ways by which the tier has put it: by others it would be new to whoever reads on."""
        tier, by = self._tier, f"{self._replay.by}/{self._replay.incarnation}"
        partitions = {topic: self._streams.partitions(topic) for topic in tier.written}
        said = {
            stream.name for stream in tier.outputs if isinstance(stream.grouping, Direct)
        }  # the record names its partition
        for way, ends in (self._ways or begun({})).stretches():
            counts = {name: count for name, count in way.partitions.items() if name not in said}
            rows = between(made, way.since, ends) if way.since or ends is not None else made
            yield outgoing(rows, tier, by, partitions | counts).toArrow()

    def _records(self, begins: dict[str, int], ends: dict[str, int]) -> "DataFrame":
        """Read what lies between, of the partitions where something does."""
        begins = {place: offset for place, offset in begins.items() if offset < ends[place]}
        starting, ending = offsets_option(begins), offsets_option({place: ends[place] for place in begins})
        options = {
            "assign": json.dumps(
                {topic: [int(number) for number in places] for topic, places in starting.items()}
            ),
            "startingOffsets": json.dumps(starting),
            "endingOffsets": json.dumps(ending),
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",  # what a sender took back was never sent
        }
        return self._session.read.format("kafka").options(**brokers(self._kafka).spark, **options).load()


def _launch_where_idle(shared: Path) -> Jvm:
    """Have its JVM, and all that this starts, run where a processor is idle: with `nice` alone they hold live records up for moments.

    What a thread begins is scheduled as the thread is, for good. Python itself, which locks the tier's row while it writes, is not.
    """

    def launched() -> Jvm:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return launch(HEAP, shared)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(launched).result()
