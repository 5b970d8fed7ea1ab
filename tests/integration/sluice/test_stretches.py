"""A replay takes each record by the ways of its own place: those that lie between two changes are found, of every partition."""

import pytest
from pyspark.sql import SparkSession

from sluice.records.lineage import COLUMN
from sluice.records.routing import between
from sluice_ops.model.routing_epochs import begun

pytestmark = pytest.mark.timeout(240)

PLACES = ["raw/0:0", "raw/0:6", "raw/0:7", "raw/0:90", "raw/1:3", "a:b/2:2"]


def test_each_record_is_of_one_stretch(session: SparkSession) -> None:
    ways = (
        begun({"hits": 4})
        .widened({"hits": 5}, {"raw/0": 7, "a:b/2": 9})
        .widened({"hits": 6}, {"raw/0": 90, "a:b/2": 9, "raw/1": 3})
    )
    made = session.createDataFrame([((place,),) for place in PLACES], f"{COLUMN} struct<`from`: string>")
    found = [
        (way.partitions["hits"], [row[COLUMN]["from"] for row in between(made, way.since, ends).collect()])
        for way, ends in ways.stretches()
    ]
    # raw/1 was added after the first change
    assert found == [(4, ["raw/0:0", "raw/0:6", "a:b/2:2"]), (5, ["raw/0:7"]), (6, ["raw/0:90", "raw/1:3"])]
