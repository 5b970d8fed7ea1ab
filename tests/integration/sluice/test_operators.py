"""A transform that cannot run in its tier's mode is refused, with the operator's name, before
anything runs.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sluice.api import declarations, lineage_header, origins
from sluice.api.declarations import DeclarationError, Stream, Tier, Transform
from sluice.api.grouping import All, Direct, Fields
from sluice.api.lineage_header import WORDS
from sluice.checks.operators import check_tier, state_plan
from sluice.commands.validation import validate_tier
from sluice.records.joins import joined
from sluice.records.lineage import incoming, quarantined_by, reprocessed
from sluice.records.state_inputs import output_mode
from sluice_ops.model.tier import Kind, Mode
from tests.integration.sluice.stateful_pipeline import Sum, summed

pytestmark = pytest.mark.timeout(240)


def tier(transform, mode: Mode = Mode.REALTIME) -> Tier:
    return Tier(
        "mine",
        Kind.PROCESSING,
        (Stream("hits", "id string, n bigint"),),
        transform,
        outputs=(Stream("out", "id string"),),
        mode=mode,
    )


def with_names(hits: DataFrame) -> DataFrame:
    return hits.join(hits.sparkSession.createDataFrame([("a", "A")], "id string, name string"), "id", "left")


def with_names_sent_to_all(hits: DataFrame) -> DataFrame:
    return hits.join(
        F.broadcast(hits.sparkSession.createDataFrame([("a", "A")], "id string, name string")), "id", "left"
    )


def aggregates(hits: DataFrame) -> DataFrame:
    return hits.groupBy("id").agg(F.first("lineage").alias("lineage"))


def calls_python(hits: DataFrame) -> DataFrame:
    return hits.withColumn("n", F.udf(lambda n: n, "bigint")("n"))


@pytest.mark.parametrize(
    ("invalid_tier", "message"),
    [
        (
            tier(aggregates),
            r'tier "mine": groupBy\(…\) cannot run in mode realtime.*state=State',
        ),
        (
            tier(calls_python),
            'tier "mine": a Python function .* cannot run in mode realtime; write it with pyspark',
        ),
        (
            tier(lambda hits: hits.dropDuplicates(["id"])),
            "dropDuplicates or distinct cannot run in mode realtime.*replays are dropped already",
        ),
        (
            tier(lambda hits: hits.orderBy("id")),
            "orderBy or sort cannot run in mode realtime.*sort where the rows are read",
        ),
        (tier(aggregates, Mode.BATCH), r"groupBy\(…\) does not keep records one by one"),
        (tier(lambda hits: hits.groupBy("id").count()), r"groupBy\(…\) cannot run in mode realtime"),
        (tier(lambda hits: hits.limit(3)), "for the first n of a group, take a tier with state"),
        (tier(lambda hits: hits.where("n > 0")), r"leaves records out \(where, .*\); set filters=True"),
        (
            tier(lambda hits: hits.join(hits.sparkSession.createDataFrame([("a",)], "id string"), "id")),
            r"leaves records out \(an inner join\)",
        ),
        (tier(with_names), r"joins a table without F.broadcast, .* write F.broadcast\(table\)"),
        (tier(with_names, Mode.BATCH), "records that come out after later ones would be dropped as replays"),
        (tier(lambda hits: hits.union(hits)), "a union reads the records twice"),
        (
            tier(lambda hits: hits.union(hits), Mode.BATCH),
            "some records would come out after later ones and be dropped as replays",
        ),
        (tier(lambda hits: hits.select("id")), 'the transform dropped the column "lineage"'),
        (
            tier(lambda hits: hits.withColumn("n", F.explode(F.array("n", "n")))),
            r'several records of one \(explode\).* a column "index"',
        ),
        (tier(lambda _hits: None), "the transform returned NoneType; return a DataFrame"),
    ],
)
def test_an_operator_is_refused_by_name(session: SparkSession, invalid_tier: Tier, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        check_tier(session, invalid_tier)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_join_with_a_broadcast_table_is_accepted(session: SparkSession, mode: Mode) -> None:
    check_tier(session, tier(with_names_sent_to_all, mode))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            (Stream("out", grouping=Fields("who")),),
            'the grouping of "out" needs who, but the transform returns id, n',
        ),
        ((Stream("out"), Stream("other")), 'a column "to" that names one of out, other'),
    ],
)
def test_an_output_without_the_needed_column_is_refused(
    session: SparkSession, outputs: tuple[Stream, ...], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        check_tier(session, replace(tier(lambda hits: hits), outputs=outputs))


@pytest.mark.parametrize("kind", ["tinyint", "int", "bigint", "string", "double", "decimal(3,1)", "boolean"])
def test_a_partition_is_a_whole_number(session: SparkSession, kind: str) -> None:
    invalid_tier = replace(
        tier(lambda hits: hits.withColumn("place", F.col("n").cast(kind))),
        outputs=(Stream("out", grouping=Direct("place")),),
    )
    if kind.endswith("int"):
        check_tier(session, invalid_tier)
    else:
        message = (
            'tier "mine": the column place chooses the partition of "out", '
            rf"but its type is {re.escape(kind)}, not an integer; cast the column"
        )
        with pytest.raises(DeclarationError, match=message):
            check_tier(session, invalid_tier)


KAFKA_ROW = (
    "topic string, partition int, offset bigint, key binary, value binary, timestamp timestamp,"
    " headers array<struct<key string, value binary>>"
)


def test_records_of_two_inputs_never_have_the_same_origin(session: SparkSession) -> None:
    now = datetime.now(UTC)

    def rows(*topics: str, headers: list[tuple[str, bytes]] | None = None) -> DataFrame:
        return session.createDataFrame(
            [(topic, 2, 7, None, b"{}", now, headers) for topic in topics], KAFKA_ROW
        )

    def names(inputs: tuple[Stream, ...], records: DataFrame) -> list[tuple[str, str]]:
        rows_read = (
            incoming(records, replace(tier(lambda hits: hits), inputs=inputs))
            .select("lineage.origin", "lineage.path")
            .collect()
        )
        return [(row.origin, row.path) for row in rows_read]

    outside = (Stream("a"), Stream("b"))
    assert names(outside, rows("a", "b")) == [("2:7", "2"), ("b/2:7", "b:2")]
    assert [origins.raw_origin(["a", "b"], stream, 2, 7) for stream in "ab"] == ["2:7", "b/2:7"]
    between = (Stream("a", "id string"), Stream("b", "id string"))
    headers_of_tier = [("origin", b"0:5:1"), ("path", b"0/3")]
    assert names(between, rows("a", "b", headers=headers_of_tier)) == [
        ("0:5:1", "0/3/2"),
        ("0:5:1&b", "0/3/b:2"),
    ]
    assert [origins.origin_in_tier(["a", "b"], stream, "0:5:1") for stream in "ab"] == ["0:5:1", "0:5:1&b"]
    assert names((Stream("a", "id string"),), rows("a", headers=headers_of_tier)) == [("0:5:1", "0/3/2")]


def test_one_header_and_five_are_read_alike(session: SparkSession) -> None:
    reader = replace(tier(lambda hits: hits), inputs=(Stream("a", "id string"), Stream("b", "id string")))
    lineages = [
        ("0:5:1", "0/3", "raw/0:5", "entry/3.1", "1764450000123"),
        ("a.b/2:7&c_d", "1/c_d:2/again:2:7&c_d", "c_d/1:0", "counts.replay-3/1", "9"),
    ]
    now = datetime.now(UTC)

    def read(headers: list[list[tuple[str, bytes]] | None]) -> list[dict[str, Any]]:
        rows = [
            (topic, 2, offset, None, b"{}", now, own)
            for offset, own in enumerate(headers)
            for topic in ("a", "b")
        ]
        result = incoming(session.createDataFrame(rows, KAFKA_ROW), reader)
        return [row.lineage.asDict() for row in result.select("lineage").collect()]

    def with_header(*, packed: bool, after: bool = False) -> list[list[tuple[str, bytes]] | None]:
        words = (dict(zip(WORDS, lineage, strict=True)) for lineage in lineages)
        own = (list(lineage_header.headers(each, packed=packed).items()) for each in words)
        return [[("acked", b"3"), *each] if after else [*each, ("acked", b"3")] for each in own]

    five = read(with_header(packed=False))
    assert five == read(with_header(packed=True)) == read(with_header(packed=True, after=True))
    assert [(row["origin"], row["path"], row["t0"]) for row in five] == [
        ("0:5:1", "0/3/2", "1764450000123"),
        ("0:5:1&b", "0/3/b:2", "1764450000123"),
        ("a.b/2:7&c_d", "1/c_d:2/again:2:7&c_d/2", "9"),
        ("a.b/2:7&c_d&b", "1/c_d:2/again:2:7&c_d/b:2", "9"),
    ]
    arrived = str(int(now.timestamp() * 1000))
    for without in (None, [], [("reason", b"x")], [("lineage", b"")], [("lineage", None)]):
        names = [(row["origin"], row["path"], row["t0"]) for row in read([without])]
        assert names == [("2:0", "2", arrived), ("2:0&b", "b:2", arrived)], without


@pytest.mark.parametrize("packed", [False, True])
def test_each_reprocessing_from_quarantine_has_its_own_lineage(
    session: SparkSession,
    packed: bool,
) -> None:
    now = datetime.now(UTC)

    def quarantined_row(by: str, path: str) -> tuple[object, ...]:
        words = {"origin": "2:17&back", "path": path, "from": "back/3:4", "by": by, "t0": "7"}
        headers = lineage_header.headers(words, packed=packed) | {"reason": b"bad"}
        return (
            "back.quarantine",
            1,
            0,
            b"k",
            b"{}",
            now,
            [*headers.items()],
        )

    mine = replace(
        tier(lambda hits: hits), inputs=(Stream("hits", "id string"), Stream("back", "id string", rounds=3))
    )
    first, again = (
        quarantined_row("mine/3.1", "2/back:3"),
        quarantined_row("mine.replay-12/1", "2/back:3/again:2:17&back"),
    )
    records = session.createDataFrame(
        [first, again, quarantined_row("other/3", "2/back:3"), quarantined_row("mine-too/3", "2/back:3")],
        KAFKA_ROW,
    )
    rows = [row.lineage for row in reprocessed(records.where(quarantined_by(mine)), mine).collect()]
    assert {(row["origin"], row["path"], row["from"]) for row in rows} == {
        ("2:17&back", "2/back:3/again:2:17&back", "back/3:4")
    }
    assert [(row["stream"], row["partition"], row["round"]) for row in rows] == [("back", 3, 1)] * 2
    assert all(int(row["t0"]) > now.timestamp() * 1000 for row in rows), "the reprocessed record arrives now"


def test_a_tier_with_filters_may_leave_records_out(session: SparkSession) -> None:
    check_tier(session, replace(tier(lambda hits: hits.where("n > 0")), filters=True))


def test_a_batch_tier_may_call_python(session: SparkSession) -> None:
    check_tier(session, tier(calls_python, Mode.BATCH))


HOLDING = declarations.load("tests.integration.sluice.stateful_pipeline")


@pytest.mark.parametrize(
    "name", ["by-window", "sliding", "busiest", "pairs", "bought", "sold", "paid", "summed"]
)
def test_a_tier_with_state_may_keep_it(session: SparkSession, name: str) -> None:
    check_tier(session, HOLDING.tier(name))


def sessions(hits: DataFrame) -> DataFrame:
    return summary(hits.groupBy("who", F.session_window("time", "10 seconds").alias("span")).count())


def summed_twice(hits: DataFrame) -> DataFrame:
    named = hits.groupBy("who").transformWithState(
        Sum(), "who string, id bigint, time timestamp", "Append", "EventTime", eventTimeColumnName="time"
    )
    return summed(named)


@pytest.mark.parametrize(
    ("transform", "mode"), [(sessions, "append"), (summed_twice, "append"), (summed, "update")]
)
def test_rows_that_grow_or_go_on_come_when_they_are_final(
    session: SparkSession, transform, mode: str
) -> None:
    own = replace(HOLDING.tier("summed"), transform=transform)
    check_tier(session, own)
    assert output_mode(state_plan(session, own)) == mode


def summary(counted: DataFrame) -> DataFrame:
    return counted.select("who", *(F.lit(None).alias(name) for name in ("since", "hits", "ids")))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            lambda hits: summary(hits.orderBy("id")),
            'tier "by-window": orderBy or sort cannot run on a stream',
        ),
        (lambda hits: summary(hits.limit(3)), "limit cannot run on a stream; choose records with `where`"),
        (
            lambda hits: summary(hits.join(hits.select("id"), "id", "full")),
            'joins the input "hits" with itself, but a join needs two inputs; .* F.max_by',
        ),
        (
            lambda hits: summary(hits.groupBy("who").count().groupBy("who").count()),
            "an aggregation after another step with state needs windows",
        ),
        (
            lambda hits: summary(summed(hits).groupBy("who").count()),
            "an aggregation after another step with state needs windows.*both steps by transformWithState",
        ),
        (
            lambda hits: hits.groupBy("who").count(),
            'the table "windows" needs since, hits, ids, but the transform returns who, count',
        ),
        (lambda _hits: None, "the transform returned NoneType"),
    ],
)
def test_state_that_spark_cannot_keep_is_refused_by_name(
    session: SparkSession, transform, message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        check_tier(session, replace(HOLDING.tier("by-window"), transform=transform))


def plain(hits: DataFrame, buys: DataFrame) -> DataFrame:
    return hits.join(buys, hits["id"] == buys["hit"]).select(hits["id"], buys["id"].alias("buy"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"transform": plain},
            (
                "an inner join of two inputs would not count the records without a partner; "
                r"use `joined` \(from sluice import joined\)"
            ),
        ),
        ({"filters": False}, "the join leaves out records without a partner; set filters=True"),
    ],
)
def test_a_join_that_leaves_records_out_uncounted_is_refused(
    session: SparkSession, changes, message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        check_tier(session, replace(HOLDING.tier("bought"), **changes))


def pairs(hits: DataFrame, buys: DataFrame) -> DataFrame:
    return joined(hits, buys, hits["id"] == buys["hit"], within=(0, 10), how="inner")


def after_a_join(rows: Callable[[DataFrame, DataFrame], DataFrame]) -> Transform:
    """Return a transform of rows whose columns are those of the tier `paid`."""

    def transform(hits: DataFrame, buys: DataFrame, pays: DataFrame) -> DataFrame:
        del pays
        all_columns = F.to_json(F.struct("*")).alias("who")
        return rows(hits, buys).select(
            all_columns, *(F.lit(None).alias(name) for name in ("since", "hits", "ids"))
        )

    return transform


@pytest.mark.parametrize(
    "rows",
    [
        lambda hits, buys: pairs(hits, buys).groupBy(F.window("joined_time", "1 minute")).count(),
        lambda hits, buys: (
            pairs(hits, buys).groupBy("hit", F.session_window("joined_time", "1 minute")).count()
        ),
        lambda hits, buys: pairs(hits, buys).select(hits["id"], "joined_time").dropDuplicates(["id"]),
    ],
)
def test_windows_and_duplicates_may_follow_a_join(session: SparkSession, rows) -> None:
    own = replace(HOLDING.tier("paid"), transform=after_a_join(rows))
    check_tier(session, own)
    assert output_mode(state_plan(session, own)) == "append"


def with_a_copy(hits: DataFrame, buys: DataFrame) -> DataFrame:
    hits = hits.withColumn("seen", F.col("time"))
    return pairs(hits, buys).select(hits["id"], "seen", "joined_time").dropDuplicates(["id"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            lambda hits, buys: pairs(hits, buys).groupBy("hit").count(),
            "needs windows.* or over the joined_time of a join",
        ),
        (with_a_copy, r"several times .*\(seen, joined_time\), .*F.timestamp_micros\(F.unix_micros"),
        (
            lambda hits, buys: pairs(pairs(hits, buys).select(hits["id"], hits["time"]), buys),
            r'one side \(id, time\) lacks the time of its rows; keep "time" .* "joined_time" of a join',
        ),
        (
            lambda hits, buys: pairs(hits, buys).groupBy(F.window("time", "1 minute")).count(),
            'the rows of a join have the times of both sides; use "joined_time", the later one',
        ),
        (
            lambda hits, buys: pairs(hits, buys).groupBy(F.window(hits["time"], "1 minute")).count(),
            r'A window after `joined` takes F.window\("joined_time", …\). .* joined with itself',
        ),
        (
            lambda hits, buys: joined(hits, buys, hits["id"] == buys["hit"], how="inner"),
            r"within=\(-R, L\) keeps a right row for R seconds and a left row for L, as a TTL",
        ),
        (
            lambda hits, buys: pairs(hits, buys.drop("time")),
            r'one side \(id, hit, at\) lacks the time of its rows; keep "time"',
        ),
    ],
)
def test_what_is_wrong_about_a_join_is_refused_with_advice(session: SparkSession, rows, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        validate_tier(session, replace(HOLDING.tier("paid"), transform=after_a_join(rows)))


def test_the_counts_of_former_releases_are_still_selected(session: SparkSession) -> None:
    own = HOLDING.tier("bought")

    def transform(hits: DataFrame, buys: DataFrame) -> DataFrame:
        rows = joined(hits, buys, hits["id"] == buys["hit"], within=(0, 10), how="left")
        return rows.select(hits["id"], buys["id"].alias("buy"), "unmatched")

    check_tier(session, replace(own, transform=transform))


@pytest.mark.parametrize(
    ("within", "how", "message"),
    [
        ((0, 10), "outer", "how='outer' is unknown; use inner, left or right"),
        ((10, 0), "left", "matches no records"),
    ],
)
def test_an_impossible_join_is_refused(session: SparkSession, within, how, message: str) -> None:
    nothing = session.createDataFrame([], "id bigint, time timestamp")
    with pytest.raises(DeclarationError, match=message):
        joined(nothing, nothing, F.expr("true"), within=within, how=how)


@pytest.mark.parametrize("name", ["entry", "enrich", "counts", "outbound"])
def test_the_shipped_tiers_pass(session: SparkSession, name: str) -> None:
    check_tier(session, declarations.load("hits").tier(name))


def test_which_tiers_make_exactly_one_of_each_record(session: SparkSession) -> None:
    shipped = declarations.load("hits")
    assert check_tier(session, shipped.tier("entry"))
    assert not check_tier(session, shipped.tier("enrich")), (
        "a campaign that is listed twice would make two records"
    )
    invalid_tier = replace(tier(lambda hits: hits), outputs=(Stream("copied", "id string", All()),))
    assert not check_tier(session, invalid_tier), "each partition gets a copy"
    assert not check_tier(
        session, tier(lambda hits: hits.select("*", F.posexplode(F.array("n", "n")).alias("index", "m")))
    )
