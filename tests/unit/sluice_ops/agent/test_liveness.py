"""Verdict on hung processes: a live process never counts as hung, and a hung one does within its
limit, for all clocks and look times.
"""

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
"""Seconds from one look to the next; includes a machine that was suspended for a day."""
STANDINGS = st.sampled_from(Activity)


@given(st.lists(st.tuples(PASSED, STANDINGS)))
def test_a_process_with_a_beat_between_two_looks_is_never_hung(looks: list[tuple[float, Activity]]) -> None:
    silence = None
    for beat, (passed, standing) in enumerate(looks):
        silence = next_silence(silence, beat, standing, passed)
        assert silence.hung() is None


@given(st.lists(st.tuples(st.booleans(), PASSED, STANDINGS)))
def test_one_silent_look_however_late_ends_only_a_stopped_process(
    looks: list[tuple[bool, float, Activity]],
) -> None:
    silence, beat = None, 0
    for before, (beats, passed, standing) in pairwise([(True, 0.0, Activity.AT_WORK), *looks]):
        beat += beats or not before[0]  # no two silent looks in a row
        silence = next_silence(silence, beat, standing, passed)
        assert silence.hung() in {None, Activity.STOPPED}


@given(STANDINGS, st.integers(0, 50))
def test_a_hung_process_is_detected_within_its_limit(standing: Activity, alive: int) -> None:
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
def test_a_slow_process_has_its_limit_in_watched_time(looks: list[float]) -> None:
    silence = Silence(1)
    for passed in looks:
        silence = next_silence(silence, 1, Activity.AT_WORK, passed)
    watched = sum(min(passed, MOST_SECONDS) for passed in looks)
    assert (silence.hung() is Activity.AT_WORK) is (
        watched >= LIMITS[Activity.AT_WORK] - 1e-9
    ) or watched == pytest.approx(60)


def test_a_process_that_runs_again_starts_with_a_full_limit() -> None:
    silence = Silence(1)
    for _ in range(3):
        for standing in (*[Activity.STILL] * 5, Activity.AT_WORK):
            silence = next_silence(silence, 1, standing, LOOK_SECONDS)
            assert silence.hung() is None
