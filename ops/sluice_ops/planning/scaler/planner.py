"""Decides how many slots each tier needs for its load. The same input gives the same decisions."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import (
    Attempt,
    Decision,
    Memory,
    Mode,
    Readings,
    ScalerSettings,
    Starvation,
    TierMemory,
    TierScaling,
)
from sluice_ops.planning.scaler import attempts, demand
from sluice_ops.planning.scaler.demand import Flow
from sluice_ops.planning.scaler.forecast import expected, learn
from sluice_ops.planning.scaler.readings import elapsed, smooth
from sluice_ops.planning.scaler.rules import Verdict, changes_that_count, verdict
from sluice_ops.planning.scaler.signals import Observation, Signals
from sluice_ops.planning.scaler.situation import Situation

LOOK_AHEAD = 600.0
"""How far the forecast looks beyond the time that a change takes. Unit: seconds."""


def plan(
    observation: Observation, settings: ScalerSettings, memory: Memory
) -> tuple[dict[TierName, Decision], Memory]:
    """Return the decision about each tier, and the memory for the next plan.

    For each tier, upstream first: signals → smoothed readings → load that arrives, from the
    decisions upstream → load to process, with forecast and backlog → effect of the last growth →
    verdict of the rules → decision and memory.
    """
    observation = replace(observation, now=math.floor(observation.now * 10) / 10)
    readings = {tier: _readings(tier, observation, memory) for tier in observation.signals}
    situations: dict[TierName, Situation] = {}
    decisions: dict[TierName, Decision] = {}
    memories: dict[TierName, TierMemory] = {}
    for tier in demand.upstream_first(observation.bounds, observation.inputs):
        scaling, signals = settings.of(tier), observation.signals.get(tier)
        known = _memory_with_readings(tier, observation, memory, readings)
        load = Flow()
        if signals is not None:
            arriving = _arriving_load(tier, observation, scaling.mode, readings, situations)
            load = _load_to_process(tier, known, signals, arriving, scaling, observation)
            if tier not in observation.changing:
                known = _memory_with_verdict_on_growth(known, signals, load, scaling)
        situations[tier] = Situation(
            now=observation.now,
            scaling=scaling,
            bounds=observation.bounds[tier],
            signals=signals,
            changing=tier in observation.changing,
            memory=known,
            load=load,
            grow_seconds=observation.seconds_to_grow(tier),
            burst_seconds=observation.seconds_to_burst(tier),
        )
        decided = verdict(situations[tier])
        decisions[tier] = _decision(tier, situations[tier], decided)
        memories[tier] = _memory_after(situations[tier], decided)
    return decisions, Memory(tiers=memories)


def with_causes(
    decisions: Mapping[TierName, Decision], before: Mapping[TierName, Decision]
) -> dict[TierName, Decision]:
    """Return the decisions with the sentences that their numbers come from.

    `before` are the last decisions. They keep these sentences, because the memory of many tiers has
    no room for them.
    """
    return {
        name: decided.model_copy(update={"because": _cause(decided, before.get(name))})
        for name, decided in decisions.items()
    }


def _cause(decided: Decision, before: Decision | None) -> str:
    if before is None or (decided.wanted, decided.away) != (before.wanted, before.away):
        return decided.reason
    return before.cause


def _readings(tier: TierName, observation: Observation, memory: Memory) -> Readings:
    before = memory.tiers.get(tier, TierMemory()).readings
    return smooth(observation.signals[tier], observation.now, before, changing=tier in observation.changing)


def _memory_with_readings(
    tier: TierName, observation: Observation, memory: Memory, readings: Mapping[TierName, Readings]
) -> TierMemory:
    """Return the tier's memory with the figures of this moment."""
    before, signals = memory.tiers.get(tier, TierMemory()), observation.signals.get(tier)
    if signals is None:
        return before
    now, week = observation.now, None
    if not observation.inputs.get(tier):
        seconds = 0.0 if before.readings is None else elapsed(now, before.readings.at)
        week = learn(before.week, signals.rate_in, now, seconds)
    starvation = attempts.starvation(
        before.starvation, before.attempt, now, starved=signals.starved, modest=signals.modest
    )
    return before.model_copy(update={"readings": readings[tier], "week": week, "starvation": starvation})


def _arriving_load(
    tier: TierName,
    observation: Observation,
    mode: Mode,
    readings: Mapping[TierName, Readings],
    upstream: Mapping[TierName, Situation],
) -> Flow:
    """Return what will arrive in a tier once its upstream tiers have their slots."""
    writers = {name: readings[name] for name in observation.inputs.get(tier, ()) if name in readings}
    planned = {
        name: demand.planned_output(upstream[name].outflow, writer, upstream[name].workers_soon(mode))
        for name, writer in writers.items()
        if name in upstream
    }
    return demand.arriving_load(readings[tier], writers, planned)


def _load_to_process(  # noqa: PLR0913, PLR0917 - the parts of the load
    tier: TierName,
    known: TierMemory,
    signals: Signals,
    arriving: Flow,
    scaling: TierScaling,
    observation: Observation,
) -> Flow:
    """Return what a tier should process: what arrives, or will soon arrive, and its backlog."""
    seconds = observation.seconds_to_grow(tier)
    horizon = seconds + LOOK_AHEAD
    soon = Flow(max(arriving.rate, expected(known.week, observation.now, horizon)), arriving.surplus)
    per_worker = None if known.readings is None else known.readings.per_worker
    return demand.with_backlog(soon, signals, per_worker, seconds, scaling.catch_up)


def _memory_with_verdict_on_growth(
    known: TierMemory, signals: Signals, load: Flow, scaling: TierScaling
) -> TierMemory:
    """Return the memory with what is known now about the effect of the last growth."""
    attempt, block, readings = known.attempt, known.block, known.readings
    if block is not None and attempts.load_fell(block, load.total):
        block = None
    if attempt is not None and readings is not None:
        helped = attempts.judge(attempt, signals, readings, load.total, scaling.retry_after)
        if isinstance(helped, Attempt):
            attempt = helped
        else:
            block = None if helped else attempts.block_after(attempt, readings, load.total, block)
            attempt = None
    return known.model_copy(update={"attempt": attempt, "block": block})


def _decision(name: TierName, tier: Situation, decided: Verdict) -> Decision:
    return Decision(
        mode=tier.scaling.mode,
        slots=tier.wanted if tier.signals is None else tier.signals.workers,
        wanted=decided.wanted,
        reason=decided.reason + _note_on_number_of_others(name, tier),
        since=_time_of_last_change(tier, decided),
        away=decided.away,
        in_place=tier.bounds.in_place,
    )


def _note_on_number_of_others(name: TierName, tier: Situation) -> str:
    """Return how to remove a number that somebody else set in the scaler's layer."""
    if tier.bounds.set_by is None or tier.scaling.mode is Mode.ACT:
        return ""
    return (
        f"; {tier.bounds.set_by} set a number in the layer autoscaler, and it stays: remove it with "
        f"`sluice scale {name} {tier.bounds.base} --layer autoscaler`"
    )


def _time_of_last_change(tier: Situation, decided: Verdict) -> float:
    return tier.memory.since if decided.wanted == tier.memory.wanted else tier.now


def _memory_after(tier: Situation, decided: Verdict) -> TierMemory:
    """Return what the next decision about the tier has to know."""
    known, changes = tier.memory, changes_that_count(tier)
    attempt, trend, starvation = known.attempt, tier.trend, known.starvation
    if not tier.decides:
        attempt = trend = None
    elif (decided.wanted, decided.away) != (tier.wanted, tier.away):
        changes, attempt, trend = (*changes, tier.now), _attempt_of(tier, decided), None
        if attempt is not None and starvation is not None:
            starvation = Starvation(seen=starvation.seen, tried=attempt.after)
    return TierMemory(
        readings=known.readings,
        week=known.week,
        wanted=None if tier.scaling.mode is Mode.OFF else decided.wanted,
        away=decided.away,
        since=_time_of_last_change(tier, decided),
        changes=changes,
        trend=trend,
        attempt=attempt,
        block=known.block,
        starvation=starvation,
        told=tier.advises,
    )


def _attempt_of(tier: Situation, decided: Verdict) -> Attempt | None:
    """Return the attempt that a growth is."""
    signals, readings = tier.signals, tier.memory.readings
    total = decided.wanted + max(decided.away, tier.bounds.away)
    if total <= tier.total or signals is None or readings is None:
        return None
    return Attempt(
        before=min(signals.workers, tier.total),
        after=total,
        rate_done=readings.best_done,
        at=tier.now,
    )
