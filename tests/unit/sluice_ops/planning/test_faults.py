"""The judge of a game day says of each promise whether it was kept, with number and limit."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.world import tier

from sluice_ops.model.assignment import UnitObserved, UnitState
from sluice_ops.model.game_day import GameDayReceipt, UnitBefore
from sluice_ops.model.ids import HostName, Incarnation, UnitId
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.changes.faults import FAULTS, MEASURE_SECONDS, Seen, Unmeasured, Waits, judge

PAGE = Path(__file__).resolve().parents[4] / "docs" / "faults.md"
WORKER = UnitId("slot-enrich-7-0")
RUNS = UnitObserved(id=WORKER, state=UnitState.RUNNING, pid=10, since=50.0)
BEFORE = GameDayReceipt(
    fault="any",
    host=HostName("h1"),
    unit=WORKER,
    incarnation=Incarnation(7),
    units={WORKER: UnitBefore(pid=10, restarts=0)},
)
SEEN = Seen(
    owner=Incarnation(7),
    silent_seconds=None,
    units={WORKER: RUNS},
    injected_at=100.0,
    agent_started=50.0,
    age=1.0,
)
LATE = 30.0 + MEASURE_SECONDS + 1


def verdict(name, **seen):
    fault = FAULTS[name]
    return judge(fault, fault.limit_seconds, BEFORE, replace(SEEN, **seen))


def sentences(found):
    assert isinstance(found, tuple), found
    return [promise.sentence for promise in found]


def test_a_gap_is_compared_with_its_limit():
    kept, lossless = sentences(verdict("kill-driver", owner=Incarnation(8), silent_seconds=6.42))
    assert kept == "kept: records come out again after 6.4 s (promised: within 20 s)"
    assert lossless == "kept: no record is lost"
    broken, _ = sentences(verdict("freeze-driver", owner=Incarnation(8), silent_seconds=21.0))
    assert broken == "broken: records come out again after 21.0 s (promised: within 20 s)"


def test_a_standby_that_took_over_has_its_own_limit():
    warm, none = (tier("t", Mode.BATCH, 0, standby=standby) for standby in (Standby.WARM, Standby.NONE))
    assert [FAULTS["kill-driver"].limit(spec) for spec in (warm, none)] == [2.0, 20.0]
    assert FAULTS["freeze-driver"].limit(warm) == FAULTS["freeze-driver"].limit(none)


def test_lost_records_break_a_promise_beside_the_others():
    kept, lost = verdict("kill-driver", owner=Incarnation(8), silent_seconds=6.4, loses=True)
    assert kept.kept
    assert not lost.kept
    assert "sluice audit" in lost.sentence


def test_the_judge_waits_for_the_gap_and_then_says_what_lacks():
    assert isinstance(verdict("kill-driver"), Waits), "the agent has not seen the death yet"
    assert isinstance(verdict("kill-driver", owner=None), Waits)
    assert isinstance(verdict("kill-driver", owner=Incarnation(8)), Waits)
    assert isinstance(verdict("kill-driver", age=LATE), Unmeasured), "the driver still runs"
    assert isinstance(verdict("kill-driver", owner=Incarnation(8), age=LATE), Unmeasured), "no records came"
    broken, _ = sentences(verdict("kill-driver", owner=None, age=LATE))
    assert broken == (
        "broken: records come out again (promised: within 20 s); but after 181 s, no incarnation after 7 runs"
    )


def test_a_worker_has_to_be_started_again_under_the_same_driver():
    again = RUNS.model_copy(update={"since": 103.5, "restarts": 1, "pid": 11})
    assert isinstance(verdict("kill-worker"), Waits)
    kept, _ = verdict("kill-worker", units={WORKER: again})
    assert (kept.kept, kept.seconds) == (True, 3.5)
    replaced, _ = sentences(verdict("kill-worker", owner=Incarnation(8), units={WORKER: again}))
    assert "incarnation 8 replaced the driver" in replaced
    gone, _ = sentences(verdict("kill-worker", units={}, age=LATE))
    assert "slot-enrich-7-0 was not started again" in gone


def test_the_units_of_a_killed_agent_have_to_continue():
    assert isinstance(verdict("kill-agent"), Waits)
    assert isinstance(verdict("kill-agent", injected_at=None, agent_started=None), Waits)
    kept, _ = verdict("kill-agent", agent_started=104.0)
    assert (kept.kept, kept.seconds) == (True, 4.0)
    other = RUNS.model_copy(update={"pid": 11})
    broken, _ = sentences(verdict("kill-agent", agent_started=104.0, units={WORKER: other}))
    assert broken.endswith("but units did not continue: slot-enrich-7-0")
    silent, _ = sentences(verdict("kill-agent", agent_started=None, age=LATE))
    assert "no other agent answers on h1" in silent


@given(
    name=st.sampled_from([*FAULTS]),
    owner=st.sampled_from([None, Incarnation(7), Incarnation(8)]),
    gap=st.none() | st.floats(0, 100),
    started=st.none() | st.floats(0, 300),
    restarts=st.integers(0, 2),
    state=st.sampled_from(UnitState),
    loses=st.booleans(),
)
def test_every_outcome_is_told_once_the_time_is_over(name, owner, gap, started, restarts, state, loses):
    unit = RUNS.model_copy(update={"restarts": restarts, "state": state, "since": 110.0})
    found = verdict(
        name,
        owner=owner,
        silent_seconds=gap,
        agent_started=started,
        units={WORKER: unit},
        loses=loses,
        age=LATE,
    )
    assert not isinstance(found, Waits)
    if isinstance(found, tuple):
        for promise in found:
            assert promise.sentence.startswith("kept: " if promise.kept else "broken: ")
        assert found[-1].kept is not loses


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_promise_is_one_of_the_page_of_faults(fault):
    page = PAGE.read_text()
    section = next(part for part in page.split("\n## ") if f"\n| {fault.row} |" in part)
    for limit in {fault.limit_seconds, fault.limit_warm} - {None}:
        assert f" {limit:g} s" in section.replace("\n", " ")
