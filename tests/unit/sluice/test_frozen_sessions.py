"""Whose session it is that holds a tier's row."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.sinks.frozen_writers import MAX_NAME_BYTES, Right, right_of

RIGHTS = st.builds(Right, st.integers(0, 10**9), st.integers(0, 10**6))
TIERS = st.text(st.characters(codec="ascii", categories=("L", "N", "Pd")), min_size=1, max_size=80)


@given(RIGHTS, TIERS)
def test_a_session_is_known_by_its_name(right: Right, tier: str) -> None:
    assert right_of(right.name(tier), tier) == right
    assert len(right.name(tier)) <= MAX_NAME_BYTES


@given(RIGHTS, TIERS, TIERS)
def test_another_tiers_session_is_not_taken_for_it(right: Right, tier: str, other: str) -> None:
    same = right.name(tier) == right.name(other)
    assert (right_of(right.name(tier), other) is not None) is same
    assert same is (tier == other) or max(len(tier), len(other)) > 30


def test_what_has_no_such_name_is_nobodys() -> None:
    for name in ("", "psql", "sluice 1 counts", "sluice x 1 counts", "sluice 1 1 "):
        assert right_of(name, "counts") is None
