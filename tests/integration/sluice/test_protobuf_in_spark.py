"""Protobuf in Spark, without a registry and without Kafka: what a tier reads and writes."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

from sluice import DeclarationError, Kind, Once, Protobuf, Stream, Tier
from sluice.api.formats import PublishedProtobuf, header
from sluice.records import formats
from sluice.records.lineage import business, transformed
from sluice.testing import _frame, _kafka_records, run
from tests.protobuf_messages import (
    TIMESTAMP,
    TIMESTAMP_FILE,
    enum,
    field,
    file,
    hit,
    map_entry,
    message,
    message_class,
    optional,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.long, pytest.mark.usefixtures("session_with_packages")]

FIRST = header(0) + b"\0"
"""The bytes before a message that is the first one of its file."""
SCALARS = {
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "uint32": "bigint",
    "fixed32": "bigint",
    "int64": "bigint",
    "sint64": "bigint",
    "sfixed64": "bigint",
    "uint64": "decimal(20,0)",
    "fixed64": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
}
ITEM = message("Item", field(1, "name", "string"), optional(2, "price", "uint64"))
ALL = message(
    "All",
    *(field(number, f"a_{kind}", kind) for number, kind in enumerate(SCALARS, 1)),
    *(optional(number, f"an_{kind}", kind) for number, kind in enumerate(SCALARS, 21)),
    *(field(number, f"some_{kind}", kind, "repeated") for number, kind in enumerate(SCALARS, 41)),
    field(61, "kind", "enum .hits.Kind"),
    field(62, "at", TIMESTAMP),
    field(63, "item", ".hits.Item"),
    field(64, "items", ".hits.Item", "repeated"),
    field(65, "counts", ".hits.All.CountsEntry", "repeated"),
    field(66, "by_number", ".hits.All.ByNumberEntry", "repeated"),
    field(67, "left", "string"),
    field(68, "right", ".hits.Item"),
    field(69, "times", TIMESTAMP, "repeated"),
    field(70, "kinds", "enum .hits.Kind", "repeated"),
    nested=(
        map_entry("CountsEntry", "string", "uint32"),
        map_entry("ByNumberEntry", "fixed64", ".hits.Item"),
    ),
    oneof=("left", "right"),
)
All = message_class(
    file("all.proto", ALL, ITEM, enums=[enum("Kind", "BUY", "SELL")], imports=[TIMESTAMP_FILE]), name="All"
)
ITEM_TYPE = "struct<name:string,price:decimal(20,0)>"
COLUMNS = ", ".join(
    [
        *(f"a_{kind} {column}" for kind, column in SCALARS.items()),
        *(f"an_{kind} {column}" for kind, column in SCALARS.items()),
        *(f"some_{kind} array<{column}>" for kind, column in SCALARS.items()),
        f"kind string, at timestamp, item {ITEM_TYPE}, items array<{ITEM_TYPE}>",
        f"counts map<string,bigint>, by_number map<decimal(20,0),{ITEM_TYPE}>",
        f"left string, right {ITEM_TYPE}, times array<timestamp>, kinds array<string>",
    ]
)
STRICT = message_class(
    file(
        "strict.proto",
        message(
            "Strict",
            field(1, "id", "string", "required"),
            field(2, "n", "uint32"),
            field(3, "big", "fixed64"),
            field(4, "kind", "enum .hits.Kind"),
            field(5, "at", TIMESTAMP),
            field(6, "tags", "string", "repeated"),
            field(7, "left", "string"),
            field(8, "right", "string"),
            oneof=("left", "right"),
        ),
        syntax="proto2",
        enums=[enum("Kind", "BUY", "SELL")],
        imports=[TIMESTAMP_FILE],
    ),
    name="Strict",
)


def stream(kind: Any, columns: str | None = None, name: str = "raw") -> Stream:
    return Stream(name, columns, format=Protobuf(kind))


def tier(
    source: Stream, *outputs: Stream, transform: Callable[..., Any] = lambda records: records, **more: Any
) -> Tier:
    return Tier("entry", Kind.ENTRY, (source,), transform, outputs, **more)


def written(made: Tier, records: Sequence[bytes | str]) -> list[tuple[bytes | None, str | None]]:
    """Return the bytes that a tier writes for each record, and why it writes none."""
    (source,) = made.inputs
    result = transformed(_frame(_kafka_records(records, source, made, first=0)), made)
    result, values = formats.encoded(result, made, business(result, made))
    (one,) = values.values()
    assert one.unfit is not None
    return [(value and bytes(value), unfit) for value, unfit in result.select(one.value, one.unfit).collect()]


COPIES = tier(stream(All), stream(All, COLUMNS, "copies"))


def test_each_type_is_read_and_written() -> None:
    numbers = {"uint32": 2**32 - 1, "fixed32": 2**31, "uint64": 2**64 - 1, "fixed64": 2**63}
    numbers |= {f"{name}32": -(2**31) for name in ("int", "sint", "sfixed")}
    numbers |= {f"{name}64": 2**63 - 1 for name in ("int", "sint", "sfixed")}
    values = numbers | {"float": 0.5, "double": 0.1, "bool": True, "string": "ä\0", "bytes": b"\xff\0"}
    at = datetime(2026, 11, 29, 10, 0, 0, 123456, UTC)
    full = All(
        **{f"a_{kind}": value for kind, value in values.items()},
        **{f"an_{kind}": value for kind, value in values.items()},
        **{f"some_{kind}": [value, value] for kind, value in values.items()},
        kind="SELL",
        at=at,
        item={"name": "pen"},
        items=[{"name": "a", "price": 1}, {}],
        counts={"a": 2**32 - 1, "": 0},
        by_number={2**64 - 1: {"name": "last"}},
        right={"name": "r", "price": 0},
        times=[at],
        kinds=["SELL", "BUY"],
    )
    row, empty = run(COPIES, [FIRST + full.SerializeToString(), FIRST]).rows
    expected = {
        kind: Decimal(value) if kind in {"uint64", "fixed64"} else value for kind, value in values.items()
    }
    assert {kind: row[f"a_{kind}"] for kind in SCALARS} == expected
    assert {kind: row[f"an_{kind}"] for kind in SCALARS} == expected
    assert {kind: row[f"some_{kind}"] for kind in SCALARS} == {
        kind: [value] * 2 for kind, value in expected.items()
    }
    local = at.astimezone().replace(tzinfo=None)
    assert (row["kind"], row["kinds"], row["at"], row["times"]) == ("SELL", ["SELL", "BUY"], local, [local])
    assert row["item"] == {"name": "pen", "price": None}
    assert row["items"] == [{"name": "a", "price": Decimal(1)}, {"name": "", "price": None}]
    assert row["counts"] == {"a": 2**32 - 1, "": 0}
    assert row["by_number"] == {Decimal(2**64 - 1): {"name": "last", "price": None}}
    assert (row["left"], row["right"]) == (None, {"name": "r", "price": Decimal(0)})

    defaults = dict.fromkeys(SCALARS, 0) | {"bool": False, "string": "", "bytes": b""}
    assert {kind: empty[f"a_{kind}"] for kind in SCALARS} == defaults
    assert {kind: empty[f"an_{kind}"] for kind in SCALARS} == dict.fromkeys(SCALARS)
    assert {kind: empty[f"some_{kind}"] for kind in SCALARS} == {kind: [] for kind in SCALARS}
    assert [empty[name] for name in ("kind", "at", "item", "left", "right")] == [
        "BUY",
        None,
        None,
        None,
        None,
    ]
    assert (empty["items"], empty["counts"]) == ([], {})

    for (value, unfit), sent in zip(
        written(COPIES, [FIRST + full.SerializeToString(), FIRST]), (full, All()), strict=True
    ):
        assert unfit is None
        assert value is not None
        assert value.startswith(FIRST)
        assert All.FromString(value[len(FIRST) :]) == sent


def values_of(kind: str) -> st.SearchStrategy[Any]:
    match kind:
        case "float" | "double":
            return st.floats(width=32 if kind == "float" else 64, allow_nan=False)
        case "bool":
            return st.booleans()
        case "string":
            return st.text(max_size=5)
        case "bytes":
            return st.binary(max_size=5)
    bits = int(kind[-2:])
    is_signed = "u" not in kind and not kind.startswith("fixed")
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else st.integers(0, 2**bits - 1)


ITEMS = st.fixed_dictionaries({}, optional={"name": values_of("string"), "price": values_of("uint64")})
TIMES = st.integers(-62135596800 * 10**6, 253402300800 * 10**6 - 1).map(
    lambda micros: {"seconds": micros // 10**6, "nanos": micros % 10**6 * 1000}
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={f"{prefix}_{kind}": values_of(kind) for kind in SCALARS for prefix in ("a", "an")}
    | {f"some_{kind}": st.lists(values_of(kind), max_size=3) for kind in SCALARS}
    | {"kind": st.sampled_from(["BUY", "SELL"]), "at": TIMES, "times": st.lists(TIMES, max_size=2)}
    | {"item": ITEMS, "items": st.lists(ITEMS, max_size=2)}
    | {"counts": st.dictionaries(values_of("string"), values_of("uint32"), max_size=3)}
    | {"by_number": st.dictionaries(values_of("fixed64"), ITEMS, max_size=3)}
    | {"kinds": st.lists(st.sampled_from(["BUY", "SELL"]), max_size=3)},
).flatmap(
    lambda fields: st.sampled_from(
        [All(**fields), All(**fields, left="x"), All(**fields, left=""), All(**fields, right={"price": 7})]
    )
)


@settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.lists(MESSAGES, min_size=10, max_size=40))
def test_what_is_read_is_written_again(sent: list[Any]) -> None:
    copies = written(COPIES, [FIRST + each.SerializeToString() for each in sent])
    assert [All.FromString((value or b"")[len(FIRST) :]) for value, _ in copies] == sent


BROKEN = {
    b"{}": "does not begin with a byte 0 and the id of a schema",
    b"": "does not begin with a byte 0 and the id of a schema",
    header(0): "does not begin with a byte 0 and the id of a schema",
    header(0) + b"\x80": "is not a valid hits.Strict: While parsing a protocol message, the input ended",
    header(0)
    + b"\x02\x02": "is of the message [1] of its schema, but the stream has hits.Strict, which is [0]",
    header(0) + b"\x04\0\0": "the record is of the message [0, 0] of its schema",
    FIRST + b"\x0a\x05a": "the input ended unexpectedly",
    FIRST + b"\x0a\xff\xff\xff\xff\x07a": "is not a valid hits.Strict",
    FIRST + b"\x0c": "is not a valid hits.Strict",
    FIRST: "Message missing required fields: id",
    FIRST + b"\x0a\x01a\x12\x01n": "the field n has a value of another type",
    FIRST + b"\x0a\x01a" + b"\x20\x07": "the field kind has a value of another type, or an enum number that",
    FIRST + b"\x0a\x01\xff": "is not a valid hits.Strict: Protocol message had invalid UTF-8",
    FIRST + b"\x0a\x01a" + b"\x2a\x02\x10\x80": "is not a valid hits.Strict",
    FIRST
    + b"\x0a\x01a"
    + b"\x2a\x0b\x10"
    + b"\xff" * 9
    + b"\x01": "the field at is no time of the years 1 to 9999",
}
"""Records that are no `Strict`, and what their reasons say."""


def test_a_record_that_cannot_be_read_is_quarantined() -> None:
    reader = tier(
        stream(STRICT), sink=Once("t", {"id": "text"}), transform=lambda raw: raw.select("id", "lineage")
    )
    good = FIRST + STRICT(id="a").SerializeToString()
    in_full = header(0) + b"\x02\0" + STRICT(id="b").SerializeToString()
    result = run(reader, [good, *BROKEN, in_full])
    assert [row["id"] for row in result.rows] == ["a", "b"]
    for row, expected in zip(result.quarantined, BROKEN.values(), strict=True):
        assert expected in row["reason"]

    unknown = FIRST + All(kind=7).SerializeToString()
    (row,) = run(COPIES, [unknown]).quarantined
    assert row["reason"].endswith("the field kind has the enum number 7, which the schema lacks")


MISFITS = {
    "id": ("null", "required, but null: id"),
    "n": ("-1L", "the field n is -1, which is out of its range"),
    "big": (
        "cast('18446744073709551616' as decimal(20,0))",
        "the field big is 18446744073709551616, which is out",
    ),
    "kind": ("'GIVE'", "the field kind is GIVE, which hits.Kind lacks"),
    "at": ("timestamp'0000-12-31 00:00:00Z'", "the field at is "),
    "tags": ("array('a', null)", "the field tags has a null among its values"),
    "right": ("'r'", "the oneof choice has two values: left and right"),
}
"""By column: a value without a place in `Strict`, and the reason."""


def test_a_record_that_the_message_has_no_place_for_is_quarantined() -> None:
    columns = (
        "id string, n bigint, big decimal(20,0), kind string, at timestamp, tags array<string>, "
        "left string, right string"
    )
    good = {"id": "'a'", "tags": "array('a')", "left": "'l'"}
    kinds = dict(part.rsplit(" ", 1) for part in columns.split(", "))
    chosen = {
        name: f"case when value = '{name}' then cast({MISFITS.get(name, ['null'])[0]} as {kind}) "
        f"else cast({good.get(name, 'null')} as {kind}) end as `{name}`"
        for name, kind in kinds.items()
    }
    made = tier(
        Stream("text"),
        stream(STRICT, columns, "hits"),
        transform=lambda raw: raw.selectExpr(*chosen.values(), "lineage"),
    )
    good_record, *misfits = written(made, ["good", *MISFITS])
    assert good_record == (FIRST + STRICT(id="a", tags=["a"], left="l").SerializeToString(), None)
    for (value, unfit), (_, expected) in zip(misfits, MISFITS.values(), strict=True):
        assert value is None
        assert (unfit or "").startswith("the record does not fit the Protobuf message of hits: ")
        assert expected in (unfit or "")


def test_any_schema_is_read_as_the_declared_message() -> None:
    old, new = hit(field(1, "id", "string")), hit(field(1, "id", "string"), optional(3, "team", "string"))
    by_old = header(20_000) + b"\0" + old(id="a").SerializeToString()
    by_new = header(7) + b"\0" + new(id="b", team="red").SerializeToString()
    rows = run(tier(stream(old), stream(old, "id string", "o")), [by_old, by_new]).rows
    assert rows == [{"id": "a"}, {"id": "b"}]
    rows = run(tier(stream(new), stream(new, "id string, team string", "o")), [by_old, by_new]).rows
    assert rows == [{"id": "a", "team": None}, {"id": "b", "team": "red"}]


def test_a_message_within_another_has_its_place_in_each_record() -> None:
    outer = message("Outer", nested=[message("Gap"), message("Inner", field(1, "id", "string"))])
    kind = message_class(file("outer.proto", message("Other"), outer), name="Outer.Inner")
    made = tier(
        stream(kind), Stream("o", "id string", format=PublishedProtobuf(kind, 9)), transform=lambda raw: raw
    )
    place = b"\x04\x02\x02"
    record = header(3) + place + kind(id="a").SerializeToString()
    assert written(made, [record]) == [(header(9) + record[5:], None)]
    (row,) = run(made, [FIRST]).quarantined
    assert (
        "is of the message [0] of its schema, but the stream has hits.Outer.Inner, which is [1, 1]"
        in row["reason"]
    )


@pytest.mark.parametrize(
    ("columns", "transform", "expected"),
    [
        ("id bigint", lambda raw: raw, "its Protobuf message has 'id string'; declare these columns"),
        ("id string", lambda raw: raw.drop("id"), "id as string, but the transform does not return it"),
        ("id string", lambda raw: raw.withColumn("id", F.lit(1)), "the transform returns it as int"),
    ],
)
def test_a_tier_that_does_not_fit_its_message_is_refused(
    columns: str, transform: Callable[..., Any], expected: str
) -> None:
    kind = hit(field(1, "id", "string"))
    with pytest.raises(DeclarationError) as refused:
        run(tier(stream(kind), stream(kind, columns, "hits"), transform=transform), [])
    assert expected in str(refused.value)


def test_a_record_of_a_test_is_given_as_columns() -> None:
    at = datetime(2026, 11, 29, 10, tzinfo=UTC)
    given_columns = {"a_bytes": b"\xff", "a_uint64": 2**64 - 1, "at": at, "items": [{"price": Decimal(3)}]}
    given_columns |= {"by_number": {7: {"name": "pen"}}, "kind": "SELL", "a_string": None}
    (row,) = run(COPIES, [given_columns]).rows
    assert (row["a_bytes"], row["a_uint64"], row["at"]) == (
        b"\xff",
        Decimal(2**64 - 1),
        at.astimezone().replace(tzinfo=None),
    )
    assert row["items"] == [{"name": "", "price": Decimal(3)}]
    assert row["by_number"] == {Decimal(7): {"name": "pen", "price": None}}
    assert (row["kind"], row["a_string"]) == ("SELL", "")
    with pytest.raises(DeclarationError, match=r"Protobuf message: Failed to parse kind field: .*GIVE"):
        run(COPIES, [{"kind": "GIVE"}])
    with pytest.raises(DeclarationError, match=r"Failed to parse a_int32 field: .*out of range"):
        run(COPIES, [{"a_int32": 2**31}])
    with pytest.raises(DeclarationError, match='"raw" has no column name'):
        run(COPIES, [{"name": "anna"}])
