"""A transform that cannot run in its tier's mode is refused before anything runs, naming the operator."""

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ops.model.tier import Kind, Mode
from pipeline import declare
from pipeline.declare import DeclarationError, Stream, Tier
from pipeline.operators import check_tier

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    made = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    yield made
    made.stop()


def tier(transform, mode: Mode = Mode.REALTIME) -> Tier:
    return Tier("mine", Kind.PROCESSING, (Stream("hits", "id string, n bigint"),), transform, output=Stream("out", "id string"), mode=mode)


def aggregates(hits: DataFrame) -> DataFrame:
    return hits.groupBy("id").agg(F.first("lineage").alias("lineage"))


def calls_python(hits: DataFrame) -> DataFrame:
    return hits.withColumn("n", F.udf(lambda n: n, "bigint")("n"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (tier(aggregates), 'tier "mine": Aggregate cannot run in mode realtime'),
        (tier(calls_python), 'tier "mine": Python UDF cannot run in mode realtime'),
        (tier(lambda hits: hits.dropDuplicates(["id"])), "Deduplicate cannot run in mode realtime"),
        (tier(lambda hits: hits.orderBy("id")), "Sort cannot run in mode realtime"),
        (tier(aggregates, Mode.BATCH), "Aggregate does not keep records one by one"),
        (tier(lambda hits: hits.where("n > 0")), r"leaves records out \(Filter\); say so with filters=True"),
        (tier(lambda hits: hits.join(hits.sparkSession.createDataFrame([("a",)], "id string"), "id")), r"leaves records out \(Join\)"),
        (tier(lambda hits: hits.select("id")), 'its transform dropped the column "lineage"'),
        (tier(lambda _hits: None), "its transform returned NoneType; return a DataFrame"),
    ],
)
def test_it_is_refused_by_name(session: SparkSession, made: Tier, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        check_tier(session, made)


def test_a_tier_that_says_so_may_leave_records_out(session: SparkSession) -> None:
    check_tier(session, replace(tier(lambda hits: hits.where("n > 0")), filters=True))


def test_a_batch_tier_may_call_python(session: SparkSession) -> None:
    check_tier(session, tier(calls_python, Mode.BATCH))


@pytest.mark.parametrize("name", ["entry", "enrich", "counts", "outbound"])
def test_the_shipped_tiers_pass(session: SparkSession, name: str) -> None:
    check_tier(session, declare.load("pipeline.hits").tier(name))
