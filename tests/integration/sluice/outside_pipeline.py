"""A pipeline for `test_sinks_outside`: tiers that write what readers outside of Sluice read."""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.kafka_topic import KafkaTopic
from sluice.sinks.several import Sinks
from sluice.sinks.sql_table import SqlTable
from sluice.sinks.table import DeltaTable, JsonFiles, Once, ParquetFiles
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind

KAFKA = os.environ.get("SLUICE_TEST_KAFKA", "127.0.0.1:1")
"""The address of the cluster outside; the test sets it before it starts the tier."""
DATABASE = os.environ.get("SLUICE_TEST_DATABASE", "/nonexistent/outside.db")
"""The file of the database outside; likewise."""
MARIADB = os.environ.get("SLUICE_TEST_MARIADB", "mysql+pymysql://sluice@127.0.0.1:1/shop")
"""The address of the MariaDB outside; likewise."""
MARIADB_PASSWORD = os.environ.get("SLUICE_TEST_MARIADB_PASSWORD", "/nonexistent/password")
"""The file with the password of its user."""
RAW = Stream("raw")
NUMBER = {"n": "bigint"}
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def read(raw: DataFrame) -> DataFrame:
    """Parse the records."""
    return raw.select(F.from_json("value", "n bigint").alias("read"), "lineage").select("read.*", "lineage")


PIPELINE = Pipeline(
    (
        Tier(
            "save",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=ParquetFiles("saved", NUMBER, folder="numbers"),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=50,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "lake",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=DeltaTable("in_lake", NUMBER, folder="lake"),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=50,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "tell",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=KafkaTopic("told", NUMBER, topic="told-outside", kafka=KAFKA, key="n"),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=50,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "insert",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=SqlTable("inserted", NUMBER, url=f"sqlite:///{DATABASE}", table="numbers"),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=50,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "load",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=SqlTable("loaded", NUMBER, url=MARIADB, table="numbers", password_file=MARIADB_PASSWORD),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=50,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "spread",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=Sinks(
                Once("spread_rows", {"n": "smallint"}),
                DeltaTable("spread_lake", NUMBER, folder="spread"),
                JsonFiles("spread_lines", NUMBER, folder="spread-lines"),
                KafkaTopic("spread_told", NUMBER, topic="spread-outside", kafka=KAFKA, key="n"),
            ),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=200,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
