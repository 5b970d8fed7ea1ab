"""The judge counts steps, changes, waits and slot-hours."""

import numpy as np
import pytest

from tests.simulation.scaling.judge import judge
from tests.simulation.scaling.run import Change, Run, run
from tests.simulation.scaling.traces import ENRICH, HOUR, TIERS, TRACES, Trace, through

BY_NAME = {trace.name: trace for trace in TRACES}
STEP = Trace("step", 2 * HOUR, through(((0, 600), (HOUR, 600), (HOUR + 60, 6000))), shifts=(HOUR,))


class Scripted:
    """Asks for sizes at given times."""

    name = "scripted"

    def __init__(self, *script):
        self.script = list(script)

    def decide(self, measurement):
        if self.script and measurement.observation.now - STEP.begins >= self.script[0][0]:
            return self.script.pop(0)[1]
        return {}


FULL = {"entry": 8, "enrich": 16, "counts": 8, "outbound": 16}


def test_steps_are_the_changes_until_a_tier_has_the_needed_size():
    assert judge(run(STEP, Scripted((HOUR + 60, FULL)))).steps == 1
    half = {name: size // 2 for name, size in FULL.items()}
    assert judge(run(STEP, Scripted((HOUR + 60, half), (HOUR + 120, FULL)))).steps == 2
    assert judge(run(STEP, Scripted((HOUR + 60, half)))).steps == np.inf
    assert judge(run(STEP, Scripted((HOUR / 2, FULL)))).steps == 0


def test_a_late_scaler_misses_the_lag_bar_and_an_early_one_the_cost_bar():
    late = judge(run(STEP, Scripted((HOUR + 900, FULL))))
    assert late.lag > 600
    assert late.late > 600
    assert any(bar.startswith("lag") for bar in late.missed)
    early = judge(run(STEP, Scripted((0, FULL))))
    assert (early.lag, early.late) == (0, 0)
    assert early.cost == pytest.approx(1.8, abs=0.1)
    assert any(bar.startswith("slot-hours") for bar in early.missed)


def made(trace: Trace, changes: list[Change]) -> Run:
    at = np.arange(trace.decision, trace.seconds, trace.decision)
    sizes = {tier.name: np.ones_like(at) for tier in TIERS}
    return Run(trace, "made", at, sizes, np.zeros_like(at), 0.0, tuple(changes))


def test_changes_an_hour_are_those_of_one_tier_after_the_first_day():
    trace = BY_NAME["daily curve"]
    changes = [Change(30 * HOUR + minute * 60, ENRICH, 1, 2) for minute in (0, 20, 40, 70)]
    first_day = [Change(HOUR + minute, ENRICH, 1, 2) for minute in range(9)]
    others = [Change(30 * HOUR, tier.name, 1, 2) for tier in TIERS if tier.name != ENRICH]
    verdict = judge(made(trace, sorted([*changes, *first_day, *others], key=lambda change: change.at)))
    assert verdict.hourly == 3
    assert any("changes an hour" in bar for bar in verdict.missed)


def test_growths_on_busy_processors_are_counted_during_the_fault():
    trace = BY_NAME["processors busy"]
    inside = trace.fault.start + 60
    changes = [
        Change(inside - 120, ENRICH, 1, 2),
        Change(inside, ENRICH, 2, 3),
        Change(inside + 60, ENRICH, 3, 2),
        Change(inside + 120, ENRICH, 2, 3),
        Change(inside + 120, TIERS[0].name, 2, 3),
    ]
    verdict = judge(made(trace, changes))
    assert verdict.attempts == 2
    assert any("growths" in bar for bar in verdict.missed)
    broken = judge(made(BY_NAME["broken worker"], changes))
    assert broken.attempts == 2
    assert not any("growths" in bar for bar in broken.missed)


def test_waits_during_a_fault_that_no_size_can_mend_are_excused():
    trace = BY_NAME["broken worker"]
    made_run = made(trace, [])
    begin, end = trace.excused
    made_run.lag_seconds[(made_run.at >= begin) & (made_run.at < end)] = 500
    assert judge(made_run).late == 0
    made_run.lag_seconds[made_run.at >= end] = 130
    assert judge(made_run).lag == 130
