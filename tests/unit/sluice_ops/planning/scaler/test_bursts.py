"""The runbook that the scaler wants: a burst of the tier that waits longest, or the end of all."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.scaler import Decision, Mode, ScalerSettings, TierScaling, Wish
from sluice_ops.planning.scaler.bursts import wish
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


def test_advice_and_a_change_under_way_lead_to_no_runbook():
    seen = observation({"a": 0})
    assert wish({"a": decision(2)}, seen) is not None
    assert wish({"a": decision(2, Mode.ADVISE)}, seen) is None
    assert wish({"a": decision(2)}, observation({"a": 0, "b": 0}, changing=["b"])) is None


def test_ec2_is_left_once_no_tier_needs_it_and_the_scaler_began_all_bursts():
    idle, busy = decision(0, reason="little to do"), decision(1)
    both, idles = {"a": 1, "b": 1}, {"a": idle, "b": idle}
    assert wish({"a": idle, "b": busy}, observation(both, ours="ab")) is None
    assert wish(idles, observation(both, ours="a")) is None, "a person began the burst of b"
    assert wish({"a": idle, "b": decision(0, Mode.ADVISE)}, observation(both, ours="ab")) is None
    left = wish(idles, observation(both, ours="ab"))
    assert left == Wish(reason="no tier needs workers on EC2 (a: little to do; b: little to do)")
    assert wish(idles, observation({"a": 0, "b": 0}, ours="ab")) is None


def wishes(pipeline, seconds):
    """Return the different wishes in order."""
    changed = []
    for observation, decisions in pipeline.run(seconds):
        wanted = wish(decisions, observation)
        if wanted is not None and (
            not changed or (changed[-1].tier, changed[-1].k) != (wanted.tier, wanted.k)
        ):
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
    assert [each.tier for each in asked][-1] is None
    assert {each.tier for each in asked[:-1]} == {"mid"}
    assert "records/s" in asked[0].reason
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
def test_a_burst_of_a_person_is_never_ended(case):
    away = {name: slots for name, (slots, _, _) in case.items()}
    began = [name for name, (_, ours, _) in case.items() if ours]
    decisions = {name: decided for name, (_, _, decided) in case.items()}
    wanted = wish(decisions, observation(away, ours=began))
    if wanted is not None and wanted.tier is None:
        assert all(name in began for name in NAMES if away[name])
    elif wanted is not None:
        assert wanted.k == decisions[wanted.tier].away - away[wanted.tier] > 0
