"""The load of a tier: rates and useful time between two looks."""

from sluice.driver.process.load_meter import LoadMeter, Sums
from sluice_ops.model.load import LOAD_SECONDS


def measure(meter, now, end, done, out=0, busy=0.0, fixed=0.0):
    sums = Sums(now=now, ends={"in/0": end}, done=done, out=out, busy_seconds=busy, fixed_seconds=fixed)
    return meter.measure(sums, at=1000.0 + now, workers=2, lag=end - done, lag_seconds=1.0)


def test_rates_and_useful_time_are_those_since_the_last_result():
    meter = LoadMeter()
    assert measure(meter, 0.0, end=500, done=400) is None, "there is nothing to compare"
    assert measure(meter, LOAD_SECONDS - 1, end=900, done=700, busy=3.0) is None, "too early"
    load = measure(meter, LOAD_SECONDS, end=1500, done=900, out=100, busy=4.0)
    assert (load.rate_in, load.rate_done, load.rate_out, load.busy) == (100.0, 50.0, 10.0, 0.4)
    assert (load.workers, load.lag, load.at) == (2, 600, 1010.0)
    load = measure(meter, 2 * LOAD_SECONDS, end=1500, done=1500, out=100, busy=14.5)
    assert (load.rate_in, load.rate_done, load.busy) == (0.0, 60.0, 1.0), "one batch may begin before"
    load = measure(meter, 3 * LOAD_SECONDS, end=1500, done=1500, out=100, busy=14.0)
    assert load.busy == 0.0, "a batch may end during a look"


def test_the_fixed_time_of_batches_is_a_part_of_the_time():
    meter = LoadMeter()
    measure(meter, 0.0, end=0, done=0, busy=5.0, fixed=2.0)
    load = measure(meter, LOAD_SECONDS, end=100, done=100, busy=9.0, fixed=5.0)
    assert (load.busy, load.fixed) == (0.4, 0.3)


def test_a_realtime_tier_has_no_useful_time():
    meter = LoadMeter()
    measure(meter, 0.0, end=0, done=0, busy=None)
    assert measure(meter, LOAD_SECONDS, end=10, done=10, busy=None).busy is None


def test_a_load_is_throttled_if_the_tier_was_metered_at_any_look():
    meter = LoadMeter()

    def throttled(now, *, metered):
        sums = Sums(now, {"in/0": 0}, 0, 0, None, metered=metered)
        load = meter.measure(sums, at=0.0, workers=1, lag=0, lag_seconds=0.0)
        return None if load is None else load.throttled

    looks = [(0, False), (4, True), (8, False), (10, False), (20, True), (30, False), (40, False)]
    assert [throttled(float(now), metered=metered) for now, metered in looks] == [
        None,
        None,
        None,
        True,
        True,
        True,
        False,
    ]


def test_an_added_partition_counts_from_its_first_look():
    meter = LoadMeter()
    meter.measure(Sums(0.0, {"in/0": 10}, 0, 0, None), at=0.0, workers=1, lag=0, lag_seconds=0.0)
    sums = Sums(LOAD_SECONDS, {"in/0": 10, "in/1": 5000}, 0, 0, None)
    assert meter.measure(sums, at=0.0, workers=1, lag=0, lag_seconds=0.0).rate_in == 0.0


def test_after_a_change_of_owner_the_meter_begins_anew():
    meter = LoadMeter()
    measure(meter, 0.0, end=0, done=0)
    meter.forget()
    assert measure(meter, LOAD_SECONDS, end=10, done=10) is None


def test_bad_records_have_a_rate_of_their_own():
    meter = LoadMeter()
    for now, quarantined in ((0.0, 5), (LOAD_SECONDS, 30)):
        sums = Sums(now, {"in/0": 0}, 0, 0, None, quarantined=quarantined)
        load = meter.measure(sums, at=0.0, workers=1, lag=0, lag_seconds=0.0)
    assert load.rate_quarantined == 2.5
