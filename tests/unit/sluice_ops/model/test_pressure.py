"""Watermarks: the lag at which a tier counts as too far behind."""

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
def test_the_verdict_changes_only_beyond_the_other_watermark(lags_in_order):
    over = False
    for lag in lags_in_order:
        before, over = over, is_over(lag, MARKS, before=over)
        if above(lag, MARKS.high):
            assert over
        elif not above(lag, MARKS.low):
            assert not over
        else:
            assert over is before, "the verdict stays between the watermarks"


def test_watermarks_that_are_not_apart_are_refused_with_both():
    with pytest.raises(
        ValidationError, match=r"low \(500 records, 30 s\) must be below high \(500 records, 120 s\)"
    ):
        Watermarks(high=Lag(records=500, seconds=120), low=Lag(records=500, seconds=30))
