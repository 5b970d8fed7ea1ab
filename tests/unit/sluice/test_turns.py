"""Turns of incarnations at a sink: each offset is written once, however the incarnations
interleave.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.driver.engine.batch_writer import may_take_over
from sluice.sinks.batches import Batch, BatchGapError, LastBatch, LedgerMovedError

PARTITIONS = ("in/0", "in/1")
steps = st.lists(
    st.tuples(
        st.sampled_from(("read", "write", "begin")),
        st.integers(0, 2),
        st.tuples(st.integers(0, 5), st.integers(0, 5)),
    )
)


class Reader:
    """An incarnation that reads ahead, and keeps one batch until it may write it."""

    def __init__(self, begins):
        self.read = begins
        self.batch = None

    def take(self, more):
        self.batch = Batch(
            self.read, {name: self.read[name] + count for name, count in zip(PARTITIONS, more, strict=True)}
        )
        self.read = self.batch.ends


@given(steps)
def test_batches_follow_each_other_whichever_incarnation_writes(script):
    nothing = dict.fromkeys(PARTITIONS, 0)
    readers = [Reader(nothing) for _ in range(3)]
    ledger_ends, written = nothing, []
    for step, index, more in script:
        reader = readers[index]
        if step == "begin":
            readers[index] = Reader(ledger_ends)
        elif step == "read" and reader.batch is None:
            reader.take(more)
        elif step == "write" and reader.batch is not None:
            rest = reader.batch.rest(ledger_ends)
            reader.batch = None
            if rest is not None:
                rest.expect(LastBatch(len(written), ledger_ends, 0.0, 0.0))
                written.append(rest)
                ledger_ends = rest.ends
    before = nothing
    for batch in written:
        assert batch.begins == before
        assert all(batch.ends[name] >= batch.begins[name] for name in PARTITIONS)
        assert batch.records > 0
        before = batch.ends


class StatefulReader:
    """An incarnation with state: the number of records read of each key, and the changes that are
    not written.
    """

    def __init__(self, ends, counts):
        self.level, self.ends, self.counts, self.changes = ends, ends, Counter(counts), {}

    def read(self, more):
        for name, count in zip(PARTITIONS, more, strict=True):
            for offset in range(self.ends[name], self.ends[name] + count):
                self.counts[offset % 3] += 1
                self.changes[offset % 3] = self.counts[offset % 3]
        self.ends = {name: self.ends[name] + count for name, count in zip(PARTITIONS, more, strict=True)}

    def write(self, ledger_ends, table):
        """Write as a tier with state does, and return the new ends of the ledger."""
        batch = Batch(self.level, self.ends)
        rest = batch.rest(ledger_ends)
        if rest is None:
            self.level = self.ends
        elif batch.reaches(rest.begins):
            table.update(self.changes)
            self.level, self.changes = self.ends, {}
            return rest.ends
        return ledger_ends


@settings(max_examples=400)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("read", "read", "write", "write", "begin")),
            st.integers(0, 1),
            st.tuples(st.integers(0, 2), st.integers(0, 2)),
        ),
        min_size=4,
    )
)
def test_results_equal_the_records_up_to_the_ledgers_end(script):
    nothing = dict.fromkeys(PARTITIONS, 0)
    ledger_ends, table, checkpoint = nothing, {}, (nothing, Counter())
    readers = [StatefulReader(nothing, {}) for _ in range(2)]
    for step, index, more in script:
        if step == "begin":
            readers[index] = StatefulReader(*checkpoint)
        elif step == "read":
            readers[index].read(more)
        else:
            before, ledger_ends = ledger_ends, readers[index].write(ledger_ends, table)
            if ledger_ends != before:
                checkpoint = (ledger_ends, Counter(readers[index].counts))
            assert table == Counter(offset % 3 for end in ledger_ends.values() for offset in range(end))


def test_a_batch_that_would_leave_a_gap_is_refused():
    with pytest.raises(BatchGapError, match="begins at offset 7, and the ledger ends at 5"):
        Batch({"in/0": 7}, {"in/0": 9}).rest({"in/0": 5})


def test_a_batch_is_written_only_at_the_end_of_the_ledger():
    batch = Batch({"in/0": 5}, {"in/0": 9})
    batch.expect(None)
    batch.expect(LastBatch(3, {"in/0": 5}, 0.0, 0.0))
    for ends in (6, 9, 12):
        with pytest.raises(LedgerMovedError):
            batch.expect(LastBatch(3, {"in/0": ends}, 0.0, 0.0))
    with pytest.raises(BatchGapError):
        batch.expect(LastBatch(3, {"in/0": 4}, 0.0, 0.0))


@pytest.mark.parametrize(
    ("records", "most", "is_full"),
    [(0, 10, False), (8, 10, False), (9, 10, True), (10, 10, True), (0, 1, False), (1, 1, True)],
)
def test_a_batch_is_full_if_rounding_explains_what_it_lacks(records, most, is_full):
    batch = Batch({"in/0": 5, "in/1": 5}, {"in/0": 5 + records // 2, "in/1": 5 + records - records // 2})
    assert batch.is_full(most) is is_full


def test_a_new_partition_is_read_from_its_begin():
    batch = Batch({"in/0": 5, "in/1": 0}, {"in/0": 5, "in/1": 3})
    assert batch.rest({"in/0": 5}) == batch


@pytest.mark.parametrize(
    ("age", "waited", "may_write"),
    [(0.1, 0.0, True), (1.0, 0.0, False), (1.9, 19.0, False), (4.5, 0.0, True), (1.0, 21.0, True)],
)
def test_a_successor_takes_over_after_a_commit_or_from_a_silent_owner(age, waited, may_write):
    assert may_take_over(age, waited) is may_write


@pytest.mark.parametrize(
    ("age", "waited", "may_write"), [(0.1, 0.0, False), (4.5, 0.0, True), (0.1, 21.0, True)]
)
def test_a_batch_that_goes_back_leaves_the_turn_to_an_owner_that_writes(age, waited, may_write):
    assert may_take_over(age, waited, goes_back=True) is may_write


@pytest.mark.parametrize(
    ("own", "last", "goes_back"),
    [(5, 6, True), (6, 6, False), (7, 6, False), (None, 6, False), (5, None, False)],
)
def test_a_batch_goes_back_if_its_watermark_is_lower_than_the_last_ones(own, last, goes_back):
    batch = Batch({"in/0": 5}, {"in/0": 9}, watermark=own).rest({"in/0": 7})
    assert batch is not None
    assert batch.goes_back(LastBatch(3, {"in/0": 7}, 0.0, 0.0, watermark=last)) is goes_back
