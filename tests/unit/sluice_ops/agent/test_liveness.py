"""Who counts as hung: a living process never does, and a hung one within its limit, whatever clocks and looks do."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.agent.watch.liveness import (
    LIMITS,
    LOOK_SECONDS,
    MOST_SECONDS,
    Activity,
    Silence,
    next_silence,
)

PASSED = st.floats(0.0, 100_000.0)
"""From one look to the next: also a machine that was suspended for a day."""
STANDINGS = st.sampled_from(Activity)


@given(st.lists(st.tuples(PASSED, STANDINGS)))
def test_who_beats_between_any_two_looks_is_never_hung(looks: list[tuple[float, Activity]]) -> None:
    silence = None
    for beat, (passed, standing) in enumerate(looks):
        silence = next_silence(silence, beat, standing, passed)
        assert silence.hung() is None


@given(st.lists(st.tuples(st.booleans(), PASSED, STANDINGS)))
def test_one_silent_look_however_late_ends_only_what_is_stopped(
    looks: list[tuple[bool, float, Activity]],
) -> None:
    silence, beat = None, 0
    for before, (beats, passed, standing) in pairwise([(True, 0.0, Activity.AT_WORK), *looks]):
        beat += beats or not before[0]  # no two silent looks in a row
        silence = next_silence(silence, beat, standing, passed)
        assert silence.hung() in {None, Activity.STOPPED}


@given(STANDINGS, st.integers(0, 50))
def test_who_hangs_is_found_within_its_limit(standing: Activity, alive: int) -> None:
    silence = None
    for beat in range(alive + 1):
        silence = next_silence(silence, beat, Activity.AT_WORK, LOOK_SECONDS)
    seconds = 0.0
    while silence is not None and silence.hung() is None:
        silence = next_silence(silence, alive, standing, LOOK_SECONDS)
        seconds += LOOK_SECONDS
    assert silence is not None
    assert silence.hung() is standing or standing is Activity.STOPPED
    assert seconds <= LIMITS[standing] + LOOK_SECONDS


@given(st.lists(PASSED, min_size=1))
def test_who_is_only_slow_has_its_time_by_the_watchers_own_looks(looks: list[float]) -> None:
    silence = Silence(1)
    for passed in looks:
        silence = next_silence(silence, 1, Activity.AT_WORK, passed)
    watched = sum(min(passed, MOST_SECONDS) for passed in looks)
    assert (silence.hung() is Activity.AT_WORK) is (
        watched >= LIMITS[Activity.AT_WORK] - 1e-9
    ) or watched == pytest.approx(60)


def test_who_stood_still_and_ran_again_begins_anew() -> None:
    silence = Silence(1)
    for _ in range(3):
        for standing in (*[Activity.STILL] * 5, Activity.AT_WORK):
            silence = next_silence(silence, 1, standing, LOOK_SECONDS)
            assert silence.hung() is None
