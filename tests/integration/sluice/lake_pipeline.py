"""A pipeline for `test_sinks_in_s3`: a tier that writes files and a Delta table in a bucket."""

from sluice.api.declarations import Pipeline, Tier
from sluice.sinks.several import Sinks
from sluice.sinks.table import DeltaTable, ParquetFiles
from sluice_ops.model.tier import Delivery, Kind
from tests.integration.sluice.outside_pipeline import DRIVER, NUMBER, RAW, SLOT, read

PIPELINE = Pipeline(
    (
        Tier(
            "lake",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=Sinks(
                ParquetFiles("saved", NUMBER, folder="s3a://lake/numbers"),
                DeltaTable("in_lake", NUMBER, folder="s3a://lake/table"),
            ),
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=50,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
