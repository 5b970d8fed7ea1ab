"""Plans that a newcomer from Flink SQL, Kafka Streams or Spark would write.

Each refusal names what the author wrote, the rule, and what to write instead.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code
from pyspark.sql.window import Window

from sluice import (
    DeclarationError,
    Fields,
    Kind,
    Latest,
    Mode,
    Once,
    State,
    Stream,
    Tier,
    joined,
)
from sluice.commands.validation import validate_tier
from tests.lab import ROOT

HITS = Stream("hits", "id string, who string, n bigint, at bigint", Fields("id"))
BUYS = Stream("buys", "id string, hit string, cents bigint, at bigint", Fields("hit"))
OUT = (Stream("out", "id string"),)
TABLE = Latest("rows", {"who": "text", "n": "bigint"}, key=("who",))
ROWS = Once("rows", {"id": "text"})
JOINED = (
    r'; use `joined` \(from sluice import joined\): joined\(left, right, on, within=\(0, 600\), how="{}"\)'
)
FAILS = rf'tier "mine": the transform fails at {__file__}:\d+: '
ROW_BY_ROW = (
    "does not keep records one by one and in order, so Sluice could not tell replays from new records; "
)

pytestmark = pytest.mark.timeout(240)


def without_state(transform: Callable[..., DataFrame], **more: object) -> Tier:
    return Tier("mine", Kind.PROCESSING, (HITS,), transform, OUT, **more)  # type: ignore[arg-type]


def to_a_sink(transform: Callable[..., DataFrame]) -> Tier:
    return Tier("mine", Kind.OUTBOUND, (HITS,), transform, sink=ROWS)


def with_state(transform: Callable[..., DataFrame], *inputs: Stream) -> Tier:
    return Tier(
        "mine",
        Kind.PROCESSING,
        inputs or (HITS,),
        transform,
        sink=TABLE,
        state=State(60, time="at"),
        filters=True,
    )


def of_two(transform: Callable[..., DataFrame]) -> Tier:
    return with_state(transform, HITS, BUYS)


def names(records: DataFrame) -> DataFrame:
    return records.sparkSession.createDataFrame([("a", "A"), ("a", "B")], "id string, name string")


def sent(records: DataFrame) -> DataFrame:
    return F.broadcast(names(records))


def rows(result: DataFrame) -> DataFrame:
    return result.select(
        *(F.col(name) if name in result.columns else F.lit(None).alias(name) for name in ("who", "n"))
    )


def sql(records: DataFrame, query: str) -> DataFrame:
    return records.sparkSession.sql(query, hits=records, names=names(records))


def ranked(records: DataFrame) -> DataFrame:
    return records.withColumn("rank", F.row_number().over(Window.partitionBy("who").orderBy("n")))


def own_query(records: DataFrame) -> DataFrame:
    records.writeStream.foreachBatch(lambda _frame, _batch: None).start()
    return records


def own_stream(records: DataFrame) -> DataFrame:
    return records.sparkSession.readStream.format("rate").load()


def after(call: Callable[[DataFrame], object]) -> Callable[[DataFrame], DataFrame]:
    def transform(records: DataFrame) -> DataFrame:
        call(records)
        return records

    return transform


def pairs(hits: DataFrame, buys: DataFrame, how: str = "inner") -> DataFrame:
    return joined(hits, buys, hits["id"] == buys["hit"], within=(0, 60), how=how)  # type: ignore[arg-type]


def plain(how: str) -> Callable[..., DataFrame]:
    return lambda hits, buys: rows(hits.join(buys, hits["id"] == buys["hit"], how))


def refused(session: SparkSession, tier: Tier) -> str:
    with pytest.raises(DeclarationError) as error:
        validate_tier(session, tier)
    return str(error.value)


def matches(text: str, pattern: str) -> None:
    with pytest.raises(DeclarationError, match=pattern):
        raise DeclarationError(text)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            lambda hits: ranked(hits).where("rank = 1"),
            rf"a function .over\(Window…\) {ROW_BY_ROW}.*give the tier",
        ),
        (
            lambda hits: hits.agg(F.sum("n")),
            rf"an aggregation of all records \(agg, .*\) {ROW_BY_ROW}.*`Totals`",
        ),
        (lambda hits: hits.cube("who").count(), rf"cube, rollup or GROUPING SETS {ROW_BY_ROW}"),
        (
            lambda hits: hits.groupBy("who").pivot("id", ["a"]).count(),
            rf"pivot {ROW_BY_ROW}.*name the values",
        ),
        (lambda hits: hits.groupBy("who").pivot("id").count(), rf"{FAILS}pivot needs all records; name"),
        (lambda hits: hits.unpivot(["id"], ["n", "at"], "k", "v"), rf"unpivot, .* {ROW_BY_ROW}.*posexplode"),
        (
            lambda hits: hits.union(hits),
            r'a union reads the records twice, .* posexplode and a column "index"',
        ),
        (
            lambda hits: hits.join(hits.select("id"), "id"),
            "a self-join reads the records twice, .*transformWith",
        ),
        (
            lambda hits: hits.unionByName(names(hits), allowMissingColumns=True),
            "union adds rows of a table, which no record made; send them as records of an input",
        ),
        (
            lambda hits: hits.unionByName(own_stream(hits), allowMissingColumns=True),
            "a stream of its own .*inputs",
        ),
        (
            own_stream,
            r"a stream of its own \(readStream\), .*; declare a Stream, and name it in the tier's inputs",
        ),
        (own_query, "starts a query of its own .*; return the DataFrame, .* write a sink of your own"),
        (after(lambda hits: hits.collect()), rf"{FAILS}the transform asks for a result .*; remove the call"),
        (after(lambda hits: hits.toPandas()), rf"{FAILS}the transform asks for a result"),
        (lambda hits: hits.cache(), rf"{FAILS}.* or keeps one \(cache, checkpoint\)"),
        (
            after(lambda hits: hits.write.parquet("/nowhere")),
            rf"{FAILS}`write` cannot be called on a stream; return",
        ),
        (lambda hits: hits.join(sent(hits), "id"), r"leaves records out \(an inner join\); set filters=True"),
        (lambda hits: hits.join(sent(hits), "id", "anti"), r"leaves records out \(a left_anti join\)"),
        (lambda hits: hits.dropna(), r"leaves records out \(where, filter, dropna or F.window\)"),
        (
            lambda hits: hits.join(sent(hits), "id", "full"),
            "a full join would keep rows of the table; .*how='left'",
        ),
        (lambda hits: hits.join(sent(hits), "id", "right"), "a right join would keep rows of the table"),
        (lambda hits: sent(hits).join(hits, "id", "left"), "a left join would keep rows of the table"),
        (lambda hits: names(hits).join(F.broadcast(hits), "id", "right"), r"write F.broadcast\(table\)"),
        (
            lambda hits: hits.join(sent(hits), hits["id"] == F.col("name"), "left"),
            r'returns id twice; .* drop that of the table: .drop\(table\["id"\]\)',
        ),
        (lambda hits: hits.withColumn("lineage", F.lit("x")), 'the transform changed the column "lineage"'),
        (
            lambda hits: hits.select("idd", "lineage"),
            rf"{FAILS}there is no column `idd`; the nearest are `id`",
        ),
        (lambda hits: sql(hits, "select * form {hits}"), rf"{FAILS}ParseException: .* Syntax error"),
        (
            lambda hits: sql(hits, "select * from {hits} where id in (select id from {names})"),
            r"IN with a subquery is a join, .*; write records.join\(F.broadcast\(table\)",
        ),
        (
            lambda hits: sql(hits, "with a as (select * from {hits}) select * from a"),
            rf"WITH … AS .* {ROW_BY_ROW}write the query where it is used",
        ),
        (
            lambda hits: sql(hits, "select * from {hits} where n > (select max(n) from {hits})"),
            rf"{FAILS}a subquery .* cannot read records; join two inputs",
        ),
        (
            lambda hits: hits.withWatermark("at", "1 minute"),
            rf"{FAILS}withWatermark is not needed; remove it",
        ),
        (lambda hits: hits.withColumn("i", F.monotonically_increasing_id()), "a record has its own name"),
        (
            lambda hits: hits.observe("o", F.count("*").alias("c")),
            f"observe {ROW_BY_ROW}count with a counter",
        ),
        (lambda hits: hits.zipWithIndex(), f"zipWithIndex {ROW_BY_ROW}"),
        (
            lambda _hits, _buys: None,
            r"has other parameters \(missing .*\); it gets one DataFrame with the records",
        ),
        (lambda _hits: None, "the transform returned NoneType; return a DataFrame"),
    ],
)
def test_a_plan_without_state_is_refused_with_words_that_teach(
    session: SparkSession, transform: Callable[..., DataFrame], message: str
) -> None:
    matches(refused(session, without_state(transform)), message)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            ranked,
            r"a function .over\(Window…\) cannot run on a stream; .* F.max_by or F.min_by .* the first n",
        ),
        (lambda hits: hits.orderBy("n"), "orderBy or sort cannot run on a stream; remove it"),
        (
            lambda hits: hits.groupBy("who").pivot("id", ["a"]).count(),
            r"pivot cannot run on a stream; name .*F.when",
        ),
        (
            lambda hits: hits.groupBy("who").agg(F.countDistinct("id").alias("n")),
            "F.countDistinct cannot run on a stream; write F.approx_count_distinct",
        ),
        (lambda hits: hits.join(hits.select("id"), "id"), 'joins the input "hits" with itself'),
        (lambda hits: hits.join(hits.select("id"), "id", "full"), 'joins the input "hits" with itself'),
        (lambda hits: hits.join(own_stream(hits), F.col("value") == F.col("n")), "a stream of its own"),
        (lambda hits: hits.join(names(hits), "id", "full"), "keeps no rows of the table .*how='left'"),
        (lambda hits: names(hits).join(hits, "id", "left"), "keeps no rows of the table"),
        (
            lambda hits: hits.withWatermark("time", "1 minute"),
            r"withWatermark is not needed; .*State\(lateness=…",
        ),
        (
            lambda hits: hits.groupBy(F.window("at", "1 minute")).count(),
            rf"{FAILS}a window needs a time: .*`time`",
        ),
        (
            lambda hits: hits.groupBy(F.window("time", "1 minute"), F.window("time", "1 hour")).count(),
            rf"{FAILS}groupBy takes one F.window",
        ),
        (
            lambda hits: hits.select("who", "n", "lineage"),
            f"{FAILS}a tier with state has no column `lineage`",
        ),
        (
            lambda hits: hits.mapInPandas(lambda frames: frames, "who string, n long"),
            "write a function of columns",
        ),
        (own_query, "starts a query of its own"),
    ],
)
def test_a_plan_with_state_is_refused_with_words_that_teach(
    session: SparkSession, transform: Callable[..., DataFrame], message: str
) -> None:
    matches(refused(session, with_state(lambda hits: rows(transform(hits)))), message)


def test_a_transform_with_other_parameters_is_told_what_it_gets(session: SparkSession) -> None:
    text = refused(session, with_state(pairs))
    assert "has other parameters (missing a required argument: 'buys')" in text
    assert text.endswith("it gets one DataFrame for each input: hits")


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (plain("inner"), f"an inner join of two inputs would not count .*{JOINED.format('inner')}"),
        (plain("left"), f"a left join of two inputs .*{JOINED.format('left')}"),
        (plain("right"), f"a right join of two inputs .*{JOINED.format('right')}"),
        (plain("full"), "a full join of two inputs needs a bound of time, .*INTERVAL 10 MINUTES"),
        (
            lambda hits, buys: rows(hits.join(buys, hits["id"] == buys["hit"], "anti")),
            f"a left_anti join of two inputs .*{JOINED.format('left')}, and a column that tells",
        ),
        (lambda hits, buys: rows(hits.crossJoin(buys)), "a cross join of two inputs .* where `on` says"),
        (
            lambda hits, buys: pairs(hits, buys).groupBy("who").agg(F.count("*").alias("n")),
            "an aggregation after another step with state needs windows, .* over the joined_time of a join",
        ),
        (
            lambda hits, buys: joined(pairs(hits, buys), buys, F.lit(True), within=(0, 60), how="inner"),
            'joins the input "buys" with itself',
        ),
        (
            lambda hits, buys: pairs(hits, buys).select("who", "id"),
            rf"{FAILS}both sides .* the column `id`; name",
        ),
        (lambda hits, buys: joined(hits, buys, F.lit(True), how="inner"), f"{FAILS}joined needs `within`"),  # type: ignore[call-arg]
    ],
)
def test_a_join_of_inputs_is_refused_with_words_that_teach(
    session: SparkSession, transform: Callable[..., DataFrame], message: str
) -> None:
    matches(refused(session, of_two(transform)), message)


@pytest.mark.parametrize(
    "table",
    [
        lambda table: table.dropDuplicates(["id"]),
        lambda table: table.groupBy("id").agg(F.max("name").alias("name")),
        lambda table: table.orderBy("name").limit(1),
        lambda table: table.where("name = 'A'"),
        lambda table: table.union(table),
    ],
)
def test_a_table_may_be_prepared_for_its_join(
    session: SparkSession, table: Callable[[DataFrame], DataFrame]
) -> None:
    def transform(hits: DataFrame) -> DataFrame:
        return hits.join(F.broadcast(table(names(hits))), "id", "left")

    validate_tier(session, without_state(transform))
    validate_tier(session, to_a_sink(transform))
    validate_tier(session, with_state(lambda hits: rows(transform(hits))))


def test_a_realtime_tier_is_told_to_load_a_prepared_table(session: SparkSession) -> None:
    def transform(hits: DataFrame) -> DataFrame:
        return hits.join(F.broadcast(names(hits).dropDuplicates(["id"])), "id", "left")

    text = refused(session, without_state(transform, mode=Mode.REALTIME))
    assert "dropDuplicates or distinct, on a table that the transform joins, is not allowed" in text


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda hits: hits.union(hits), "a union reads the records twice"),
        (own_query, f"{FAILS}the transform starts a query of its own"),
        (lambda hits: hits.join(sent(hits), "id", "full"), "a full join would keep rows of the table"),
    ],
)
def test_a_tier_with_a_sink_is_refused_alike(
    session: SparkSession, transform: Callable[..., DataFrame], message: str
) -> None:
    matches(refused(session, to_a_sink(transform)), message)


def test_a_value_of_a_subquery_and_of_a_table_is_accepted(session: SparkSession) -> None:
    query = "select *, (select max(name) from {names}) as last from {hits}"
    validate_tier(session, without_state(lambda hits: sql(hits, query)))


def test_the_page_about_limits_quotes_a_refusal(session: SparkSession) -> None:
    page = (ROOT / "docs" / "limits-of-spark.md").read_text()
    quoted = next(part for part in page.split("\n\n") if part.startswith("    tier "))
    best = replace(with_state(lambda hits: rows(ranked(hits))), name="best")
    assert " ".join(quoted.split()) == refused(session, best)


def test_records_of_two_inputs_may_come_in_either_order(session: SparkSession) -> None:
    def transform(hits: DataFrame, buys: DataFrame) -> DataFrame:
        both = joined(hits, buys, hits["id"] == buys["hit"], within=(-3600, 3600), how="inner")
        return both.select("who", "n", "unmatched")

    assert validate_tier(session, of_two(transform))
