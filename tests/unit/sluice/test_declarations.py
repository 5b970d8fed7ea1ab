"""Errors in declarations name the tier and the correction."""

import re
from dataclasses import replace

import pytest

from hits import PIPELINE
from sluice.api.declarations import (
    DeclarationError,
    JobTable,
    Pipeline,
    State,
    Stream,
    Tier,
    check_alone,
    load,
)
from sluice.api.grouping import Fields, Global, Shuffle
from sluice.sinks.http import Post
from sluice.sinks.kafka_topic import KafkaTopic
from sluice.sinks.table import Latest, Once, ParquetFiles, Totals, definition, primary_key
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode, Standby

A, B, C = Stream("a"), Stream("b", "id string"), Stream("c", "id string")
TABLE = Once("rows", {"id": "text"})
OTHER = Once("others", {"id": "text"})
SERVICE = Post("bell", {"id": "text"}, "http://127.0.0.1/bell")
UNMATCHED = Latest("left", {"id": "text", "unmatched": "boolean"}, key=("id",))
NEWEST = Latest("newest", {"id": "text"}, key=("id",))
OF_SLUICE = "has the name of one of Sluice's own tables; give the sink another name"
BACK = Stream("back", "id string", rounds=3)


def same(records):
    return records


def test_entry_and_outbound_tiers_have_larger_weights_in_hits():
    weights = {
        tier.kind: {
            (other.quantum.io, other.quantum.network) for other in PIPELINE.tiers if other.kind is tier.kind
        }
        for tier in PIPELINE.tiers
    }
    (processing,) = weights.pop(Kind.PROCESSING)
    assert weights == {kind: {(3 * processing[0], 3 * processing[1])} for kind in (Kind.ENTRY, Kind.OUTBOUND)}
    sizes = {(tier.quantum.cpu, tier.quantum.memory, tier.quantum.threads) for tier in PIPELINE.tiers}
    assert len(sizes) == 1, "slots of all tiers have one size, so that any of them fits into free room"


def tier(name="first", inputs=(A,), **more):
    return Tier(name, Kind.PROCESSING, inputs, same, **more)


def changing(*outputs):
    return tier(outputs=outputs, sink=NEWEST, state=State(60))


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ([tier("First", outputs=(B,))], 'tier "First": the name must be lower case'),
        ([tier(inputs=(), outputs=(B,))], "the tier reads nothing"),
        ([tier()], "either output streams or a sink"),
        ([tier(outputs=(B,), sink=TABLE)], "either output streams or a sink"),
        ([tier(sink=TABLE, mode=Mode.REALTIME)], "set mode=Mode.BATCH"),
        ([tier(outputs=(B,), standby=Standby.HOT)], "a hot standby is for realtime tiers"),
        (
            [tier(outputs=(B,), light=True, quantum=Quantum(cpu=0.5))],
            "a light tier has no workers; leave out its quantum, and set its driver",
        ),
        ([tier(sink=TABLE, interval=5.0)], "interval must be from 0.1 to 2 s"),
        ([tier(outputs=(B,), mode=Mode.REALTIME, interval=0.5)], "interval is for micro-batches"),
        ([tier(outputs=(B,), delivery=Delivery.EXACTLY_ONCE)], "exactly-once needs a sink that is a table"),
        (
            [tier(outputs=(B,), delivery=Delivery.AT_MOST_ONCE)],
            "at-most-once is for a sink that is a service",
        ),
        ([tier(sink=TABLE, delivery=Delivery.AT_MOST_ONCE)], "at-most-once is for a sink that is a service"),
        (
            [tier(sink=SERVICE, delivery=Delivery.AT_MOST_ONCE)],
            "limit the batch: set max_offsets to at most 1000",
        ),
        ([tier(sink=UNMATCHED, state=State(60))], 'the table has a column "unmatched"'),
        ([tier(inputs=(A, B), outputs=(C,)), tier("second", outputs=(B,))], "different columns"),
        ([tier(outputs=(B,), holds=False)], "no tier writes its inputs, so its lag throttles no entry"),
        ([tier(inputs=(C,), outputs=(B,))], 'no tier writes the input "c"; streams that tiers write: b'),
        ([tier(outputs=(B,)), tier(outputs=(C,))], 'tier "first": declared more than once'),
        (
            [tier(outputs=(B,)), tier("second", outputs=(B,))],
            'tier "second": tier "first" already writes the stream "b"',
        ),
        (
            [tier(inputs=(C,), outputs=(B,)), tier("second", inputs=(B,), outputs=(C,))],
            "first → second → first form a circle; set `rounds`",
        ),
        (
            [tier(sink=TABLE), tier("second", sink=TABLE)],
            'tier "second": tier "first" already writes the sink "rows"',
        ),
        (
            [tier(outputs=(B,)), tier("second", inputs=(replace(B, columns="n int"),), sink=TABLE)],
            'stream "b" has two different declarations',
        ),
        (
            [tier(inputs=(replace(A, grouping=Shuffle()),), outputs=(B,))],
            'stream "a": its senders outside choose the partitions',
        ),
        ([tier(inputs=(BACK,), outputs=(BACK, C))], "the first input must not be a stream that leads back"),
        (
            [tier(outputs=(B,), spark={"spark.executor.memory": "4g"})],
            "the Spark setting spark.executor.memory is not one of spark.sql.* and spark.hadoop.*",
        ),
        (
            [tier(outputs=(B,), spark={"spark.sql.streaming.pollingDelay": "1s"})],
            "the Spark setting spark.sql.streaming.pollingDelay belongs to Sluice",
        ),
        (
            [tier(outputs=(B,), spark={"spark.sql.ansi.enabled": False})],
            "the Spark setting spark.sql.ansi.enabled is False; write it as a text, such as 'False'",
        ),
        ([tier(sink=NEWEST)], "give the tier both state and a sink `Latest`, or neither"),
        ([tier(sink=TABLE, state=State(60))], "give the tier both state and a sink `Latest`, or neither"),
        (
            [tier(outputs=(B,), state=State(60), mode=Mode.REALTIME)],
            "give the tier both state and a sink `Latest`, or neither",
        ),
        ([changing(B)], "a row of a table has no input record that could choose its partition"),
        (
            [changing(replace(B, grouping=Fields("id")), replace(C, grouping=Global()))],
            "a tier with state writes one stream",
        ),
        ([changing(replace(BACK, grouping=Global()))], "cannot come from a tier with state"),
        (
            [changing(Stream("more", "id string, n bigint", Fields("who")))],
            'gets rows of the table "newest", which lacks n, who',
        ),
        ([tier(sink=NEWEST, state=State(-1))], "state.lateness is a number of seconds, at least 0"),
        (
            [tier(outputs=(B,)), tier("second", (B,), sink=NEWEST, state=State(60, "at"))],
            "state.time is 'at', which is not a column of every",
        ),
        (
            [tier(sink=NEWEST, state=State(60, "id"))],
            "state.time is 'id', which is not a column of every input",
        ),
        (
            [tier(sink=Once("ledger", {"id": "text"}))],
            f'tier "first": the sink\'s table "ledger" {OF_SLUICE}',
        ),
        (
            [tier(sink=Totals("marks", {"id": "text"}, key=("id",)))],
            f'tier "first": the sink\'s table "marks" {OF_SLUICE}',
        ),
        (
            [tier(sink=Latest("trail", {"id": "text"}, key=("id",)), state=State(60))],
            f'tier "first": the sink\'s table "trail" {OF_SLUICE}',
        ),
        (
            [tier(sink=Once("ledger_at", {"id": "text"}))],
            'tier "first": the sink\'s table "ledger_at" has the name of an index of Sluice\'s own tables',
        ),
        (
            [tier(sink=NEWEST, state=State(60)), tier("second", sink=Once("newest_refused", {"id": "text"}))],
            'tier "second": the sink\'s table "newest_refused" has the name of the table that tier "first"',
        ),
        (
            [tier(sink=Once("rows_batch", {"id": "text"})), tier("second", sink=TABLE)],
            'tier "second": the sink\'s index "rows_batch" has the name of the table that tier "first"',
        ),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_tier(tiers, message):
    with pytest.raises(DeclarationError, match=message):
        Pipeline(tuple(tiers))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            [JobTable("rows", {"id": "text"}, ("id",))],
            'table "rows": "rows" is the name of the table that tier "first" writes',
        ),
        (
            [JobTable("rows_batch", {"id": "text"}, ("id",))],
            'table "rows_batch": "rows_batch" is the name of the index that tier "first" writes',
        ),
        (
            [JobTable("daily", {"id": "text"}, ("id",))] * 2,
            'table "daily": "daily" is the name of another table of the pipeline',
        ),
        (
            [JobTable("daily", {"id": "text"}, ("day",))],
            'table "daily": key names one or more of its columns',
        ),
        ([JobTable("daily", {"id": "text"}, ())], 'table "daily": key names one or more of its columns'),
        (
            [JobTable("migrations", {"id": "text"}, ("id",))],
            'table "migrations": "migrations" is the name of one of Sluice\'s own tables; give the table',
        ),
    ],
)
def test_a_wrong_table_of_batch_jobs_is_refused_with_its_name(tables, message):
    with pytest.raises(DeclarationError, match=message):
        Pipeline((tier(sink=TABLE),), tuple(tables))


def test_a_service_may_have_the_name_of_a_table_that_it_does_not_make():
    service = Post("ledger", {"id": "text"}, "http://127.0.0.1/ledger")
    assert Pipeline((tier(sink=service),)).tier("first").sink is service


@pytest.mark.parametrize("sink", [TABLE, Totals("sums", {"id": "text"}, key=("id",)), NEWEST, SERVICE])
def test_a_sink_names_the_tables_that_it_creates(sink):
    creations = (
        re.match(r'CREATE TABLE IF NOT EXISTS "(\w+)"', statement.as_string())
        for statement in sink.statements()
    )
    assert [created[1] for created in creations if created] == [*sink.tables]


@pytest.mark.parametrize("sink", [TABLE, Totals("sums", {"id": "text"}, key=("id",)), NEWEST, SERVICE])
def test_a_sink_names_the_indexes_that_it_creates(sink):
    statements = "\n".join(statement.as_string() for statement in sink.statements())
    created = {*re.findall(r'CREATE INDEX "(\w+)"', statements)}
    assert created | {f"{table}_pkey" for table in sink.tables} == {*sink.indexes}
    assert statements.count("PRIMARY KEY") == len(sink.tables)


def test_a_table_may_have_a_name_that_no_sink_takes():
    service = Post("bell", {"id": "text"}, "http://127.0.0.1/bell")
    tables = (JobTable("bell", {"id": "text"}, ("id",)), JobTable("rows_refused", {"id": "text"}, ("id",)))
    assert Pipeline((tier(sink=service), tier("second", sink=TABLE)), tables).tables == tables


def test_the_nightly_report_of_hits_writes_a_table_of_its_pipeline():
    (table,) = PIPELINE.tables
    create, *_ = definition(table.name, table.columns, [primary_key(table.key)])
    assert create.as_string() == (
        'CREATE TABLE IF NOT EXISTS "campaign_daily" ("day" date, "campaign" text, "views" bigint NOT NULL, '
        '"clicks" bigint NOT NULL, "buys" bigint NOT NULL, PRIMARY KEY ("day", "campaign"))'
    )


def test_a_tier_with_state_may_write_a_table_and_its_changes():
    changes = Stream("changes", "id string", Fields("id"))
    pipeline = Pipeline((changing(changes), tier("second", (changes,), sink=TABLE)))
    first, second = pipeline.specs()
    assert (first.outputs, first.distance, second.inputs) == (("changes",), 1, ("changes",))


def test_inputs_of_a_tier_with_state_may_have_different_columns():
    timed = Stream("timed", "at bigint, `n` int")
    pipeline = Pipeline(
        (
            tier(outputs=(C,)),
            tier("second", outputs=(timed,)),
            tier("third", (timed, C), sink=NEWEST, state=State(60)),
        )
    )
    assert [spec.state for spec in pipeline.specs()] == [False, False, True]


def test_distance_counts_hops_to_the_end_on_the_longest_path():
    pipeline = Pipeline(
        (
            tier(outputs=(B,)),
            tier("second", inputs=(B,), outputs=(C,)),
            tier("short", inputs=(B,), sink=TABLE),
            tier("long", inputs=(C,), sink=OTHER),
        )
    )
    assert {spec.name: spec.distance for spec in pipeline.specs()} == {
        "first": 2,
        "second": 1,
        "short": 0,
        "long": 0,
    }


def test_a_feedback_stream_is_no_cycle_and_adds_no_distance():
    pipeline = Pipeline(
        (
            tier(outputs=(B,)),
            tier("second", inputs=(B, BACK), outputs=(C, BACK)),
            tier("end", inputs=(C,), sink=TABLE),
        )
    )
    assert {spec.name: spec.distance for spec in pipeline.specs()} == {"first": 2, "second": 1, "end": 0}


def test_the_shipped_pipeline_loads_and_its_streams_are_known():
    pipeline = load("hits")
    assert [spec.name for spec in pipeline.specs()] == ["entry", "enrich", "counts", "outbound"]
    assert [stream.name for stream in pipeline.streams] == ["raw", "hits", "enriched"]
    assert [stream.name for stream in pipeline.sources] == ["raw"]
    assert pipeline.tier("entry").inputs[0].quarantine == "raw.quarantine"


def test_a_module_without_a_pipeline_is_refused():
    with pytest.raises(DeclarationError, match=r"has no PIPELINE"):
        load("hits.feed")
    with pytest.raises(DeclarationError, match=r"the module cannot be imported.*in the project's folder"):
        load("sluice.nowhere")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_package\n", "line 2: ModuleNotFoundError: No module named 'no_such_package'"),
        ("rate = 1\nrate / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("failing_library.fail()\n", "line 2: KeyError: 'no rate'"),
        (
            "from pyspark.sql import functions as F\n\n@F.udf('string')\ndef loud(text):\n    return text\n",
            "line 4: Spark does not run yet .* give `@F.udf` its type as an object",
        ),
        (
            "from pyspark.sql import functions as F\n\nBOT = F.col('agent').contains('bot')\n",
            "line 4: Spark does not run yet .* make columns .* inside the transform",
        ),
    ],
)
def test_a_module_that_fails_is_refused_with_the_line(tmp_path, monkeypatch, code, reason):
    folder = tmp_path / "failing_shop"  # a library below a folder of this name is not its own code
    (folder / "failing_shop").mkdir(parents=True)
    (folder / "failing_shop" / "__init__.py").write_text("from failing_shop import sales\n")
    (folder / "failing_shop" / "sales.py").write_text(f"import failing_library\n{code}")
    (folder / "failing_library.py").write_text("def fail():\n    raise KeyError('no rate')\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(DeclarationError, match=rf"'failing_shop': .*/sales.py, {reason}"):
        load("failing_shop")


def test_an_unknown_tier_is_refused_with_the_known_tiers():
    with pytest.raises(DeclarationError, match=r'no tier "entri"; the pipeline has entry, enrich'):
        load("hits").tier("entri")


def test_a_tier_alone_is_refused_for_its_own_faults_only():
    check_alone(tier(inputs=(B,), outputs=(C,)))  # which tier writes "b" is unknown
    with pytest.raises(DeclarationError, match='tier "first": a tier needs either output streams'):
        check_alone(tier())
    with pytest.raises(DeclarationError, match=OF_SLUICE):
        check_alone(tier(sink=Once("ledger", {"id": "text"})))


@pytest.mark.parametrize("archive", ["../hits", "/hits", "a/b", "..", ""])
def test_an_archive_that_would_leave_its_folder_is_refused(archive):
    with pytest.raises(DeclarationError, match=r"name one folder, of letters, digits"):
        Once("rows", {"id": "text"}, archive=archive)


@pytest.mark.parametrize("folder", ["../hits", "/hits", "a/b", "", "s3a://lake", "s3a:///x", "s3://lake/x"])
def test_a_folder_of_files_elsewhere_is_refused(folder):
    with pytest.raises(DeclarationError, match=r'sink "rows": folder is .*or an address s3a://bucket/folder'):
        ParquetFiles("rows", {"id": "text"}, folder=folder)


@pytest.mark.parametrize("folder", ["hits", "s3a://lake/web/hits"])
def test_two_tiers_with_files_in_one_folder_are_refused(folder):
    tiers = [
        Tier(name, Kind.OUTBOUND, (A,), same, sink=ParquetFiles(name, {"id": "text"}, folder=folder))
        for name in ("one", "two")
    ]
    with pytest.raises(DeclarationError, match=rf'"two": tier "one" already writes files into .*"{folder}"'):
        Pipeline(tuple(tiers))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"topic": "a b"}, "topic is 'a b', which is no name of a topic"),
        ({"kafka": ""}, "kafka is empty; give the cluster's address, such as k1:9092"),
        ({"kafka": "ssl://k1:9093"}, "kafka: 'ssl://k1:9093' is not an address of Kafka"),
        ({"key": "user"}, "key is 'user'; name one of its columns: id"),
    ],
)
def test_a_topic_outside_that_cannot_be_written_is_refused(wrong, reason):
    right = {"topic": "orders", "kafka": "k1:9092", "key": "id"}
    with pytest.raises(DeclarationError, match=f'sink "out": {reason}'):
        KafkaTopic("out", {"id": "text"}, **(right | wrong))


def test_a_tier_of_a_topic_outside_delivers_exactly_once_or_at_least_once():
    sink = KafkaTopic("out", {"id": "text"}, topic="orders", kafka="k1:9092")
    for delivery in (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE):
        assert Pipeline((tier(sink=sink, delivery=delivery),)).spec("first").delivery is delivery
    with pytest.raises(DeclarationError, match="topics outside take each record exactly once"):
        Pipeline((tier(sink=sink, delivery=Delivery.AT_MOST_ONCE, max_offsets=10),))


def test_a_tier_of_files_may_deliver_exactly_once_but_keeps_no_state():
    files = ParquetFiles("rows", {"id": "text"}, folder="rows")
    spec = Pipeline((tier(sink=files, delivery=Delivery.EXACTLY_ONCE),)).spec("first")
    assert spec.delivery is Delivery.EXACTLY_ONCE
    with pytest.raises(DeclarationError, match="give the tier both state and a sink `Latest`"):
        Pipeline((tier(sink=files, state=State(0)),))
