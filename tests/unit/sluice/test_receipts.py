"""The last of a tier's receipts is the one with the furthest positions, whatever the clocks of
hosts say.
"""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.control.control_channel import last_of
from sluice_ops.model.incarnation import Receipt


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8),
    st.lists(st.floats(-1e4, 1e4), min_size=8),
)
def test_the_receipt_with_the_furthest_positions_is_the_last(steps, clocks):
    first = second = 0
    receipts = []
    for (step, other_step), at in zip(steps, clocks, strict=False):
        first, second = first + step + 1, second + other_step
        receipts.append(Receipt(positions={"in/0": first, "in/1": second}, at=at))
    assert last_of(reversed(receipts)) == receipts[-1]


def test_of_receipts_with_equal_positions_the_later_is_the_last():
    early, late = (Receipt(positions={"in/0": 7}, at=at) for at in (1.0, 2.0))
    assert last_of([late, early]) == late
    assert last_of([]) is None
