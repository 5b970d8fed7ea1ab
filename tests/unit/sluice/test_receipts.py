"""Which of a tier's receipts is the last: the furthest, whatever the clocks of their hosts say."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.control.control_channel import last_of
from sluice_ops.model.incarnation import Receipt


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8),
    st.lists(st.floats(-1e4, 1e4), min_size=8),
)
def test_the_furthest_is_the_last(steps, clocks):
    first = second = 0
    receipts = []
    for (one, other), at in zip(steps, clocks, strict=False):
        first, second = first + one + 1, second + other
        receipts.append(Receipt(positions={"in/0": first, "in/1": second}, at=at))
    assert last_of(reversed(receipts)) == receipts[-1]


def test_of_two_in_one_place_it_is_the_later_one():
    early, late = (Receipt(positions={"in/0": 7}, at=at) for at in (1.0, 2.0))
    assert last_of([late, early]) == late
    assert last_of([]) is None
