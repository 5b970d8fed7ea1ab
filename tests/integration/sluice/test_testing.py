"""`sluice.testing`: transforms run on given records in a local session."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

import hits
from sluice import DeclarationError, Fields, Kind, Latest, Mode, Quantum, State, Stream, Tier, joined
from sluice.testing import Record, run, run_batches
from tests.testing_session import end_session

HITS = Stream("hits", "id string, user string, at bigint", Fields("user"))
BUYS = Stream("buys", "hit string, price decimal(9,2), at bigint", Fields("hit"))
SIZE = Quantum(cpu=1, memory=950, threads=4)
MINUTE = 60_000

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", autouse=True)
def ended_session():
    """End the session and its JVM, so that other tests of this process may start their own."""
    yield
    end_session()


def tier(name, inputs, transform, **more):
    return Tier(name, Kind.PROCESSING, inputs, transform, quantum=SIZE, driver=SIZE, **more)


def by_user(hits):
    counted = hits.groupBy("user", F.window("time", "10 minutes")).count()
    return counted.select("user", F.col("window.start").alias("since"), F.col("count").alias("hits"))


COUNTS = tier(
    "by-user",
    (HITS,),
    by_user,
    sink=Latest("by_user", {"user": "text", "since": "timestamptz", "hits": "bigint"}, key=("user", "since")),
    state=State(lateness=60, time="at"),
)


def priced(hits, buys):
    pairs = joined(hits, buys, hits["id"] == buys["hit"], within=(0, 600), how="inner")
    return pairs.select(hits["id"], buys["price"])


PRICES = tier(
    "prices",
    (HITS, BUYS),
    priced,
    sink=Latest("prices", {"id": "text", "price": "numeric"}, key=("id",)),
    state=State(lateness=60, time="at"),
    filters=True,
)


PAYMENTS = Stream("payments", "buy string, at bigint", Fields("buy"))


def paid(hits, buys, payments):
    bought = joined(hits, buys, hits["id"] == buys["hit"], within=(0, 600), how="inner")
    rows = joined(bought, payments, buys["hit"] == payments["buy"], within=(0, 60), how="inner")
    by_minute = rows.groupBy(hits["user"], F.window("joined_time", "1 minute")).count()
    return by_minute.select("user", F.col("window.start").alias("since"), F.col("count").alias("buys"))


PAID = tier(
    "paid",
    (HITS, BUYS, PAYMENTS),
    paid,
    sink=Latest("paid", {"user": "text", "since": "timestamptz", "buys": "bigint"}, key=("user", "since")),
    state=State(lateness=60, time="at"),
    filters=True,
)


def test_the_example_checks_and_counts():
    entry, _, counts, _ = hits.PIPELINE.tiers
    good = '{"id": "a", "user": "u", "ad": "x", "kind": "BUY", "at": 12345}'
    checked = run(entry, [good, b"{", Record(good, datetime(1970, 1, 1, tzinfo=UTC))])
    assert [(row["id"], row["kind"], row["at"]) for row in checked.rows] == [("a", "buy", 12345)] * 2
    assert [row["reason"] for row in checked.quarantined] == ["broken JSON"]
    hit = {"id": "a", "user": "u", "ad": "x", "campaign": "c", "at": 12_345}
    counted = run(counts, [hit | {"kind": "buy"}, hit | {"kind": "view", "campaign": None}])
    window = datetime(1970, 1, 1, 0, 0, 10)  # noqa: DTZ001 - Spark returns the session's zone, UTC
    assert counted.rows == [{"campaign": "c", "window_start": window, "views": 0, "clicks": 0, "buys": 1}]
    assert [row["reason"] for row in counted.quarantined] == [
        "campaign is null, but is part of the key of campaign_counts"
    ]


def test_state_lasts_from_batch_to_batch_and_late_records_are_dropped():
    first = [{"id": "1", "user": "anna", "at": MINUTE}, {"id": "2", "user": "ben", "at": MINUTE}]
    late = Record({"id": "3", "user": "ben", "at": MINUTE}, datetime(1970, 1, 1, 0, 3, tzinfo=UTC))
    batches = run_batches(COUNTS, first, [{"id": "4", "user": "anna", "at": 2 * MINUTE}, late], [])
    assert [{row["user"]: row["hits"] for row in rows} for rows in batches] == [
        {"anna": 1, "ben": 1},
        {"anna": 2},
        {},
    ]


def test_inputs_are_joined_over_batches():
    batches = run_batches(
        PRICES,
        {"hits": [{"id": "1", "user": "anna", "at": MINUTE}]},
        {"buys": [{"hit": "1", "price": "9.50", "at": 2 * MINUTE}]},
    )
    assert [[(row["id"], str(row["price"])) for row in rows] for rows in batches] == [[], [("1", "9.50")]]


def test_pairs_are_joined_again_and_counted_in_windows():
    def at(minute, names=("1", "2")):
        hits = [{"id": name, "user": "anna", "at": minute * MINUTE} for name in names]
        buys = [{"hit": name, "price": "1.00", "at": minute * MINUTE + 1000} for name in names]
        return {"hits": hits, "buys": buys, "payments": [{"buy": names[0], "at": minute * MINUTE + 61_000}]}

    batches = run_batches(PAID, at(1), at(60, ("3",)), at(120, ("4",)))
    since = datetime(1970, 1, 1, 0, 2)  # noqa: DTZ001 - Spark returns the session's zone, UTC
    assert batches == [[], [], [{"user": "anna", "since": since, "buys": 1}]]


ANSI = "spark.sql.ansi.enabled"


def numbered(hits):
    return hits.select("id", F.col("user").cast("int").alias("number"), "at", "lineage")


NUMBERS = tier("numbers", (HITS,), numbered, outputs=(Stream("numbers", "id string, number int, at bigint"),))


def test_a_tiers_own_spark_settings_are_used_for_it_alone():
    record = {"id": "1", "user": "anna", "at": MINUTE}
    lenient = replace(NUMBERS, spark={ANSI: "false"})
    assert [row["number"] for row in run(lenient, [record]).rows] == [None]
    with pytest.raises(NumberFormatException):
        run(NUMBERS, [record])
    wrong = replace(NUMBERS, spark={ANSI: "perhaps"})
    with pytest.raises(DeclarationError, match=f'tier "numbers": Spark refuses the setting {ANSI}=perhaps'):
        run(wrong, [record])


def test_misuse_is_refused_with_the_correction():
    with pytest.raises(DeclarationError, match="has state: use run_batches"):
        run(COUNTS, [])
    with pytest.raises(DeclarationError, match="has no state: use run"):
        run_batches(hits.PIPELINE.tiers[0], [])
    with pytest.raises(DeclarationError, match='"hits" has no column usr; it has id, user, at'):
        run_batches(COUNTS, [{"usr": "anna"}])
    with pytest.raises(DeclarationError, match="reads hits, buys: give a dict of records by stream"):
        run_batches(PRICES, [])
    with pytest.raises(DeclarationError, match="does not read clicks, but hits, buys"):
        run_batches(PRICES, {"clicks": []})
    with pytest.raises(DeclarationError, match='a record of "hits" is a dict of columns, not str'):
        run_batches(COUNTS, ["{}"])
    only_good = Stream("good", "id string")
    drops = tier("drops", (HITS,), lambda hits: hits.where("id = '1'"), outputs=(only_good,), mode=Mode.BATCH)
    with pytest.raises(DeclarationError, match="filters=True"):
        run(drops, [{"id": "1"}])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(COUNTS, mode=Mode.REALTIME), 'tier "by-user": a sink is written in micro-batches; set mode'),
        (
            replace(COUNTS, sink=None, outputs=(HITS,)),
            "state needs a table that keeps the newest row of each key",
        ),
        (replace(COUNTS, state=State(60, time="when")), "state.time is 'when', which is not a column"),
        (
            replace(COUNTS, sink=Latest("ledger", {"user": "text"}, key=("user",))),
            "the sink's table \"ledger\" has the name of one of Sluice's own tables",
        ),
        (
            replace(COUNTS, inputs=(Stream("hits", "id strin, user string, at bigint"),)),
            'stream "hits": .*strin',
        ),
    ],
)
def test_a_tier_without_a_pipeline_is_refused_as_publishing_would(wrong, message):
    with pytest.raises(DeclarationError, match=message):
        run_batches(wrong, [])


def test_a_refusal_of_a_plan_names_the_tier(capfd):
    only_users = replace(NUMBERS, transform=lambda hits: hits.select("usr", "lineage"))
    with pytest.raises(DeclarationError, match=f'^tier "numbers": the transform fails at {__file__}:.*`usr`'):
        run(only_users, [])
    wrong_join = replace(
        PRICES, transform=lambda hits, buys: joined(hits, buys, None, within=(0, 1), how="full")
    )
    with pytest.raises(DeclarationError, match=r'^tier "prices": joined: how='):
        run_batches(wrong_join, {})
    counting = replace(
        hits.PIPELINE.tier("enrich"), transform=lambda enriched: enriched.groupBy("user").agg(F.count("*"))
    )
    with pytest.raises(
        DeclarationError, match=r'^tier "enrich": groupBy.* cannot run in mode realtime.*`Totals`'
    ):
        run(counting, [])

    def count_counts(hits):
        since = F.lit(0).cast("timestamp").alias("since")
        counted = hits.groupBy("user").count().groupBy("count").agg(F.count("*").alias("hits"))
        return counted.select(F.col("count").cast("string").alias("user"), since, "hits")

    with pytest.raises(DeclarationError, match=r'^tier "by-user": an aggregation after another step'):
        run_batches(replace(COUNTS, transform=count_counts), [])
    assert "QueryContextLogger" not in capfd.readouterr().err, "Spark repeats the error as JSON"
