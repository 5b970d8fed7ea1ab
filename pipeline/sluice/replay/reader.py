"""Reads old records with Spark and runs the tier's transform, in this process, without a slot."""

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
from sluice.dependencies.environment import Environment
from sluice.driver.engine.offsets import client_options, offsets_option
from sluice.driver.spark.jvm import Jvm, launch
from sluice.driver.spark.session import open_session
from sluice.kafka.reader import Streams
from sluice.records import lineage
from sluice.records.routing import between, outgoing
from sluice.replay.book import Replay
from sluice_ops.model.routing_epochs import RoutingEpochs, begun
from sluice_ops.site import spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAP = 700
"""The heap of the JVM. Unit: MiB."""
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
"""Settings that change results have the values of a driver (`sluice.driver.spark.session`)."""


class Reader:
    """The Spark session of one replay, with one thread."""

    def __init__(  # noqa: PLR0913, PLR0917 — the parts of one replay
        self,
        kafka: str,
        shared: Path,
        tier: Tier,
        replay: Replay,
        streams: Streams,
        routing: RoutingEpochs | None,
        environment: Environment | None,
        *,
        packed: bool,
    ) -> None:
        """Start Spark, which takes some seconds; the JVM ends with this process.

        `packed` as in `sluice.api.lineage_header`. Raise FileNotFoundError if the
        Kafka connector is missing.
        """
        self._packed = packed
        self._kafka, self._tier, self._replay, self._streams, self._routing = (
            kafka,
            tier,
            replay,
            streams,
            routing,
        )
        if not spark.connector(shared):
            message = (
                f"{shared}/jars/connector contains no jars, so the replay cannot read Kafka; "
                "fetch the Kafka connector with `sluice up`"
            )
            raise FileNotFoundError(message)
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # otherwise the JVM warns about its choice
        settings = {**tier.spark, **SETTINGS, "spark.app.name": f"sluice {replay.by}"}
        handler = signal.getsignal(signal.SIGINT)
        self._session: SparkSession = open_session("local[1]", settings, _launch_idle(shared), environment)
        signal.signal(signal.SIGINT, handler)  # PySpark replaced the handler
        self._session.sparkContext.setLogLevel("ERROR")

    def rows(
        self, begins: dict[str, int], ends: dict[str, int], whole: Sequence[str] = ()
    ) -> tuple[pa.Table, int]:
        """Process the records between these offsets; return the resulting rows, and the number of
        records.

        The rows have the columns of `outgoing` for a tier with streams, of `collected` for a sink.
        Rows from the places `whole` keep their whole lineage.
        """
        tier, records = self._tier, self._records(begins, ends)
        count = sum(end - begins[place] for place, end in ends.items())
        read = lineage.incoming
        if self._replay.quarantined:
            records, read = records.where(lineage.quarantined_by(tier)), lineage.reprocessed
            count = records.count()
        result = lineage.transformed(records, tier, read)
        if tier.sink is not None:
            return lineage.collected(result, tier, whole).toArrow(), count
        return pa.concat_tables(self._outgoing(result)), count

    def _outgoing(self, result: "DataFrame") -> Iterator[pa.Table]:
        """Yield the records to write, routed as the tier routed the originals.

        Along another path, later tiers would take the records for new ones.
        """
        tier, by = self._tier, f"{self._replay.by}/{self._replay.incarnation}"
        partitions = {topic: self._streams.partitions(topic) for topic in tier.written}
        # records of these streams name their partition themselves
        direct = {stream.name for stream in tier.outputs if isinstance(stream.grouping, Direct)}
        for epoch, ends in (self._routing or begun({})).stretches():
            counts = {name: count for name, count in epoch.partitions.items() if name not in direct}
            rows = between(result, epoch.since, ends) if epoch.since or ends is not None else result
            yield outgoing(rows, tier, by, partitions | counts, packed=self._packed).toArrow()

    def _records(self, begins: dict[str, int], ends: dict[str, int]) -> "DataFrame":
        """Read the records between these offsets, without partitions that have none."""
        begins = {place: offset for place, offset in begins.items() if offset < ends[place]}
        starting, ending = offsets_option(begins), offsets_option({place: ends[place] for place in begins})
        options = {
            "assign": json.dumps(
                {topic: [int(number) for number in places] for topic, places in starting.items()}
            ),
            "startingOffsets": json.dumps(starting),
            "endingOffsets": json.dumps(ending),
        }
        return self._session.read.format("kafka").options(**client_options(self._kafka), **options).load()


def _launch_idle(shared: Path) -> Jvm:
    """Launch a JVM that runs only on idle processors (SCHED_IDLE).

    With `nice` alone, the JVM would delay live records for moments. A process inherits the
    scheduling of the thread that starts it, so a separate thread launches the JVM. Python keeps
    its scheduling, because Python locks the tier's row while it writes.
    """

    def launched() -> Jvm:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return launch(HEAP, shared)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(launched).result()
