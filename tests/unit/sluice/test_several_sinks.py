"""Several sinks on one tier: what is refused, and what of each sink the rest of Sluice knows."""

from dataclasses import dataclass

import pytest

from sluice.api.declarations import DeclarationError, Pipeline, State, Stream, Tier
from sluice.api.sink import Sink
from sluice.checks.shapes import shape
from sluice.published import _described
from sluice.replay.book import ReplayError
from sluice.replay.request import refuse
from sluice.sinks.http import Post
from sluice.sinks.kafka_topic import KafkaTopic
from sluice.sinks.several import Sinks
from sluice.sinks.table import Latest, Once, ParquetFiles, Totals
from sluice_ops.model.tier import Delivery, Kind

ID = {"id": "text"}
TABLE = Once("kept", ID, archive="kept")
FILES = ParquetFiles("filed", ID, folder="filed")
SUMS = Totals("sums", {"who": "text", "hits": "bigint"}, key=("who",), counted=("hits",))
TOPIC = KafkaTopic("told", {"id": "text", "who": "text"}, topic="told", kafka="k1:9092")
SERVICE = Post("called", ID, url="http://127.0.0.1/")


def tier(sink: Sink, name: str = "out", **more) -> Tier:
    return Tier(name, Kind.OUTBOUND, (Stream("in"),), lambda records: records, sink=sink, **more)


def test_the_first_sink_names_them_all_and_columns_are_the_union():
    sinks = Sinks(TABLE, TOPIC, SUMS)
    assert (sinks.name, [*sinks.columns]) == ("kept", ["id", "who", "hits"])
    assert tier(sinks).sinks == sinks.members == (TABLE, TOPIC, SUMS)


def test_each_sink_keeps_its_own_type_of_a_column():
    sinks = Sinks(Once("kept", {"n": "integer"}), Totals("sums", {"n": "bigint"}))
    assert [sink.columns["n"] for sink in sinks.members] == ["integer", "bigint"]


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ((), r"Sinks\(\): it has no sink; name two or more"),
        ((TABLE, Sinks(FILES, TOPIC)), r"Sinks\(kept, filed\): filed is itself several sinks; name each"),
        ((Latest("newest", ID, key=("id",)), TOPIC), "newest keeps the results of a tier with state"),
        ((SERVICE, Post("rung", ID, url="http://127.0.0.1/2")), "called and rung would get records again"),
        ((TABLE, ParquetFiles("kept", ID, folder="more")), 'two sinks have the name "kept"'),
        ((TABLE, ParquetFiles("more", ID, folder="kept")), 'into the folder "kept", and files of one would'),
    ],
)
def test_sinks_that_do_not_go_together_are_refused(sinks, message):
    with pytest.raises(DeclarationError, match=message):
        Sinks(*sinks)


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ([tier(Sinks(TABLE, SERVICE), delivery=Delivery.EXACTLY_ONCE)], "a service gets records at least"),
        ([tier(Sinks(TABLE, SERVICE), delivery=Delivery.AT_MOST_ONCE)], "a service, alone in its tier"),
        ([tier(Sinks(TABLE, TOPIC), state=State(0))], "give the tier both state and a sink `Latest`"),
        ([tier(Sinks(TABLE, TOPIC)), tier(TOPIC, "other")], 'tier "out" already writes the sink "told"'),
        (
            [tier(Sinks(TOPIC, FILES)), tier(ParquetFiles("more", ID, folder="filed"), "other")],
            'tier "out" already writes files into the folder "filed"',
        ),
        (
            [tier(Sinks(TOPIC, Once("told_refused", ID)))],
            'the sink\'s table "told_refused" has the name of the table that tier "out" writes',
        ),
        ([tier(Sinks(TOPIC, Once("kept", {"id": "bigin"})))], 'table "kept": .*write bigint'),
    ],
)
def test_tiers_with_such_sinks_are_refused(tiers, message):
    with pytest.raises(DeclarationError, match=message):
        Pipeline(tuple(tiers))


def test_a_tier_of_tables_files_and_topics_delivers_exactly_once():
    written = tier(Sinks(TABLE, FILES, TOPIC), delivery=Delivery.EXACTLY_ONCE)
    assert Pipeline((written,)).spec("out").delivery is Delivery.EXACTLY_ONCE


def test_a_release_has_the_shape_of_each_sink():
    shapes = shape(tier(Sinks(TOPIC, SUMS)), ())
    assert [(sink.kind, sink.name, sink.key) for sink in shapes.sinks] == [
        ("KafkaTopic", "told", ()),
        ("Totals", "sums", ("who",)),
    ]
    assert shapes.sink == shapes.sinks[0]


def test_airflow_knows_each_table():
    pipeline = Pipeline((tier(Sinks(TABLE, TOPIC, SUMS)),))
    described = _described(pipeline.spec("out"), pipeline.tier("out"))
    assert described.tables == {"kept": TABLE.columns, "sums": SUMS.columns}


def test_a_replay_needs_tables_that_take_lost_records_again():
    both = Pipeline((tier(Sinks(TABLE, Once("copied", ID))),))
    refuse(both, both.tier("out"), quarantine=False)
    mixed = Pipeline((tier(Sinks(TABLE, FILES, TOPIC)),))
    refuse(mixed, mixed.tier("out"), quarantine=True)
    with pytest.raises(ReplayError, match="repair filed and told by hand"):
        refuse(mixed, mixed.tier("out"), quarantine=False)


@dataclass(frozen=True)
class Own(Sink):
    """A sink of a pipeline's own that is a service."""


def test_a_sink_of_your_own_counts_as_a_service():
    with pytest.raises(DeclarationError, match="called and own would get records again"):
        Sinks(TABLE, SERVICE, Own("own", ID))
