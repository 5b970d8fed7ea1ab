"""A replay routes each record by the routing epoch of its place: the records between two changes
are found, in every partition.
"""

import pytest
from pyspark.sql import SparkSession

from sluice.records.lineage import COLUMN
from sluice.records.routing import between
from sluice_ops.model.routing_epochs import begun

pytestmark = pytest.mark.timeout(240)

PLACES = ["raw/0:0", "raw/0:6", "raw/0:7", "raw/0:90", "raw/1:3", "a:b/2:2"]


def test_each_record_belongs_to_one_routing_epoch(session: SparkSession) -> None:
    routing = (
        begun({"hits": 4})
        .widened({"hits": 5}, {"raw/0": 7, "a:b/2": 9})
        .widened({"hits": 6}, {"raw/0": 90, "a:b/2": 9, "raw/1": 3})
    )
    rows = session.createDataFrame([((place,),) for place in PLACES], f"{COLUMN} struct<`from`: string>")
    places_by_epoch = [
        (
            epoch.partitions["hits"],
            [row[COLUMN]["from"] for row in between(rows, epoch.since, ends).collect()],
        )
        for epoch, ends in routing.stretches()
    ]
    # raw/1 was added after the first change
    assert places_by_epoch == [
        (4, ["raw/0:0", "raw/0:6", "a:b/2:2"]),
        (5, ["raw/0:7"]),
        (6, ["raw/0:90", "raw/1:3"]),
    ]
