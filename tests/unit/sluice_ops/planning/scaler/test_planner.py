"""The scaler's decisions on pipelines whose workers do exactly what they can."""

import math
from base64 import b64encode
from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.scaler import (
    Attempt,
    Block,
    Memory,
    Mode,
    Readings,
    ScalerSettings,
    Starvation,
    TierMemory,
    TierScaling,
    Trend,
    Week,
)
from sluice_ops.planning.scaler.bursts import wish
from sluice_ops.planning.scaler.planner import plan, with_causes
from tests.unit.sluice_ops.planning.scaler.pipelines import BOUNDS, LOOK, START, Pipeline, Tier


def changes(pipeline, seconds):
    """Run the pipeline, and return (second, tier, wanted) for each change of a number."""
    last, found = {name: tier.workers for name, tier in pipeline.tiers.items()}, []
    for _, decisions in pipeline.run(seconds):
        for name, decision in decisions.items():
            if decision.wanted != last[name]:
                last[name] = decision.wanted
                found.append((pipeline.seconds - LOOK, name, decision.wanted))
    return found


def reasons(pipeline, seconds, name):
    """Run the pipeline, and return the different reasons for one tier in their order."""
    return list(dict.fromkeys(decisions[name].reason for _, decisions in pipeline.run(seconds)))


def last(pipeline, seconds):
    """Run the pipeline, and return the last decisions."""
    return [decisions for _, decisions in pipeline.run(seconds)][-1]


def spike(before, after, at=600.0):
    return lambda seconds: before if seconds < at else after


def chain(**mid):
    return {"entry": Tier(1000.0), "mid": Tier(100.0, ("entry",), **mid), "out": Tier(100.0, ("mid",))}


def test_a_spike_of_ten_times_is_met_in_two_steps():
    pipeline = Pipeline(chain(), spike(50.0, 500.0))
    assert changes(pipeline, 1300.0) == [
        (620.0, "mid", 4),
        (620.0, "out", 4),
        (680.0, "mid", 8),
        (680.0, "out", 8),
    ]
    assert all(tier.lag == 0 for tier in pipeline.tiers.values())


def test_tiers_downstream_grow_together_with_the_tier_that_throttles_them():
    pipeline = Pipeline(chain(writes=2.0), spike(30.0, 300.0))
    at = {(name, wanted): second for second, name, wanted in changes(pipeline, 1300.0)}
    assert at["mid", 4] == at["out", 4], "out grows before mid can write more"


def test_the_reason_says_how_long_unneeded_workers_stay():
    pipeline = Pipeline(chain(), lambda seconds: 300.0 if seconds < 1200 else 50.0)
    waits = "50 records/s need 1 worker, and 4 workers stay until that lasts 600 s (300 s so far)"
    assert waits in reasons(pipeline, 2400.0, "mid")


def test_after_a_spike_the_slots_are_given_back():
    pipeline = Pipeline(chain(), lambda seconds: 500.0 if seconds < 1000 else 50.0)
    list(pipeline.run(4 * 3600.0))
    assert [tier.workers for tier in pipeline.tiers.values()] == [1, 1, 1]


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.5, 2.0), st.floats(0.2, 5.0))
@settings(max_examples=15, deadline=None)
def test_a_constant_load_is_met_in_two_steps_and_then_nothing_changes(start, need, writes, speed):
    tiers = {
        "entry": Tier(50.0, workers=start, writes=writes),
        "mid": Tier(50.0 * speed, ("entry",), workers=start),
        "out": Tier(50.0, ("entry", "mid"), workers=start),
    }
    rate = need * 50.0 * 0.65
    flows = {"entry": rate, "mid": rate * writes, "out": 2 * rate * writes}
    needs = {name: math.ceil(flows[name] / tier.per_worker / 0.7 - 0.001) for name, tier in tiers.items()}
    assume(all(start / 16 <= needed <= min(64, start * 16) for needed in needs.values()))
    pipeline = Pipeline(tiers, lambda _: rate, change_seconds=5.0)
    found = changes(pipeline, 1300.0)
    for name, tier in tiers.items():
        assert sum(changed == name for _, changed, _ in found) <= 2
        in_band = 0.549 < flows[name] / tier.per_worker / tier.workers < 0.851
        assert tier.workers == needs[name] or in_band
    assert changes(pipeline, 900.0) == []


def test_a_daily_curve_needs_at_most_two_changes_an_hour():
    pipeline = Pipeline(chain(), lambda seconds: 900 + 600 * math.sin(seconds / 86400 * 2 * math.pi))
    found = [change for change in changes(pipeline, 86400.0) if change[0] > 3600]
    for name in pipeline.tiers:
        times = [second for second, changed, _ in found if changed == name]
        assert times
        assert all(later - earlier > 3600 for earlier, later in zip(times, times[2:], strict=False))


def test_noise_within_the_band_changes_nothing():
    pipeline = Pipeline(chain(), lambda seconds: 700.0 * (1 + 0.1 * math.sin(seconds * 1.7)))
    list(pipeline.run(1800.0))
    assert changes(pipeline, 3 * 3600.0) == []


def test_batches_of_few_records_need_no_worker_for_their_fixed_time():
    tier = Tier(1000.0, fixed=0.4, workers=2)
    scaler = ScalerSettings(defaults=TierScaling(mode=Mode.ACT, utilisation=0.4))
    pipeline = Pipeline({"entry": tier}, lambda _: 20.0, scaler)
    reason = last(pipeline, 1300.0)["entry"].reason
    assert tier.workers == 1, reason
    pipeline.rate = lambda _: 950.0
    assert last(pipeline, 120.0)["entry"].wanted == 3, "the rate counts, as ever"


def test_batches_that_follow_each_other_all_the_time_do_not_keep_workers():
    tier = Tier(20.0, fixed=1.0, workers=3)
    assert last(Pipeline({"entry": tier}, lambda _: 6.0), 1300.0)["entry"].wanted == 1


def test_records_between_two_batches_do_not_delay_shrinking():
    pipeline = Pipeline({"entry": Tier(100.0, workers=4)}, lambda _: 100.0)
    for number in range(130):
        observation = pipeline.observe()
        seen = replace(observation.signals["entry"], lag=10 * number % 70)
        decisions, pipeline.memory = plan(
            replace(observation, signals={"entry": seen}), pipeline.settings, pipeline.memory
        )
        assert not decisions["entry"].reason.endswith("more than before")
        pipeline.seconds += LOOK
    assert decisions["entry"].wanted == 2


def test_growth_that_did_not_help_is_not_repeated_and_is_taken_back_later():
    pipeline = Pipeline(chain(most=100.0), spike(50.0, 500.0))
    assert [change for change in changes(pipeline, 1800.0) if change[1] == "mid"] == [(620.0, "mid", 4)]
    reason = last(pipeline, LOOK)["mid"].reason
    assert reason.startswith("4 workers did 100/s where 1 did 96/s; retry after "), reason
    assert reason.endswith("records wait, more than before"), "a tier does not shrink while its lag grows"
    pipeline.rate = lambda _: 99.0
    assert ("mid", 1) in [change[1:] for change in changes(pipeline, 300.0)]


def test_useless_growth_is_noticed_while_backpressure_makes_the_lag_swing():
    tiers = {"entry": Tier(5000.0), "mid": Tier(2000.0, ("entry",), most=8000.0)}
    pipeline = Pipeline(tiers, lambda _: 14_000.0, watermarks=(20_000.0, 100_000.0))
    mid = [wanted for _, name, wanted in changes(pipeline, 3600.0) if name == "mid"]
    assert mid == [4, 10, 4]
    assert "but 10 workers did 8,000/s where 4 did " in last(pipeline, LOOK)["mid"].reason


def test_a_throttled_pipeline_grows_to_its_whole_load():
    tiers = {"entry": Tier(5000.0), "mid": Tier(2000.0, ("entry",)), "out": Tier(2000.0, ("mid",))}
    pipeline = Pipeline(tiers, lambda _: 14_000.0, watermarks=(20_000.0, 100_000.0))
    list(pipeline.run(600.0))
    assert [tier.workers for tier in tiers.values()] == [4, 10, 10]
    assert not pipeline.held


def test_later_attempts_come_at_doubled_intervals_and_add_one_worker():
    pipeline = Pipeline(chain(most=100.0), spike(50.0, 500.0, at=0))
    mid = [(second, wanted) for second, name, wanted in changes(pipeline, 5 * 3600.0) if name == "mid"]
    assert [wanted for _, wanted in mid] == [4, 5, 6]
    first, second = (later[0] - earlier[0] for earlier, later in pairwise(mid))
    assert 3600 < first < 3800
    assert 7200 < second < 7400


def test_a_starved_tier_is_tried_once_and_the_reason_is_told():
    pipeline = Pipeline(chain(most=150.0, starved=True), spike(50.0, 500.0))
    found = changes(pipeline, 6 * 3600.0)
    assert [change for change in found if change[1] == "mid"] == [(620.0, "mid", 4)]
    assert last(pipeline, LOOK)["mid"].reason.endswith(
        "its hosts have no processor time left, and 4 workers were tried"
    )
    assert pipeline.tiers["out"].workers == 3, "out follows what mid writes, not what mid should write"


def test_advice_that_nobody_followed_is_not_told_as_tried():
    pipeline = Pipeline(chain(most=150.0, starved=True), spike(50.0, 500.0), ScalerSettings())
    reason = last(pipeline, 1800.0)["mid"].reason
    assert reason.endswith("its hosts have no processor time left, and 4 workers were advised"), reason


def test_a_growth_whose_effect_is_not_known_is_the_one_of_a_starved_tier():
    pipeline = Pipeline(chain(most=150.0), spike(50.0, 500.0))
    list(pipeline.run(625.0))
    assert pipeline.tiers["mid"].asked == (4, 0)
    pipeline.tiers["mid"].starved = True
    found = changes(pipeline, 6 * 3600.0)
    assert [change[1:] for change in found if change[1] == "mid"] == [("mid", 4)]
    assert last(pipeline, LOOK)["mid"].reason.endswith("and 4 workers were tried")


def test_a_useless_growth_of_a_starved_tier_is_told_with_its_cause():
    pipeline = Pipeline(chain(most=100.0, starved=True), spike(50.0, 500.0))
    assert [change for change in changes(pipeline, 1800.0) if change[1] == "mid"] == [(620.0, "mid", 4)]
    reason = last(pipeline, LOOK)["mid"].reason
    assert " where 1 did 96/s; its hosts have no processor time left, but " in reason, reason
    assert [change for change in changes(pipeline, 5 * 3600.0) if change[1] == "mid"] == []


def test_a_tier_grows_again_after_its_hosts_have_recovered():
    pipeline = Pipeline(chain(most=150.0, starved=True), spike(50.0, 500.0))
    list(pipeline.run(3600.0))
    pipeline.tiers["mid"] = replace(pipeline.tiers["mid"], starved=False, most=math.inf)
    assert ("mid", 16) in [change[1:] for change in changes(pipeline, 900.0)]


def test_the_sentence_of_a_change_is_kept_until_the_next_one():
    pipeline = Pipeline(chain(), spike(50.0, 500.0), change_seconds=300.0)
    kept, told = {}, []
    for _, decisions in pipeline.run(700.0):
        kept = with_causes(decisions, kept)
        told.append(kept["mid"])
    grown = next(decision for decision in told if decision.wanted == 4)
    assert grown.cause == grown.reason
    assert told[-1].cause == grown.reason != told[-1].reason
    assert "while a change is under way" in told[-1].reason


def test_growth_stops_at_each_limit_and_names_it():
    for own, wanted, reason in (
        (replace(BOUNDS, maximum=3), 3, "its maximum is 3"),
        (replace(BOUNDS, partitions=2), 2, "it has 2 partitions"),
        (replace(BOUNDS, room=0), 1, "home has room for 0 more"),
    ):
        decision = last(Pipeline(chain(bounds=own), lambda _: 500.0), 1200.0)["mid"]
        assert (decision.wanted, decision.away) == (wanted, 0)
        assert decision.reason.endswith(reason)


def test_a_burst_gives_what_home_has_no_room_for_and_goes_first():
    own = replace(BOUNDS, room=3, burst=3)
    pipeline = Pipeline(chain(bounds=own), lambda seconds: 380.0 if seconds < 1800 else 50.0)
    list(pipeline.run(60.0))
    assert pipeline.tiers["mid"].workers == 4
    pipeline.tiers["mid"].bounds = replace(own, room=0)
    decision = last(pipeline, 60.0)["mid"]
    assert (decision.slots, decision.wanted, decision.away) == (6, 4, 2)
    assert last(pipeline, 1200.0)["mid"].reason.endswith("take 63% of 6 workers, within 55% to 85%")
    decisions = [decisions["mid"] for _, decisions in pipeline.run(3600.0)]
    assert list(dict.fromkeys((each.wanted, each.away) for each in decisions)) == [(4, 2), (4, 0), (1, 0)]


def test_no_burst_is_made_for_a_load_that_home_takes_within_the_band():
    pipeline = Pipeline(chain(workers=5, bounds=replace(BOUNDS, room=1, burst=3)), lambda _: 450.0)
    decisions = [decisions["mid"] for _, decisions in pipeline.run(120.0)]
    assert {(each.wanted, each.away) for each in decisions} == {(5, 0), (6, 0)}
    expected = "450 records/s need 7 workers, but 6 workers clear the backlog before a burst is ready (10 s)"
    assert expected in {each.reason for each in decisions}


def test_a_burst_that_comes_too_late_is_not_made():
    # about 7,500 records wait; two workers clear them in about 150 s
    scaling = ScalerSettings(defaults=TierScaling(mode=Mode.ACT, catch_up=60))
    for boot, away in ((20.0, 1), (300.0, 0)):
        tiers = chain(workers=2, lag=9000.0, bounds=replace(BOUNDS, room=0, burst=8))
        pipeline = Pipeline(tiers, lambda _: 150.0, scaling, boot_seconds=boot)
        decision = last(pipeline, 35.0)["mid"]
        assert (decision.wanted, decision.away) == (2, away)
    assert decision.reason.endswith("but 2 workers clear the backlog before a burst is ready (310 s)")


def test_a_tier_in_place_expects_the_backlog_of_a_short_change():
    needs = []
    for in_place in (False, True):
        tiers = {"mid": Tier(bounds=replace(BOUNDS, in_place=in_place))}
        pipeline = Pipeline(tiers, lambda _: 150.0, change_seconds=600.0)
        needs.append(last(pipeline, LOOK)["mid"].reason)
    assert needs == [
        "150 records/s and 100/s of backlog need 3 workers, for 0 s of 20 s so far",
        "150 records/s and 1/s of backlog need 3 workers, for 0 s of 20 s so far",
    ]


def test_without_a_burst_growth_waits_for_room_at_home():
    own = replace(BOUNDS, room=0, burst=3)
    pipeline = Pipeline(chain(bounds=own), lambda _: 250.0)
    assert (last(pipeline, 60.0)["mid"].wanted, pipeline.memory.tiers["mid"].away) == (1, 3)
    pipeline.tiers["mid"].bounds = replace(own, burst=0, room=5)
    decision = last(pipeline, 120.0)["mid"]
    assert (decision.wanted, decision.away) == (4, 0)


def test_a_burst_under_way_that_takes_the_last_room_stays_wanted():
    own = replace(BOUNDS, room=0, burst=3)
    pipeline = Pipeline(chain(bounds=own), lambda _: 250.0, change_seconds=1e6)
    assert (last(pipeline, 60.0)["mid"].wanted, pipeline.memory.tiers["mid"].away) == (1, 3)
    pipeline.tiers["mid"].bounds = replace(own, burst=0)
    decision = last(pipeline, 120.0)["mid"]
    assert (decision.wanted, decision.away) == (1, 3)


def test_a_spare_that_starts_and_counts_as_a_worker_is_no_further_room():
    own = replace(BOUNDS, placed=3, spares=1, room=1, maximum=5)
    pipeline = Pipeline(chain(workers=4, bounds=own), lambda _: 900.0)
    decision = last(pipeline, 60.0)["mid"]
    assert (decision.slots, decision.wanted) == (4, 4)
    assert decision.reason.endswith("need 13 workers, but home has room for 1 more"), decision.reason


def test_a_burst_that_a_person_began_counts_and_is_not_asked_for():
    pipeline = Pipeline(
        chain(workers=4, not_ours=2, bounds=replace(BOUNDS, away=2, burst=5)), lambda _: 300.0
    )
    decision = last(pipeline, 600.0)["mid"]
    assert decision.reason == "300 records/s take 75% of 4 workers, within 55% to 85%"
    assert (decision.wanted, decision.away) == (2, 0)
    pipeline.rate = lambda _: 400.0
    decision = last(pipeline, 120.0)["mid"]
    assert (decision.wanted, decision.away) == (4, 0)


def test_workers_that_already_start_are_not_asked_for_again():
    pipeline = Pipeline(chain(), lambda _: 300.0, change_seconds=1e6)
    decision = last(pipeline, 300.0)["mid"]
    assert (decision.slots, decision.wanted) == (1, 4)
    assert decision.reason == "4 workers stay wanted while a change is under way"


def test_a_reason_says_stay_only_of_workers_that_the_tier_has():
    pipeline = Pipeline(chain(), lambda _: 300.0)
    assert last(pipeline, 1800.0)["mid"].slots == 4
    pipeline.rate = lambda _: 50.0
    assert "and 4 workers stay until" in last(pipeline, 60.0)["mid"].reason
    observation = pipeline.observe()
    fewer = replace(observation.signals["mid"], workers=2)
    observation = replace(observation, signals={**observation.signals, "mid": fewer})
    decision = plan(observation, pipeline.settings, pipeline.memory)[0]["mid"]
    assert "and 4 workers stay wanted until" in decision.reason


def test_a_decision_that_was_lost_is_made_again():
    pipeline = Pipeline(chain(), spike(50.0, 500.0))
    list(pipeline.run(625.0))
    assert pipeline.tiers["mid"].asked == (4, 0)
    pipeline.tiers["mid"].asked = None
    assert last(pipeline, LOOK)["mid"].wanted == 4
    assert pipeline.tiers["mid"].asked == (4, 0)


def test_growth_is_not_judged_while_another_change_is_under_way():
    pipeline = Pipeline(chain(most=100.0), spike(50.0, 500.0))
    list(pipeline.run(640.0))
    pipeline.tiers["mid"].asked, pipeline.tiers["mid"].changing_until = (4, 0), 1000.0
    list(pipeline.run(360.0))
    assert pipeline.memory.tiers["mid"].block is None
    list(pipeline.run(120.0))
    assert pipeline.memory.tiers["mid"].block is not None


def test_advice_is_the_number_that_act_would_set_and_stays():
    pipeline = Pipeline(chain(), spike(50.0, 300.0), ScalerSettings())
    assert changes(pipeline, 660.0) == [(620.0, "mid", 4), (620.0, "out", 4)]
    assert pipeline.tiers["mid"].workers == 1


def test_advice_begins_at_the_number_of_the_layers_below():
    for before in (ScalerSettings(), ScalerSettings(defaults=TierScaling(mode=Mode.ACT))):
        acts = before.defaults.mode is Mode.ACT
        held = replace(BOUNDS, held_by=None if acts else "ana")
        pipeline = Pipeline(chain(workers=4, bounds=held), spike(300.0, 10.0, 60.0), before)
        assert last(pipeline, 80.0)["mid"].wanted == 4
        pipeline.settings = ScalerSettings()
        pipeline.tiers["mid"].bounds, pipeline.tiers["mid"].workers = BOUNDS, 1
        assert {decisions["mid"].wanted for _, decisions in pipeline.run(120.0)} == {1}


def test_the_number_of_a_tool_is_told_with_the_command_that_removes_it():
    bounds = replace(BOUNDS, set_by="cli:anna", base=2)
    for mode in Mode:
        scaler = ScalerSettings(defaults=TierScaling(mode=mode))
        told = last(Pipeline(chain(bounds=bounds), lambda _: 50.0, scaler), 60.0)["mid"].reason
        how = "`sluice scale mid 2 --layer autoscaler`"
        assert (how in told) is (mode is not Mode.ACT), "in mode act the scaler replaces it"


def test_a_tier_that_acts_does_not_count_on_advice_upstream():
    scaler = ScalerSettings(defaults=TierScaling(mode=Mode.ADVISE), tiers={"out": TierScaling(mode=Mode.ACT)})
    pipeline = Pipeline(chain(), spike(50.0, 500.0), scaler)
    assert last(pipeline, 3600.0)["mid"].wanted > 4
    assert pipeline.tiers["out"].workers == 2, "mid writes 100/s as long as nobody follows its advice"


def test_a_tier_that_is_off_gets_the_number_of_the_layers_below():
    scaler = ScalerSettings(defaults=TierScaling(mode=Mode.OFF))
    decision = last(Pipeline(chain(bounds=replace(BOUNDS, base=3)), lambda _: 500.0, scaler), 1200.0)["mid"]
    assert (decision.mode, decision.wanted) == (Mode.OFF, 3)
    assert decision.reason == "the scaler is off, and the layers below give 3 workers"


def test_after_a_person_the_scaler_goes_on_from_the_person_s_number():
    pipeline = Pipeline(chain(workers=3, bounds=replace(BOUNDS, held_by="ana")), lambda _: 500.0)
    decision = last(pipeline, 1200.0)["mid"]
    assert decision.wanted == 3
    assert decision.reason.startswith("ana set 3 workers, and 500 records/s and ")
    pipeline.tiers["mid"].bounds = BOUNDS
    assert ("mid", 12) in [change[1:] for change in changes(pipeline, 25.0)]


def test_without_fresh_figures_the_number_stays():
    pipeline = Pipeline(chain(), lambda _: 300.0)
    list(pipeline.run(1800.0))
    observation = replace(pipeline.observe(), signals={})
    decision = plan(observation, pipeline.settings, pipeline.memory)[0]["mid"]
    assert (decision.slots, decision.wanted) == (4, 4)
    assert decision.reason == "4 workers stay wanted, because no fresh figures came"


def before_a_busy_hour(**bounds):
    """Return a pipeline half an hour before the hour in which past weeks had ten times as much."""
    hour = int(START // 3600)
    hours = bytearray(168)
    hours[hour % 168], hours[(hour + 1) % 168] = 1 + 254 // 10, 255
    week = Week(peak=1000.0, hours=b64encode(hours).decode(), hour=hour)
    tier = Tier(100.0, workers=2, bounds=replace(BOUNDS, **bounds))
    pipeline = Pipeline({"entry": tier}, lambda _: 100.0)
    pipeline.seconds = (hour + 0.5) * 3600 - START
    pipeline.memory = Memory(tiers={"entry": TierMemory(week=week)})
    return pipeline


def test_a_tier_is_scaled_before_the_hour_in_which_past_weeks_had_more():
    decision = last(before_a_busy_hour(), 60.0)["entry"]
    assert decision.wanted == 4
    assert decision.reason.startswith("265 foreseen records/s ")


def test_a_burst_for_the_hour_of_past_weeks_is_asked_for_before_it():
    pipeline = before_a_busy_hour(room=0, burst=3)
    wishes = {wish(decisions, observation) for observation, decisions in pipeline.run(60.0)} - {None}
    assert pipeline.tiers["entry"].lag == 0, "the load has not come yet"
    (burst,) = wishes
    assert (burst.tier, burst.k) == ("entry", 2)
    assert burst.reason.startswith("256 foreseen records/s ")
    assert burst.reason.endswith(" need 4 workers, 2 of them by a burst")


def test_a_lower_load_ends_the_memory_of_useless_growth():
    pipeline = Pipeline(chain(most=100.0), lambda seconds: 500.0 if seconds < 1800 else 50.0)
    list(pipeline.run(1800.0))
    assert pipeline.memory.tiers["mid"].block is not None
    pipeline.tiers["mid"].lag = 0.0
    list(pipeline.run(30.0))
    assert pipeline.memory.tiers["mid"].block is None


def test_a_clock_that_is_set_back_stops_nothing():
    pipeline = Pipeline(chain(), spike(50.0, 500.0))
    list(pipeline.run(1200.0))
    pipeline.seconds -= 6 * 3600.0
    pipeline.rate = lambda _: 1500.0
    assert ("mid", 22) in [change[1:] for change in changes(pipeline, 120.0)]


def test_a_memory_of_a_hundred_tiers_is_smaller_than_a_znode_may_be():
    figure, time = 123456.7, START + 0.1
    full = TierMemory(
        readings=Readings(
            at=time,
            rate_in=figure,
            rate_done=figure,
            rate_out=figure,
            best_done=figure,
            per_worker=figure,
            lag_mean=10.0**12,
        ),
        week=Week(
            peak=figure, hours=b64encode(bytes(168)).decode(), hour=10**6, records=figure, seconds=figure
        ),
        wanted=1000,
        told=False,
        since=time,
        changes=(time,) * TierScaling().changes_per_hour,
        trend=Trend(more=False, since=time, most=1000),
        attempt=Attempt(before=1000, after=1000, rate_done=figure, at=time, ready=time, lagged=False),
        block=Block(
            before=1000, after=1000, done_before=figure, done_after=figure, load=figure, at=time, times=100
        ),
        starvation=Starvation(seen=time, tried=1000),
    )
    memory = Memory(tiers={f"a-tier-with-20-letters-{number:03}": full for number in range(100)})
    assert len(memory.model_dump_json()) < 100_000


def first_growth(**bounds):
    """Return the first decision to grow, where a handover takes very long."""
    tiers = {"mid": Tier(bounds=replace(BOUNDS, **bounds))}
    pipeline = Pipeline(tiers, lambda seconds: 300.0 if seconds > 60 else 50.0, change_seconds=1e5)
    grown = (decisions["mid"] for _, decisions in pipeline.run(200.0))
    return next(decision for decision in grown if decision.wanted > tiers["mid"].workers)


def test_a_growth_in_place_expects_less_backlog_than_a_handover():
    needs = [int(first_growth(in_place=each).reason.split(" need ")[1].split()[0]) for each in (True, False)]
    assert needs[0] < needs[1]


def test_a_growth_wakes_spares_and_expects_less_backlog_meanwhile():
    without, with_spare = first_growth().reason, first_growth(spares=1).reason
    assert "wakes" not in without
    assert with_spare.endswith("and the tier wakes 1 spare")
    needs = [int(reason.split(" need ")[1].split()[0]) for reason in (without, with_spare)]
    assert needs[1] < needs[0]
