"""Formats of streams: the wire format, declarations, and what publishing asks the registry."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import Avro, Bytes, DeclarationError, Kind, Pipeline, Stream, Tier
from sluice.api.formats import PublishedAvro, header, subject
from sluice.schema_registry import (
    RegistryAwayError,
    check_address,
    differences,
    refuse_incompatible,
    register,
    with_ids,
    written_schemas,
)


def schema(**fields):
    described = [{"name": name, **field} for name, field in fields.items()]
    return json.dumps({"type": "record", "name": "Hit", "fields": described})


TEXT, MAYBE = {"type": "string"}, {"type": ["null", "string"], "default": None}
HIT = Avro(schema(id=TEXT))
RAW, HITS = Stream("raw", format=HIT), Stream("hits", "id string", format=HIT)


def pipeline(*inputs, output):
    return Pipeline((Tier("entry", Kind.ENTRY, inputs, lambda records: records, (output,)),))


@given(st.integers(0, 2**31 - 1))
def test_a_header_is_a_zero_and_the_id_in_four_bytes(schema_id):
    assert header(schema_id)[:1] == b"\0"
    assert int.from_bytes(header(schema_id)[1:], "big") == schema_id
    assert len(header(schema_id)) == 5


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        (
            (RAW,),
            Stream("hits", format=HIT),
            'stream "hits": a tier writes the stream, so declare its columns',
        ),
        (
            (RAW,),
            Stream("hits", "id string", format=Bytes()),
            'stream "hits": a stream of bytes has one column',
        ),
        ((Stream("raw", format=Avro("{")),), HITS, 'stream "raw": its Avro schema is not JSON'),
        ((Stream("raw", format=Avro('"string"')),), HITS, "is not that of a record with fields"),
        ((RAW, Stream("more")), HITS, "the inputs have different formats"),
    ],
)
def test_a_wrong_format_is_refused_with_the_correction(inputs, output, message):
    with pytest.raises(DeclarationError) as refused:
        pipeline(*inputs, output=output)
    assert message in str(refused.value)


def test_bytes_are_declared_with_their_one_column():
    pipeline(Stream("raw", format=Bytes()), output=Stream("copies", "value binary", format=Bytes()))


def test_only_written_streams_are_registered():
    declared = pipeline(RAW, output=HITS)
    assert written_schemas(declared) == {"hits": HIT.schema}
    assert subject("hits") == "hits-value"
    (tier,) = with_ids(declared, {"hits": 7}, "http://registry").tiers
    assert tier.inputs[0].format == PublishedAvro(HIT.schema, "http://registry", None)
    assert tier.outputs[0].format == PublishedAvro(HIT.schema, "http://registry", 7)


def test_avro_needs_the_address_of_a_registry():
    with pytest.raises(DeclarationError, match=r"the records of raw, hits are Avro, .*schema_registry: http"):
        check_address(pipeline(RAW, output=HITS), None)
    check_address(pipeline(RAW, output=HITS), "http://registry")
    check_address(pipeline(Stream("raw"), output=Stream("hits", "id string")), None)


@pytest.mark.parametrize(
    ("new", "found"),
    [
        (schema(id=TEXT), []),
        (schema(id=TEXT, user=MAYBE), []),
        (schema(id=TEXT, user=TEXT), ["the new field user has no default"]),
        (schema(user=MAYBE), ["the field id is gone"]),
        (schema(id={"type": "long"}), ['the field id is "long", and was "string"']),
    ],
)
def test_a_refusal_names_the_fields_that_differ(new, found):
    assert differences(schema(id=TEXT), new) == found


@pytest.mark.parametrize("ask", [refuse_incompatible, register])
def test_a_registry_that_is_away_is_named_with_the_next_step(ask):
    with pytest.raises(
        RegistryAwayError, match=r"http://127.0.0.1:9 does not answer .*`sluice publish` again"
    ):
        ask("http://127.0.0.1:9", {"hits": HIT.schema})


def test_a_pipeline_without_avro_asks_no_registry():
    refuse_incompatible("", {})
    assert register("", {}) == {}
