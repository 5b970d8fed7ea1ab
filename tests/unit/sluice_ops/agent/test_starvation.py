"""The verdict on starvation: a verdict changes only after a full minute of evidence."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.agent.host.processes import CpuTime
from sluice_ops.agent.watch.starvation import (
    TURN_SECONDS,
    WINDOW_SECONDS,
    Verdict,
    is_starved,
    next_busy_part,
    next_verdict,
)

WINDOWS = st.lists(st.tuples(st.booleans(), st.floats(WINDOW_SECONDS, 3 * WINDOW_SECONDS)), max_size=60)


def starved(ran: float, waited: float, cpu: float = 1.0, idle: float = 0.0) -> bool:
    return is_starved(CpuTime(ran, waited), 10.0, cpu, idle)


def test_a_unit_that_waits_more_than_it_runs_below_its_quantum_is_starved() -> None:
    assert starved(ran=2.0, waited=8.0)
    assert not starved(ran=7.0, waited=3.0), "the unit runs more than it waits"


def test_a_unit_that_has_its_quantum_is_not_starved() -> None:
    assert not starved(ran=9.5, waited=40.0)
    assert starved(ran=9.5, waited=40.0, cpu=2.0)


def test_a_nearly_idle_unit_is_not_starved() -> None:
    assert not starved(ran=0.1, waited=0.8)


def test_a_unit_that_waits_on_an_idle_machine_is_not_starved() -> None:
    assert not starved(ran=1.0, waited=5.0, idle=0.5)


def turns(windows: list[tuple[bool, float]]) -> list[tuple[float, bool]]:
    """Judge the windows in order; return the time of each changed verdict, and the verdict."""
    verdict, now, turned = Verdict(), 0.0, []
    for starved, seconds in windows:
        before, begun, now = verdict, now, now + seconds
        verdict = next_verdict(before, holds=starved, begun=begun, now=now, wall=5000.0 + now)
        if (verdict.since is None) is not (before.since is None):
            turned.append((now, verdict.since is not None))
        else:
            assert verdict.since == before.since, "the start of the starvation stays"
    return turned


@given(WINDOWS)
def test_starvation_turns_at_most_once_a_minute_after_a_minutes_evidence(
    windows: list[tuple[bool, float]],
) -> None:
    turned = turns(windows)
    assert [starved for _, starved in turned] == [number % 2 == 0 for number in range(len(turned))]
    ends = [sum(seconds for _, seconds in windows[: number + 1]) for number in range(len(windows))]
    for turned_at, starved in turned:
        last = [
            window_starved
            for (window_starved, seconds), end in zip(windows, ends, strict=True)
            if end <= turned_at + 1e-6 and end - seconds >= turned_at - TURN_SECONDS
        ]
        assert all(window_starved is starved for window_starved in last)
    for (first, _), (second, _) in pairwise(turned):
        assert second - first >= TURN_SECONDS - 1e-6


def test_a_verdict_changes_after_a_minute_and_back_after_another() -> None:
    assert turns([(True, 10.0)] * 12) == [(60.0, True)]
    assert turns([(True, 10.0)] * 6 + [(False, 10.0)] * 6) == [(60.0, True), (120.0, False)]
    assert turns([(True, 10.0)] * 5 + [(False, 10.0)] + [(True, 10.0)] * 5) == []


def test_a_busy_part_is_told_in_tenths_and_not_again_for_less_than_one() -> None:
    assert next_busy_part(None, 0.34) == 0.3
    assert next_busy_part(0.3, 0.39) == 0.3, "each telling is a write to ZooKeeper"
    assert next_busy_part(0.3, 0.41) == 0.4
    assert next_busy_part(0.3, 0.0) == 0.0
