"""A state that was spread anew is the one that it was made of, or it is refused; and what is tried when a checkpoint is damaged."""

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
def test_what_differs_is_refused_and_nothing_else(
    before: dict[str, StoreContent], after: dict[str, StoreContent]
) -> None:
    if before == after:
        refuse_difference(before, after)
    else:
        with pytest.raises(RepartitionError, match=r"keys before, \d+ after"):
            refuse_difference(before, after)


@given(numbers=st.sets(st.integers(0, 20)), broken=st.lists(st.integers(0, 20), max_size=4))
def test_each_damaged_checkpoint_leads_to_an_older_one_and_at_last_to_none(
    numbers: set[int], broken: list[int]
) -> None:
    endings = [LastBatch(number, {}, 0.0, 0.0) for number in sorted(numbers, reverse=True)]
    left = [each.number for each in older(endings, broken)]
    if len(broken) >= TRIES:
        assert left == []
    else:
        assert left == [
            number for number in sorted(numbers, reverse=True) if not broken or number < min(broken)
        ]


def test_only_what_spark_could_not_load_is_damage() -> None:
    assert damaged(
        RuntimeError("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.")
    )
    assert not damaged(RuntimeError("division by zero"))
    assert not damaged(None)
