"""The text of an array is the one that psycopg makes, value by value."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.array import ListDumper
from psycopg.types.string import TextLoader

from sluice.postgres import FlatListDumper

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TIMES = st.datetimes(timezones=st.none() | st.just(UTC))
COLUMNS = st.one_of(
    *(st.lists(st.none() | values) for values in (TEXTS, TIMES, st.integers(), st.booleans(), st.decimals()))
)


def dumped(kind: type[ListDumper], column: list[Any]) -> bytes:
    return bytes(kind(list, Transformer()).upgrade(column, PyFormat.TEXT).dump(column) or b"")


def read(array: bytes) -> list[str | None]:
    """Return the values of an array as texts."""
    transformer = Transformer()
    transformer.adapters.register_loader("text", TextLoader)
    loader = transformer.get_loader(psycopg.adapters.types["text"].array_oid, psycopg.pq.Format.TEXT)
    values: list[str | None] = loader.load(array)
    return values


@given(COLUMNS)
def test_an_array_has_the_same_values_as_psycopg_s(column: list[Any]) -> None:
    assert read(dumped(FlatListDumper, column)) == read(dumped(ListDumper, column))


@pytest.mark.parametrize(
    "column",
    [["NULL", None], ['a"b', "c,d"], ["a\\", "{}"], ["", " "], [[1, 2], [3, 4]], [Decimal("NaN"), None]],
)
def test_special_values_are_quoted(column: list[Any]) -> None:
    assert read(dumped(FlatListDumper, column)) == read(dumped(ListDumper, column))


def test_a_text_with_a_nul_is_refused_as_before() -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        dumped(FlatListDumper, ["a\0b"])


def test_equal_times_keep_their_own_zone() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert read(dumped(FlatListDumper, [now, None, now])) == [str(now), None, str(now)]
