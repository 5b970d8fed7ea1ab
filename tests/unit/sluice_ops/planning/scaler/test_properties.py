"""What holds for every history of figures, also for figures that make no sense."""

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.scaler import Decision, Memory, Mode, ScalerSettings, TierScaling
from sluice_ops.planning.scaler.attempts import seconds_until_retry
from sluice_ops.planning.scaler.demand import TOLERATED_SECONDS
from sluice_ops.planning.scaler.planner import plan
from sluice_ops.planning.scaler.signals import Bounds, Observation, Signals
from tests.unit.sluice_ops.planning.scaler.pipelines import START

HOUR = 3600.0
INPUTS = {"entry": (), "mid": ("entry", "loop"), "loop": ("mid",), "out": ("mid",)}

seeds = st.integers(0, 2**32)


@dataclass(frozen=True)
class Step:
    """One plan of a history."""

    observation: Observation
    decisions: dict[str, Decision]
    memory: Memory


def random_scaling(dice: Random) -> TierScaling:
    return TierScaling(
        mode=dice.choice([Mode.ACT, Mode.ACT, Mode.ACT, Mode.ADVISE, Mode.OFF]),
        utilisation=dice.uniform(0.3, 0.8),
        band=dice.uniform(0.01, 0.2),
        grow_after=dice.choice([0, 30, 100]),
        shrink_after=dice.choice([100, 300]),
        cool_down=dice.choice([0, 60, 200]),
        step=dice.uniform(2, 10),
        changes_per_hour=dice.randint(3, 8),
        retry_after=dice.choice([0, 600, 3600]),
    )


def random_bounds(dice: Random) -> Bounds:
    minimum = dice.randint(0, 5)
    return Bounds(
        minimum=minimum,
        base=dice.randint(0, 12),
        maximum=dice.randint(minimum, 30),
        partitions=dice.randint(1, 30),
        room=dice.choice([0, 2, 16]),
        held_by=dice.choice([None, None, None, None, "ana"]),
        away=dice.choice([0, 0, 0, 1]),
        burst=dice.choice([0, 0, 4]),
    )


def random_signals(dice: Random, before: Signals | None, wanted: int | None) -> Signals:
    """Return figures like those before, or entirely different ones."""
    workers = dice.randint(0, 20) if wanted is None or not dice.randrange(10) else wanted
    if before is None or not dice.randrange(15):
        rates = [dice.choice([0.0, 1e-300, 1.0, 100.0, 1e4, 1e6]) * dice.random() for _ in range(3)]
        lag = dice.choice([0, 10, 10**5, 10**8])
        return Signals(*rates, dice.random(), workers, lag, dice.uniform(0, 20), not dice.randrange(4))
    lag = max(0, before.lag + dice.choice([-1000, -10, 0, 0, 10, 1000]))
    return replace(before, rate_in=before.rate_in * dice.uniform(0.9, 1.1), workers=workers, lag=lag)


def history(seed: int, *, starved: bool | None = None) -> tuple[ScalerSettings, list[Step]]:
    """Return settings and 60 plans of a pipeline with fixed bounds and random figures."""
    dice = Random(seed)  # noqa: S311
    scaler = ScalerSettings(tiers={tier: random_scaling(dice) for tier in INPUTS})
    fixed = {tier: random_bounds(dice) for tier in INPUTS}
    now, memory, steps = START, Memory(), []
    latest: dict[str, Signals] = {}
    for _ in range(60):
        now += dice.choice([1.0, 10.0, 10.0, 60.0, 400.0])
        seen = {}
        for tier in INPUTS:
            wanted = steps[-1].decisions[tier].wanted if steps else None
            latest[tier] = random_signals(dice, latest.get(tier), wanted)
            if starved is not None:
                latest[tier] = replace(latest[tier], starved=starved)
            if dice.randrange(20):
                seen[tier] = latest[tier]
        changing = frozenset(tier for tier in INPUTS if not dice.randrange(10))
        observation = Observation(now, seen, fixed, INPUTS, 20.0, changing)
        decisions, memory = plan(observation, scaler, memory)
        steps.append(Step(observation, decisions, memory))
    return scaler, steps


def free(scaler, steps):
    """Return the tiers whose number the scaler chooses."""
    fixed = steps[0].observation.bounds
    return [tier for tier in INPUTS if scaler.of(tier).mode is not Mode.OFF and fixed[tier].held_by is None]


def numbers(steps, tier):
    """Return each step with the number of the step before and the new number."""
    return [
        (after, before.decisions[tier].wanted, after.decisions[tier].wanted)
        for before, after in pairwise(steps)
    ]


def test_random_histories_contain_every_kind_of_decision():
    kinds = Counter()
    for seed in range(60):
        scaler, steps = history(seed)
        for tier in free(scaler, steps):
            for step, before, after in numbers(steps, tier):
                memory = step.memory.tiers[tier]
                kinds["growth"] += before < after
                kinds["shrinking"] += before > after
                kinds["block"] += memory.block is not None
                kinds["attempt"] += memory.attempt is not None
                kinds["starved"] += memory.starvation is not None and memory.starvation.tried is not None
                kinds["budget"] += "changes within an hour" in step.decisions[tier].reason
                kinds["room"] += "room for" in step.decisions[tier].reason
                kinds["burst"] += step.decisions[tier].away > 0
                kinds["lag"] += "more than before" in step.decisions[tier].reason
    assert {kind for kind, count in kinds.items() if count >= 5} == set(kinds)
    assert len(kinds) == 9


@given(seeds)
@settings(max_examples=20)
def test_wanted_is_within_minimum_maximum_and_partitions(seed):
    for step in history(seed)[1]:
        assert step.decisions.keys() == step.observation.bounds.keys()
        for tier, decision in step.decisions.items():
            own = step.observation.bounds[tier]
            assert min(own.minimum, own.partitions) <= decision.wanted <= min(own.maximum, own.partitions)
            assert 0 <= decision.away <= max(own.burst, own.away)
            assert decision.away == 0 or decision.wanted + decision.away <= min(own.maximum, own.partitions)


@given(seeds)
@settings(max_examples=20)
def test_the_same_input_gives_the_same_decisions(seed):
    assert history(seed) == history(seed)


@given(seeds)
@settings(max_examples=20)
def test_the_number_of_another_layer_is_never_overridden(seed):
    for step in history(seed)[1]:
        for tier, decision in step.decisions.items():
            own, seen = step.observation.bounds[tier], step.observation.signals.get(tier)
            if own.held_by is not None and decision.mode is not Mode.OFF:
                present = own.base if seen is None else seen.workers - own.away
                highest = min(own.maximum, own.partitions)
                assert decision.wanted == max(min(max(1, own.minimum), highest), min(present, highest))
                assert own.held_by in decision.reason


@given(seeds)
@settings(max_examples=20)
def test_no_tier_shrinks_while_its_lag_grows_or_a_change_is_under_way(seed):
    scaler, steps = history(seed)
    for tier in free(scaler, steps):
        for step, before, after in numbers(steps, tier):
            if after < before:
                readings, seen = step.memory.tiers[tier].readings, step.observation.signals[tier]
                assert seen.lag <= readings.lag_mean + readings.rate_in * TOLERATED_SECONDS
                assert tier not in step.observation.changing


@given(seeds)
@settings(max_examples=20)
def test_changes_stay_within_the_budget_of_an_hour(seed):
    scaler, steps = history(seed)
    for tier in free(scaler, steps):
        times = [step.observation.now for step, before, after in numbers(steps, tier) if before != after]
        for end in times:
            within = [time for time in times if end - HOUR < time <= end]
            assert len(within) <= scaler.of(tier).changes_per_hour


@given(seeds)
@settings(max_examples=20)
def test_one_decision_grows_a_tier_by_its_step_at_most(seed):
    scaler, steps = history(seed)
    for tier in free(scaler, steps):
        others = steps[0].observation.bounds[tier].away
        totals = [own.wanted + max(own.away, others) for own in (step.decisions[tier] for step in steps)]
        for before, after in pairwise(totals):
            assert after <= max(before, math.ceil(before * scaler.of(tier).step))


@given(seeds)
@settings(max_examples=20)
def test_no_growth_is_repeated_while_its_block_holds(seed):
    scaler, steps = history(seed)
    for tier in free(scaler, steps):
        for step, before, after in numbers(steps, tier):
            block = step.memory.tiers[tier].block
            if block is not None and after > before:
                left = seconds_until_retry(block, step.observation.now, scaler.of(tier).retry_after)
                assert after <= block.before or left <= 0


@given(seeds)
@settings(max_examples=20)
def test_a_starved_tier_grows_once_at_most(seed):
    scaler, steps = history(seed, starved=True)
    for tier in free(scaler, steps):
        assert sum(after > before for _, before, after in numbers(steps, tier)) <= 1


@given(seeds)
@settings(max_examples=20)
def test_each_reason_is_one_sentence_with_a_number(seed):
    for step in history(seed)[1]:
        for decision in step.decisions.values():
            assert re.search(r"\d", decision.reason)
            assert not re.search(r"[.!?](\s|$)|\n", decision.reason)
            assert len(decision.reason.split()) <= 25


@given(seeds)
@settings(max_examples=20)
def test_since_is_the_time_of_the_last_change_of_wanted(seed):
    _, steps = history(seed)
    for tier in INPUTS:
        for step, before, after in numbers(steps, tier):
            changed = step.decisions[tier].since == step.observation.now
            assert changed == (before != after) or step.decisions[tier].mode is Mode.OFF


@given(seeds)
@settings(max_examples=20)
def test_memory_survives_json(seed):
    scaler, steps = history(seed)
    for step, following in pairwise(steps):
        stored = Memory.model_validate_json(step.memory.model_dump_json())
        assert stored == step.memory
        assert plan(following.observation, scaler, stored) == (following.decisions, following.memory)
