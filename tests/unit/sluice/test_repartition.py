"""A repartitioned state has the content of the state before, or is refused; and after damage, older
checkpoints are tried.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.engine.stateful import TRIES, damaged, older
from sluice.driver.state.repartition import RepartitionError, StoreContent, refuse_difference
from sluice.sinks.batches import LastBatch

STORES = st.dictionaries(
    st.sampled_from(["0/default/default", "1/left/default", "1/right/default"]),
    st.builds(StoreContent, st.integers(1, 9), st.integers()),
)


@given(before=STORES, after=STORES)
def test_exactly_the_states_that_differ_are_refused(
    before: dict[str, StoreContent], after: dict[str, StoreContent]
) -> None:
    if before == after:
        refuse_difference(before, after)
    else:
        with pytest.raises(RepartitionError, match=r"keys before, \d+ after"):
            refuse_difference(before, after)


@given(numbers=st.sets(st.integers(0, 20)), broken=st.lists(st.integers(0, 20), max_size=4))
def test_each_damaged_checkpoint_leads_to_an_older_one_or_to_none(
    numbers: set[int], broken: list[int]
) -> None:
    endings = [LastBatch(number, {}, 0.0, 0.0) for number in sorted(numbers, reverse=True)]
    candidates = [batch.number for batch in older(endings, broken)]
    if len(broken) >= TRIES:
        assert candidates == []
    else:
        assert candidates == [
            number for number in sorted(numbers, reverse=True) if not broken or number < min(broken)
        ]


def test_only_a_state_that_spark_cannot_load_is_damaged() -> None:
    assert damaged(
        RuntimeError("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.")
    )
    assert not damaged(RuntimeError("division by zero"))
    assert not damaged(None)
