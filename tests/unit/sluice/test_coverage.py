"""The audit's verdicts: whatever order records come in, lost is exactly what never came out, and nothing is called lost too early."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.audit.coverage import Coverage, ranges

OFFSETS = st.lists(st.integers(0, 40), max_size=120)


@given(out=OFFSETS, safe=st.integers(0, 45))
def test_lost_is_exactly_what_is_claimed_and_has_not_come_out(out: list[int], safe: int) -> None:
    one = Coverage(0)
    for offset in out:
        one.add(offset)
    missing = one.judge(safe)
    assert missing == [offset for offset in range(safe + 1) if offset not in set(out)]
    assert (one.once, one.again) == (len(set(out)), len(out) - len(set(out)))
    assert one.judged > safe
    assert all(offset > one.judged for offset in one.ahead)


@given(out=OFFSETS, claims=st.lists(st.integers(-1, 45), max_size=5))
def test_judging_in_steps_says_the_same_as_at_once(out: list[int], claims: list[int]) -> None:
    stepwise, at_once = Coverage(0), Coverage(0)
    for offset in out:
        stepwise.add(offset)
        at_once.add(offset)
    found = [offset for claim in claims for offset in stepwise.judge(claim)]
    assert found == at_once.judge(max(claims, default=-1))


@given(out=st.permutations(range(30)), cut=st.integers(0, 30))
def test_what_is_judged_needs_no_memory(out: list[int], cut: int) -> None:
    one = Coverage(0)
    for offset in out:
        one.add(offset)
    assert (one.judged, one.ahead, one.judge(cut - 1)) == (30, set(), [])


def test_ranges_are_short() -> None:
    assert ranges([7, 1, 2, 3, 9, 8]) == [(1, 3), (7, 9)]


@given(out=OFFSETS, gone=st.integers(0, 45))
def test_what_is_passed_over_is_neither_lost_nor_out(out: list[int], gone: int) -> None:
    one = Coverage(0)
    for offset in out:
        one.add(offset)
    judged, known = one.judged, set(out)
    one.pass_over(gone)
    assert one.unseen == len(set(range(judged, gone)) - known)
    assert one.judge(max(gone - 1, 0)) == ([0] if gone == 0 else [])
