"""What is wrong with a declaration is said by tier and by what to do."""

import pytest

from ops.model.tier import Delivery, Kind, Mode
from pipeline.declare import DeclarationError, Pipeline, Stream, Tier, load
from pipeline.sinks.table import Once

A, B, C = Stream("a"), Stream("b", "id string"), Stream("c", "id string")
TABLE = Once("rows", {"id": "text"})


def same(records):
    return records


def tier(name="first", inputs=(A,), **more):
    return Tier(name, Kind.PROCESSING, inputs, same, **more)


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ([tier("First", output=B)], 'tier "First": its name must be lower case'),
        ([tier(inputs=(), output=B)], "reads nothing"),
        ([tier()], "either an output stream or a sink"),
        ([tier(output=B, sink=TABLE)], "either an output stream or a sink"),
        ([tier(sink=TABLE, mode=Mode.REALTIME)], "set mode=Mode.BATCH"),
        ([tier(output=B, delivery=Delivery.EXACTLY_ONCE)], "exactly-once needs a sink that is a table"),
        ([tier(inputs=(A, B), output=C), tier("second", output=B)], "different columns"),
        ([tier(inputs=(C,), output=B)], 'no tier writes its input "c"; streams that are written: b'),
        ([tier(output=B), tier(output=C)], 'tier "first": declared more than once'),
        ([tier(output=B), tier("second", output=B)], 'stream "b" is written by "first" already'),
        ([tier(inputs=(C,), output=B), tier("second", inputs=(B,), output=C)], "first → second → first go in a circle"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(tiers, message):
    with pytest.raises(DeclarationError, match=message):
        Pipeline(tuple(tiers))


def test_distance_counts_hops_to_the_end_by_the_longest_way():
    pipeline = Pipeline(
        (
            tier(output=B),
            tier("second", inputs=(B,), output=C),
            tier("short", inputs=(B,), sink=TABLE),
            tier("long", inputs=(C,), sink=TABLE),
        )
    )
    assert {spec.name: spec.distance for spec in pipeline.specs()} == {"first": 2, "second": 1, "short": 0, "long": 0}


def test_the_shipped_pipeline_loads_and_its_streams_are_known():
    pipeline = load("pipeline.hits")
    assert [spec.name for spec in pipeline.specs()] == ["entry", "enrich", "counts", "outbound"]
    assert [stream.name for stream in pipeline.streams] == ["raw", "hits", "enriched"]
    assert [stream.name for stream in pipeline.sources] == ["raw"]
    assert pipeline.tier("entry").inputs[0].quarantine == "raw.quarantine"


def test_a_module_without_a_pipeline_is_refused():
    with pytest.raises(DeclarationError, match=r"has no PIPELINE"):
        load("pipeline.feed")
    with pytest.raises(DeclarationError, match=r"cannot import it.*PYTHONPATH"):
        load("pipeline.nowhere")


def test_an_unknown_tier_is_answered_with_those_there_are():
    with pytest.raises(DeclarationError, match=r'no tier "entri"; the pipeline has entry, enrich'):
        load("pipeline.hits").tier("entri")
