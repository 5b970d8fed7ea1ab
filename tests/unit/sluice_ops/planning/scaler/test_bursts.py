"""The runbook that the scaler wants: a burst of the tier that waits longest, or a leave."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.scaler import Decision, Mode, ScalerSettings, TierScaling, Wish
from sluice_ops.planning.scaler.bursts import leave, wish
from sluice_ops.planning.scaler.signals import Observation, Signals
from tests.unit.sluice_ops.planning.scaler.pipelines import BOUNDS, START, Pipeline, Tier

QUIET = Signals(
    rate_in=1.0, rate_done=1.0, rate_out=1.0, busy=0.1, workers=1, lag=0, lag_seconds=0.0, starved=False
)


def decision(away, mode=Mode.ACT, reason="much to do"):
    return Decision(mode=mode, slots=1, wanted=1, reason=reason, since=START, away=away)


def observation(away, waits=None, changing=(), ours=()):
    """Observe tiers with the slots of bursts in `away`; the seconds in `waits` are their lag.

    The scaler asked for the bursts of `ours`.
    """
    return Observation(
        now=START,
        signals={tier: replace(QUIET, lag_seconds=lag) for tier, lag in (waits or {}).items()},
        bounds={
            tier: replace(BOUNDS, away=slots, burst=9, away_by_scaler=tier in ours)
            for tier, slots in away.items()
        },
        inputs={},
        change_seconds=10.0,
        changing=frozenset(changing),
    )


def test_the_tier_whose_records_wait_longest_gets_the_first_burst():
    decisions = {"a": decision(2), "b": decision(3, reason="more to do")}
    seen = observation({"a": 0, "b": 1}, {"a": 5.0, "b": 60.0})
    assert wish(decisions, seen) == Wish(tier="b", k=2, reason="more to do")
    seen = observation({"a": 0, "b": 3}, {"a": 5.0, "b": 60.0})
    assert wish(decisions, seen) == Wish(tier="a", k=2, reason="much to do")


def test_a_runbook_has_the_sentence_that_decided_it_not_the_newest_one():
    decided = decision(2, reason="for 0 s so far").model_copy(update={"because": "much to do"})
    assert wish({"a": decided}, observation({"a": 0})) == Wish(tier="a", k=2, reason="much to do")
    assert leave({"a": decided}, observation({"a": 3}, ours="a")) == Wish(tier="a", k=1, reason="much to do")


def test_advice_and_a_change_under_way_lead_to_no_runbook():
    seen = observation({"a": 0})
    assert wish({"a": decision(2)}, seen) is not None
    assert wish({"a": decision(2, Mode.ADVISE)}, seen) is None
    assert wish({"a": decision(2)}, observation({"a": 0, "b": 0}, changing=["b"])) is None


def test_each_tier_leaves_ec2_on_its_own_as_far_as_it_can():
    idle, busy = decision(0, reason="little to do"), decision(1)
    both = {"a": 1, "b": 3}
    decisions = {"a": idle, "b": busy}
    assert leave(decisions, observation(both, ours="ab")) == Wish(tier="b", k=2, reason="much to do")
    assert leave(decisions, observation(both, ours="a")) == Wish(tier="a", k=1, reason="little to do")
    assert leave({"a": idle, "b": decision(3)}, observation(both, ours="b")) is None
    assert leave({"a": decision(0, Mode.ADVISE), "b": decision(3)}, observation(both, ours="ab")) is None
    assert leave(decisions, observation(both, ours="ab", changing="a")) is None


def test_a_burst_comes_before_a_leave():
    decisions, seen = {"a": decision(0), "b": decision(2)}, observation({"a": 1, "b": 0}, ours="a")
    assert wish(decisions, seen) == Wish(tier="b", k=2, reason="much to do")
    assert leave(decisions, seen) is None


def wishes(pipeline, seconds):
    """Return the different wishes in order: the workers that come, or negative, that leave."""
    changed = []
    for observation, decisions in pipeline.run(seconds):
        burst, left = wish(decisions, observation), leave(decisions, observation)
        wanted = None if (burst or left) is None else (burst.k if burst is not None else -left.k)
        if wanted is not None and (not changed or changed[-1] != wanted):
            changed.append(wanted)
    return changed


def spike(mode, **bounds):
    """Return a pipeline whose load is ten times as high for half an hour."""
    tiers = {"mid": Tier(bounds=replace(BOUNDS, room=1, away_by_scaler=True, **bounds))}
    scaling = ScalerSettings(defaults=TierScaling(mode=mode, grow_after=10, shrink_after=60))
    return Pipeline(tiers, lambda seconds: 500.0 if 300 < seconds < 2100 else 50.0, scaling)


def test_a_spike_asks_for_a_burst_and_leaves_ec2_after_it():
    pipeline = spike(Mode.ACT, burst=8)
    pipeline.change_seconds = 60.0
    asked = wishes(pipeline, 7200.0)
    assert asked[0] > 0
    assert asked[-1] < 0
    assert pipeline.tiers["mid"].bounds.away == 0
    assert wishes(spike(Mode.ADVISE, burst=8), 7200.0) == []
    assert wishes(spike(Mode.ACT, burst=0), 7200.0) == []


modes = st.sampled_from([*Mode])
NAMES = ["a", "b", "c"]
cases = st.fixed_dictionaries(
    {
        name: st.tuples(
            st.sampled_from([0, 1, 3]), st.booleans(), st.builds(decision, st.sampled_from([0, 2]), modes)
        )
        for name in NAMES
    }
)
"""Tier → the slots of its burst, whether the scaler asked for it, and the decision."""


@given(cases)
def test_the_burst_of_a_person_never_shrinks(case):
    away = {name: slots for name, (slots, _, _) in case.items()}
    began = [name for name, (_, ours, _) in case.items() if ours]
    decisions = {name: decided for name, (_, _, decided) in case.items()}
    seen = observation(away, ours=began)
    burst, left = wish(decisions, seen), leave(decisions, seen)
    assert burst is None or left is None
    if left is not None:
        assert left.tier in began
        assert left.k == away[left.tier] - decisions[left.tier].away > 0
    elif burst is not None:
        assert burst.k == decisions[burst.tier].away - away[burst.tier] > 0
