"""The figures of the last hour that the page draws."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_airflow.page.last_hour import POINTS, STEP_SECONDS, LastHour


def tier(name, rate, reads=None, writes=None):
    figures = {"rate_in": rate, "lag": 0, "latency_ms": None}
    return {"name": name, **figures, "input_rates": reads or {}, "output_rates": writes or {}}


def test_a_point_is_kept_every_half_minute():
    hour = LastHour()
    for at, rate in ((0.0, 1.0), (10.0, 2.0), (29.9, 3.0), (30.0, 4.0)):
        hour.add(at, [tier("entry", rate)])
    assert hour.series()["times"] == [0, 30]
    assert hour.series()["tiers"]["entry"]["rate_in"] == [1.0, 4.0]


def test_a_tier_that_is_new_has_no_figures_before():
    hour = LastHour()
    hour.add(0.0, [tier("entry", 1.0), tier("gone", 1.0)])
    hour.add(STEP_SECONDS, [tier("entry", 1.0), tier("counts", 5.0)])
    assert hour.series()["tiers"].keys() == {"entry", "counts"}
    assert hour.series()["tiers"]["counts"]["rate_in"] == [None, 5.0]


def test_a_stream_has_its_rate_as_written_and_for_each_reader():
    hour = LastHour()
    hour.add(0.0, [tier("entry", 9.0, writes={"hits": 8.0})])
    hour.add(
        STEP_SECONDS,
        [
            tier("entry", 9.0, writes={"hits": 7.0}),
            tier("counts", 3.0, reads={"hits": 3.0}),
            tier("enrich", 4.0, reads={"hits": 4.0}),
        ],
    )
    assert hour.series()["streams"] == {
        "hits": [8.0, 7.0],
        "hits counts": [None, 3.0],
        "hits enrich": [None, 4.0],
    }


@given(st.lists(st.floats(min_value=0, max_value=120), max_size=300))
def test_the_hour_is_bounded_and_each_series_has_each_time(waits):
    hour, now = LastHour(), 0.0
    for wait in waits:
        now += wait
        hour.add(now, [tier("entry", wait)])
    series = hour.series()
    assert len(series["times"]) <= POINTS
    assert series["times"] == sorted(series["times"])
    for values in series["tiers"].values():
        assert all(len(each) == len(series["times"]) for each in values.values())
