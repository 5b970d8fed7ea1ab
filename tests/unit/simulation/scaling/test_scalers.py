"""The other scalers follow the rules of their documentation."""

from dataclasses import dataclass, field, replace

import pytest

from sluice_ops.model.ids import TierName
from sluice_ops.planning.scaler.signals import Bounds, Observation, Signals
from tests.simulation.scaling.pipeline import Details, Measurement
from tests.simulation.scaling.scalers.dhalion import BLACKLISTED, INTERVAL, Dhalion
from tests.simulation.scaling.scalers.flink import EXAMPLE, Flink, Options
from tests.simulation.scaling.scalers.threshold import Threshold

FIRST, SECOND = TierName("first"), TierName("second")
BOUNDS = Bounds(minimum=1, base=1, maximum=40, partitions=120, room=100, held_by=None)


@dataclass
class Tiers:
    """Two tiers under a scaler; a change takes effect at once."""

    scaler: object
    signals: dict[TierName, Signals] = field(
        default_factory=lambda: dict.fromkeys(
            (FIRST, SECOND), Signals(1000, 1000, 1000, 0.7, 10, 0, 0.0, starved=False)
        )
    )
    pressure: dict[TierName, float] = field(default_factory=dict)
    now: float = 0.0

    def be(self, tier, **fields) -> None:
        self.signals[tier] = replace(self.signals[tier], **fields)

    def decide(self, changing=()):
        observation = Observation(
            now=self.now,
            signals=dict(self.signals),
            bounds={FIRST: BOUNDS, SECOND: BOUNDS},
            inputs={FIRST: (), SECOND: (FIRST,)},
            change_seconds=30.0,
            changing=frozenset(changing),
        )
        details = {
            name: Details(signals.busy, self.pressure.get(name, 0.0))
            for name, signals in self.signals.items()
        }
        sizes = dict(self.scaler.decide(Measurement(observation, details)))
        for name, size in sizes.items():
            self.be(name, workers=size)
        return sizes

    def until(self, end, every=15.0):
        """Decide until a time; return the first sizes that differ, and when."""
        while self.now < end:
            self.now += every
            before = {name: signals.workers for name, signals in self.signals.items()}
            sizes = self.decide()
            if changed := {name: size for name, size in sizes.items() if size != before[name]}:
                return changed, self.now
        return {}, self.now


def test_hpa_sizes_by_the_ratio_of_busy_to_target():
    tiers = Tiers(Threshold())
    tiers.be(FIRST, busy=0.9)
    assert tiers.until(15) == ({FIRST: 13}, 15)


def test_hpa_leaves_deviations_within_the_tolerance():
    tiers = Tiers(Threshold())
    tiers.be(FIRST, busy=0.76)
    assert tiers.until(600)[0] == {}


def test_hpa_shrinks_to_the_highest_recommendation_of_five_minutes():
    tiers = Tiers(Threshold())
    assert tiers.until(300)[0] == {}
    tiers.be(FIRST, busy=0.35)
    assert tiers.until(1000) == ({FIRST: 5}, 600)


def test_hpa_grows_at_most_to_twice_the_size_or_by_four_at_once():
    tiers = Tiers(Threshold())
    tiers.be(FIRST, workers=2, busy=1.0)
    tiers.be(SECOND, workers=39, busy=1.0)
    assert tiers.until(15)[0] == {FIRST: 3, SECOND: 40}


def test_dhalion_grows_the_bottleneck_by_the_ratio_of_pressure_to_the_rest():
    tiers = Tiers(Dhalion(), pressure={FIRST: 0.1, SECOND: 0.2})
    tiers.be(SECOND, lag_seconds=10)
    assert tiers.until(15) == ({SECOND: 13}, 15)  # 20 % of the time: a quarter more
    assert tiers.until(15 + INTERVAL)[1] == 15 + INTERVAL


def test_dhalion_shrinks_idle_tiers_and_undoes_what_did_harm():
    tiers = Tiers(Dhalion())
    assert tiers.until(15)[0] == {FIRST: 8, SECOND: 8}
    tiers.pressure = {SECOND: 0.1}
    tiers.be(SECOND, lag_seconds=10)
    assert tiers.until(15 + INTERVAL) == ({SECOND: 10}, 15 + INTERVAL)
    tiers.pressure = {}
    tiers.be(SECOND, lag_seconds=0)
    tiers.be(FIRST, workers=1)
    assert tiers.until(INTERVAL + BLACKLISTED)[0] == {}
    assert tiers.until(INTERVAL + BLACKLISTED + 2 * INTERVAL)[0] == {SECOND: 8}


def test_flink_waits_for_stabilisation_and_a_whole_window():
    tiers = Tiers(Flink("Flink", Options()))
    tiers.be(FIRST, busy=1.0, rate_in=2000, lag=1000, lag_seconds=60)
    tiers.decide(changing=[FIRST])
    assert tiers.until(300 + 900)[1] == 1200
    tiers = Tiers(Flink("Flink", EXAMPLE))
    tiers.be(FIRST, busy=1.0, rate_in=2000, lag=1000, lag_seconds=60)
    tiers.decide(changing=[FIRST])
    assert tiers.until(1200)[1] == 60 + 300


def test_flink_adds_backlog_and_restart_to_the_rate_at_target_utilisation():
    tiers = Tiers(Flink("Flink", Options()))
    tiers.be(FIRST, busy=1.0, lag=180_000)
    tiers.be(SECOND, busy=0.5)
    tiers.decide(changing=[FIRST])
    sizes, _ = tiers.until(2000)
    # Capacity: 1000 / 0.7 + 1000 * 300 / 1800 + 180000 / 1800 = 1695; 10 workers process 1000.
    # 17 workers, and 20 is the next divisor of 120. The second has 2000: 8.5 of its workers of 200.
    assert sizes == {FIRST: 20}


def test_flink_stays_while_all_utilisations_are_in_their_range():
    tiers = Tiers(Flink("Flink", Options()))
    tiers.be(FIRST, busy=0.95)
    tiers.be(SECOND, busy=0.5)
    assert tiers.until(10_000)[0] == {}


def test_flink_shrinks_after_an_hour_to_two_fifths_at_most():
    tiers = Tiers(Flink("Flink", Options()))
    tiers.be(FIRST, busy=0.05)
    tiers.be(SECOND, busy=0.6)
    tiers.decide(changing=[FIRST])
    sizes, when = tiers.until(10_000)
    assert sizes == {FIRST: 4}
    assert when == pytest.approx(1200 + 3600, abs=60)


def test_flink_aims_at_the_rate_that_comes_in_not_at_what_it_processes():
    tiers = Tiers(Flink("Flink", Options()))
    tiers.be(FIRST, busy=1.0, lag_seconds=60)
    tiers.decide(changing=[FIRST])
    while tiers.now < 1200:
        tiers.now += 15
        tiers.be(FIRST, lag=int(tiers.now * 1000))  # 2000/s come in
        sizes = tiers.decide()
    assert sizes[FIRST] >= 30
    assert sizes[SECOND] >= 20
