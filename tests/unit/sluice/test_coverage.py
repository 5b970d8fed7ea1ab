"""The audit's verdicts: exactly the records that never came out are lost, in whatever order records
arrive, and no verdict comes too early.
"""

from hypothesis import given
from hypothesis import strategies as st

from sluice.audit.coverage import Coverage, ranges

OFFSETS = st.lists(st.integers(0, 40), max_size=120)


@given(out=OFFSETS, safe=st.integers(0, 45))
def test_exactly_the_claimed_records_without_output_are_lost(out: list[int], safe: int) -> None:
    coverage = Coverage(0)
    for offset in out:
        coverage.add(offset)
    missing = coverage.judge(safe)
    assert missing == [offset for offset in range(safe + 1) if offset not in set(out)]
    assert (coverage.once, coverage.again) == (len(set(out)), len(out) - len(set(out)))
    assert coverage.judged > safe
    assert all(offset > coverage.judged for offset in coverage.ahead)


@given(out=OFFSETS, claims=st.lists(st.integers(-1, 45), max_size=5))
def test_judging_in_steps_gives_the_same_losses_as_at_once(out: list[int], claims: list[int]) -> None:
    stepwise, at_once = Coverage(0), Coverage(0)
    for offset in out:
        stepwise.add(offset)
        at_once.add(offset)
    losses = [offset for claim in claims for offset in stepwise.judge(claim)]
    assert losses == at_once.judge(max(claims, default=-1))


@given(out=st.permutations(range(30)), cut=st.integers(0, 30))
def test_judged_offsets_need_no_memory(out: list[int], cut: int) -> None:
    coverage = Coverage(0)
    for offset in out:
        coverage.add(offset)
    assert (coverage.judged, coverage.ahead, coverage.judge(cut - 1)) == (30, set(), [])


def test_ranges_are_short() -> None:
    assert ranges([7, 1, 2, 3, 9, 8]) == [(1, 3), (7, 9)]


@given(out=OFFSETS, first_kept=st.integers(0, 45))
def test_skipped_offsets_are_neither_lost_nor_out(out: list[int], first_kept: int) -> None:
    coverage = Coverage(0)
    for offset in out:
        coverage.add(offset)
    judged, known = coverage.judged, set(out)
    coverage.pass_over(first_kept)
    assert coverage.unseen == len(set(range(judged, first_kept)) - known)
    assert coverage.judge(max(first_kept - 1, 0)) == ([0] if first_kept == 0 else [])
