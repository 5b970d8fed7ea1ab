"""Types of columns that do not exist are found when the pipeline is declared."""

import string

import pyspark.sql.types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api.column_types import STREAM_TYPES, TABLE_TYPES, columns, unknown_in_stream, unknown_in_table
from sluice.api.declarations import DeclarationError, JobTable, Pipeline, Stream, Tier
from sluice.sinks.table import Once
from sluice_ops.model.tier import Kind, Mode

SIMPLE = sorted(STREAM_TYPES - {"array", "map", "struct"})
NESTED = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        inner.map("map<string, {}>".format),
        st.tuples(inner, inner).map(lambda pair: f"struct<a: {pair[0]}, `b c`: {pair[1]} not null>"),
    ),
    max_leaves=5,
)


@given(st.lists(NESTED, min_size=1, max_size=4))
def test_types_of_spark_are_known_however_deep_they_are(kinds):
    assert [*unknown_in_stream(", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds)))] == []


@given(NESTED, st.text(string.ascii_lowercase, min_size=1, max_size=9))
def test_a_wrong_word_is_found_at_any_depth(kind, word):
    faults = [*unknown_in_stream(f"id string, c struct<x: array<{word}>, y: {kind}> comment 'y'")]
    assert len(faults) == (word not in STREAM_TYPES)
    assert all(f'the column "c" has the type {word}, which does not exist' in line for line in faults)


@given(st.text())
def test_any_text_is_read_without_an_error_of_its_own(text):
    assert isinstance([*unknown_in_stream(text), *unknown_in_table({"c": text})], list)


def test_every_type_of_this_spark_is_known():
    own = {"byte", "short", "long", "yearmonthinterval", "daytimeinterval"}
    names = {kind.typeName() for kind in pyspark.sql.types._atomic_types}
    assert names - own <= STREAM_TYPES
    assert {*columns("a byte, b short, c long").values()} <= STREAM_TYPES


@pytest.mark.parametrize(
    ("kind", "meant"),
    [("integr", "integer"), ("BigIn NOT NULL", "bigint"), ("strng", None), ("varchr(3)", "varchar")],
)
def test_a_typing_error_in_a_table_is_found_with_the_type_that_was_meant(kind, meant):
    faults = [*unknown_in_table({"n": kind})]
    assert len(faults) == (meant is not None), "an unlike word may be a type of the database"
    assert all(f"write {meant}, or for a type of your own its schema" in line for line in faults)


@pytest.mark.parametrize("kind", ["public.integr", "mood", "double precision", "timestamp(3) with time zone"])
def test_types_of_the_database_itself_are_left_to_it(kind):
    assert [*unknown_in_table({"n": kind})] == []


@given(st.sampled_from(sorted(TABLE_TYPES)), st.sampled_from(["", "[]", "(9)", " NOT NULL", " DEFAULT 1"]))
def test_types_of_postgresql_are_known_with_what_may_follow(kind, more):
    assert [*unknown_in_table({"n": kind + more, "m": kind.upper() + more})] == []


def declared(stream="id string", sink="text", job="bigint"):
    raw, made = Stream("raw"), Stream("made", stream)
    first = Tier("first", Kind.ENTRY, (raw,), lambda records: records, outputs=(made,))
    table = Once("rows", {"id": sink})
    last = Tier("last", Kind.OUTBOUND, (made,), lambda records: records, sink=table, mode=Mode.BATCH)
    return Pipeline((first, last), (JobTable("daily", {"n": job}, ("n",)),))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"stream": "id integr"}, 'stream "made": the column "id" has the type integr, .* write integer'),
        ({"stream": "id text"}, 'stream "made": the column "id" has the type text, .* types: array, bigint'),
        ({"sink": "txt"}, 'table "rows": the column "id" has the type txt, .* write text'),
        ({"job": "integr"}, 'table "daily": the column "n" has the type integr, .* write integer'),
    ],
)
def test_a_pipeline_with_an_unknown_type_is_refused(columns, message):
    assert declared().tier("last").sink.columns == {"id": "text"}
    with pytest.raises(DeclarationError, match=message):
        declared(**columns)
