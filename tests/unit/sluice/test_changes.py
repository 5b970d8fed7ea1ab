"""What a state has changed, on its way to the table: each key's newest row, and no value of Spark's stops it."""

import pyarrow as pa
import pytest

from sluice.api.sink import Unfit
from sluice.driver.engine.stateful import Changes, values
from sluice.sinks.table import Latest

YEAR_10000, YEAR_0 = 253_402_300_800 * 10**6, -62_135_596_801 * 10**6
"""Microseconds."""


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC")])
def test_a_time_that_python_has_no_word_for_is_told_from_others(kind: pa.DataType) -> None:
    found = values(pa.chunked_array([pa.array([0, YEAR_10000, None, YEAR_0], kind)]))
    assert found[0].year == 1970
    assert found[2] is None
    assert str(found[1]).startswith("10000-01-01 00:00:00")
    assert str(found[3]).startswith("0000-12-31 23:59:59")


def test_so_is_a_text_that_is_none() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"ab\xff")]
    )
    good, bad = values(pa.chunked_array([text]))
    assert good == "a"
    assert str(bad).startswith("b\\xff is no value that its table takes")


def test_what_is_in_a_list_does_not_stop_it_either() -> None:
    (found,) = values(pa.chunked_array([pa.array([[YEAR_10000]], pa.list_(pa.timestamp("us")))]))
    assert isinstance(found, Unfit)


def test_each_key_has_its_newest_row_though_it_is_no_value() -> None:
    changes = Changes(Latest("windows", {"since": "timestamp", "n": "bigint"}, key=("since",)))
    for n in (1, 2):
        changes.take(pa.table({"since": pa.array([0, YEAR_10000, YEAR_0], pa.timestamp("us")), "n": [n] * 3}))
    assert changes.rows().columns["n"] == (2, 2, 2)
