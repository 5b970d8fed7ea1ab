"""Changed rows of a state on their way to the table: the newest row of each key is written, and
values that Python cannot express are refused one by one.
"""

import pyarrow as pa
import pytest

from sluice.api.sink import Unfit
from sluice.driver.engine.stateful import Changes, values
from sluice.sinks.table import Latest

YEAR_10000, YEAR_0 = 253_402_300_800 * 10**6, -62_135_596_801 * 10**6
"""Unit: microseconds."""


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC")])
def test_a_time_that_python_cannot_express_is_marked_as_unfit(kind: pa.DataType) -> None:
    converted = values(pa.chunked_array([pa.array([0, YEAR_10000, None, YEAR_0], kind)]))
    assert converted[0].year == 1970
    assert converted[2] is None
    assert str(converted[1]).startswith("10000-01-01 00:00:00")
    assert str(converted[3]).startswith("0000-12-31 23:59:59")


def test_a_text_that_is_not_utf_8_is_marked_as_unfit() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"ab\xff")]
    )
    good, bad = values(pa.chunked_array([text]))
    assert good == "a"
    assert str(bad).startswith("b\\xff does not fit its column")


def test_an_unfit_value_in_a_list_makes_the_list_unfit() -> None:
    (converted,) = values(pa.chunked_array([pa.array([[YEAR_10000]], pa.list_(pa.timestamp("us")))]))
    assert isinstance(converted, Unfit)


def test_an_unfit_key_has_its_newest_row_too() -> None:
    changes = Changes(Latest("windows", {"since": "timestamp", "n": "bigint"}, key=("since",)))
    for n in (1, 2):
        changes.take(pa.table({"since": pa.array([0, YEAR_10000, YEAR_0], pa.timestamp("us")), "n": [n] * 3}))
    assert changes.rows().columns["n"] == (2, 2, 2)
