"""Names of PostgreSQL sessions: which incarnation's session holds a tier's row."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.sinks.frozen_writers import MAX_NAME_BYTES, Right, right_of

RIGHTS = st.builds(Right, st.integers(0, 10**9), st.integers(0, 10**6))
TIERS = st.text(st.characters(codec="ascii", categories=("L", "N", "Pd")), min_size=1, max_size=80)


@given(RIGHTS, TIERS)
def test_the_right_of_a_session_is_read_from_its_name(right: Right, tier: str) -> None:
    assert right_of(right.name(tier), tier) == right
    assert len(right.name(tier)) <= MAX_NAME_BYTES


@given(RIGHTS, TIERS, TIERS)
def test_a_session_of_another_tier_is_not_recognised(right: Right, tier: str, other_tier: str) -> None:
    same = right.name(tier) == right.name(other_tier)
    assert (right_of(right.name(tier), other_tier) is not None) is same
    assert same is (tier == other_tier) or max(len(tier), len(other_tier)) > 30


def test_a_session_with_another_name_has_no_right() -> None:
    for name in ("", "psql", "sluice 1 counts", "sluice x 1 counts", "sluice 1 1 "):
        assert right_of(name, "counts") is None
