"""Watermarks: when a tier is behind too far."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluice_ops.model.backpressure import Lag, Watermarks, is_over

lags = st.builds(Lag, records=st.integers(0, 400_000), seconds=st.floats(0, 300))
MARKS = Watermarks()


def above(lag, mark):
    return lag.records > mark.records or lag.seconds > mark.seconds


@given(st.lists(lags))
def test_it_changes_only_across_the_other_watermark(seen):
    over = False
    for lag in seen:
        before, over = over, is_over(lag, MARKS, before=over)
        if above(lag, MARKS.high):
            assert over
        elif not above(lag, MARKS.low):
            assert not over
        else:
            assert over is before, "between the watermarks nothing changes"


def test_watermarks_that_are_not_apart_are_refused_with_both():
    with pytest.raises(
        ValidationError, match=r"low \(500 records, 30 s\) must be below high \(500 records, 120 s\)"
    ):
        Watermarks(high=Lag(records=500, seconds=120), low=Lag(records=500, seconds=30))
