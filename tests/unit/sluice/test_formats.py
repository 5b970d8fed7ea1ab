"""Formats of streams: the wire format, declarations, and what publishing asks the registry."""

import base64
import json

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from sluice import Avro, Bytes, DeclarationError, Kind, Pipeline, Protobuf, Stream, Tier
from sluice.api.formats import PublishedAvro, PublishedProtobuf, header, registration, subject
from sluice.checks.shapes import shape
from sluice.records.protobuf import ProtobufCodec
from sluice.schema_registry import (
    RegistryAwayError,
    check_address,
    differences,
    refuse_incompatible,
    register,
    with_ids,
    written_schemas,
)
from tests.protobuf_messages import (
    TIMESTAMP,
    enum,
    field,
    file,
    hit,
    map_entry,
    message,
    message_class,
    optional,
)


def schema(**fields):
    described = [{"name": name, **field} for name, field in fields.items()]
    return json.dumps({"type": "record", "name": "Hit", "fields": described})


TEXT, MAYBE = {"type": "string"}, {"type": ["null", "string"], "default": None}
HIT = Avro(schema(id=TEXT))
RAW, HITS = Stream("raw", format=HIT), Stream("hits", "id string", format=HIT)
ID, USER = field(1, "id", "string"), optional(2, "user", "string")
MESSAGE = Protobuf(hit(ID))


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
        ((Stream("raw", format=MESSAGE),), Stream("hits", format=MESSAGE), "those of its Protobuf message"),
    ],
)
def test_a_wrong_format_is_refused_with_the_correction(inputs, output, message):
    with pytest.raises(DeclarationError) as refused:
        pipeline(*inputs, output=output)
    assert message in str(refused.value)


def test_bytes_are_declared_with_their_one_column():
    pipeline(Stream("raw", format=Bytes()), output=Stream("copies", "value binary", format=Bytes()))


IMPORTED = file("other.proto", message("Other", field(1, "id", "string")))
STRUCT = "google.protobuf.Struct"
GROUP = field(1, "part", "group .hits.Hit.Part")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("hit_pb2.Hit", "takes a class that protoc generated, such as hit_pb2.Hit, not 'hit_pb2.Hit'"),
        (MESSAGE.message(), "takes a class that protoc generated"),
        (Stream, "takes a class that protoc generated"),
        (hit(), "the message hits.Hit has no fields"),
        (hit(field(1, "inner", ".hits.Hit")), "contains itself (hits.Hit → hits.Hit)"),
        (
            message_class(
                file(
                    "tree.proto",
                    message("Tree", field(1, "id", "string"), field(2, "leaf", ".hits.Leaf", "repeated")),
                    message("Leaf", field(1, "tree", ".hits.Tree")),
                ),
                name="Tree",
            ),
            "contains itself (hits.Tree → hits.Leaf → hits.Tree)",
        ),
        (
            message_class(
                file(
                    "hit.proto",
                    message("Hit", field(1, "any", f".{STRUCT}")),
                    imports=["google/protobuf/struct.proto"],
                ),
                name="Hit",
            ),
            f"contains itself ({STRUCT} → {STRUCT}.FieldsEntry → google.protobuf.Value → {STRUCT})",
        ),
        (
            message_class(
                IMPORTED,
                file("hit.proto", message("Hit", field(1, "other", ".hits.Other")), imports=["other.proto"]),
                name="Hit",
            ),
            "hit.proto imports other.proto, and Sluice registers one file only",
        ),
        (
            message_class(
                file(
                    "hit.proto",
                    message("Hit", GROUP, nested=[message("Part")]),
                    syntax="proto2",
                ),
                name="Hit",
            ),
            "the field hits.Hit.part is a group",
        ),
        (
            message_class(
                file(
                    "hit.proto",
                    message("Hit", ID, extension_range=[DescriptorProto.ExtensionRange(start=9, end=20)]),
                    syntax="proto2",
                ),
                name="Hit",
            ),
            "the message hits.Hit takes extensions",
        ),
    ],
)
def test_a_message_without_columns_is_refused(kind, fault):
    with pytest.raises(DeclarationError, match='stream "raw": ') as refused:
        pipeline(Stream("raw", format=Protobuf(kind)), output=Stream("hits", "id string"))
    assert fault in str(refused.value)


def test_the_columns_of_a_message_are_its_fields_in_order():
    kind = hit(
        field(4, "kind", "enum .hits.Hit.Kind"),
        field(1, "n", "uint32"),
        field(2, "big", "fixed64"),
        field(3, "times", TIMESTAMP, "repeated"),
        field(5, "part", ".hits.Hit.Part"),
        field(6, "parts", ".hits.Hit.PartsEntry", "repeated"),
        nested=[
            message("Part", field(1, "data", "bytes")),
            map_entry("PartsEntry", "bool", ".hits.Hit.Part"),
        ],
        enum_type=[enum("Kind", "BUY")],
    )
    assert [*ProtobufCodec(Protobuf(kind)).columns(None).items()] == [
        ("kind", "string"),
        ("n", "bigint"),
        ("big", "decimal(20,0)"),
        ("times", "array<timestamp>"),
        ("part", "struct<data:binary>"),
        ("parts", "map<boolean,struct<data:binary>>"),
    ]


def test_a_record_has_the_place_of_its_message():
    many = [message(f"M{number}", ID, nested=[message("In", ID)]) for number in range(70)]
    for name, place in {"M0": b"\0", "M1": b"\x02\x02", "M69": b"\x02\x8a\x01", "M0.In": b"\x04\0\0"}.items():
        kind = message_class(file("many.proto", *many), name=name)
        (record,) = ProtobufCodec(PublishedProtobuf(kind, 258)).of_json(None, ['{"id": "a"}'])
        assert record == b"\0\0\0\x01\x02" + place + b"\x0a\x01a"


def test_a_message_is_registered_with_its_file():
    sent = registration(MESSAGE)
    assert sent["schemaType"] == "PROTOBUF"
    registered = FileDescriptorProto.FromString(base64.b64decode(sent["schema"]))
    assert registered == file("hit.proto", message("Hit", ID))


def test_only_written_streams_are_registered():
    declared = pipeline(Stream("raw", format=MESSAGE), output=Stream("hits", "id string", format=MESSAGE))
    assert shape(declared.tiers[0], ()).outputs[0].format == "Protobuf"
    (tier,) = with_ids(declared, {"hits": 7}, "http://registry").tiers
    assert tier.inputs[0].format == PublishedProtobuf(MESSAGE.message, None)
    assert tier.outputs[0].format == PublishedProtobuf(MESSAGE.message, 7)
    declared = pipeline(RAW, output=HITS)
    assert written_schemas(declared) == {"hits": HIT}
    assert subject("hits") == "hits-value"
    (tier,) = with_ids(declared, {"hits": 7}, "http://registry").tiers
    assert tier.inputs[0].format == PublishedAvro(HIT.schema, "http://registry", None)
    assert tier.outputs[0].format == PublishedAvro(HIT.schema, "http://registry", 7)


def test_a_schema_needs_the_address_of_a_registry():
    with pytest.raises(DeclarationError, match=r"of raw, hits name their schema, .*schema_registry: http"):
        check_address(pipeline(RAW, output=HITS), None)
    check_address(pipeline(RAW, output=HITS), "http://registry")
    check_address(pipeline(Stream("raw"), output=Stream("hits", "id string")), None)
    messages = Stream("raw", format=MESSAGE)
    check_address(pipeline(messages, output=Stream("hits", "id string")), None)
    with pytest.raises(DeclarationError, match="the records of hits name their schema"):
        check_address(pipeline(messages, output=Stream("hits", "id string", format=MESSAGE)), None)


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
    assert differences(schema(id=TEXT), Avro(new)) == found


REQUIRED = field(3, "must", "string", "required")
TEAM = optional(3, "team", "string")
PART = message("Part", ID)
OLD_HIT = message("Hit", ID, USER, nested=[PART])
OTHER_HIT = message(
    "Hit", field(1, "id", "int64"), field(2, "person", "string"), REQUIRED, nested=[message("Part")]
)


@pytest.mark.parametrize(
    ("new", "found"),
    [
        (OLD_HIT, []),
        (message("Hit", ID, USER, TEAM, nested=[PART]), []),
        (
            message("Hit", ID, nested=[PART]),
            ["the field Hit.user is gone; reserve its name and its number 2"],
        ),
        (
            OTHER_HIT,
            [
                "the field 1 of Hit is int64 id, and was string id",
                "the field 2 of Hit is string person, and was string user",
                "the new field Hit.must is required",
                "the field Hit.Part.id is gone; reserve its name and its number 1",
            ],
        ),
        (
            message("Hit", ID, field(2, "user", "string", "repeated")),
            [
                "the field 2 of Hit is repeated string user, and was string user",
                "the message Hit.Part is gone",
            ],
        ),
    ],
)
def test_a_refusal_names_the_fields_of_messages(new, found):
    old = base64.b64encode(file("hit.proto", OLD_HIT).SerializeToString()).decode()
    syntax = "proto2" if new is OTHER_HIT else "proto3"
    kind = Protobuf(message_class(file("hit.proto", new, syntax=syntax), name="Hit"))
    assert differences(old, kind) == found
    assert differences('syntax = "proto3"; message Hit {}', kind) == []


@pytest.mark.parametrize("ask", [refuse_incompatible, register])
def test_a_registry_that_is_away_is_named_with_the_next_step(ask):
    with pytest.raises(
        RegistryAwayError, match=r"http://127.0.0.1:9 does not answer .*`sluice publish` again"
    ):
        ask("http://127.0.0.1:9", {"hits": HIT})


def test_a_pipeline_without_avro_asks_no_registry():
    refuse_incompatible("", {})
    assert register("", {}) == {}
