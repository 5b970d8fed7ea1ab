"""A burst that is ready after the tier's lag is cleared without it comes too late."""

import pytest

from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.load import TierLoad
from sluice_ops.model.scaler import Readings
from sluice_ops.planning.changes.break_even import boot_seconds, break_even, change_seconds
from sluice_ops.planning.placement.pace import Pace

LOAD = TierLoad(at=0, rate_in=100, rate_done=300, rate_out=0, workers=2, lag=20_000, lag_seconds=60)
READINGS = Readings(at=0, rate_in=200, rate_done=300, rate_out=0, best_done=300, per_worker=300)
CLEARED = "t clears its lag of 20,000 records without the burst in about"


@pytest.mark.parametrize(
    ("load", "readings", "boot", "too_late", "sentence"),
    [
        # 20,000 / (300 - 100) = 100 s, and 30 s or 50 s besides the 70 s of the change
        (
            {},
            None,
            30,
            False,
            (
                "the burst comes in time: it is ready in about 100 s (instances 30 s, change 70 s); "
                f"{CLEARED} 100 s (100/s arrive, and its 2 workers process 300/s)"
            ),
        ),
        (
            {},
            None,
            50,
            True,
            (
                "the burst comes too late: it is ready in about 120 s (instances 50 s, change 70 s); "
                f"{CLEARED} 100 s (100/s arrive, and its 2 workers process 300/s). Wait, unless more load"
            ),
        ),
        # the scaler knows the capacity of a worker: 20,000 / (2 x 300 - 200) = 50 s
        ({}, READINGS, 0, True, f"{CLEARED} 50 s (200/s arrive, and its 2 workers process 600/s)"),
        ({"workers": 1}, READINGS, 0, False, f"{CLEARED} 200 s"),
        ({"rate_in": 300}, None, 500, False, "the lag of t, 20,000 records, does not shrink without the"),
        ({"rate_in": 400}, None, 500, False, "ready in about 570 s"),
        ({}, None, None, False, "the burst may come in time"),
        ({}, None, None, False, "ready in more than 70 s (the change; no instance has been timed yet)"),
        ({"lag": 10_000}, None, None, True, "the burst comes too late"),
        ({}, None, 0, False, "ready in about 70 s (the change; no instance is launched)"),
        ({"lag_seconds": 2}, None, 50, True, "t has no lag now, so the burst only helps with load to come"),
        ({"lag": 0}, None, 50, True, "t has no lag now"),
        (None, READINGS, 50, False, "not known, because the driver of t reports no load; the burst is"),
    ],
)
def test_the_time_to_ready_is_compared_with_the_time_to_clear(load, readings, boot, too_late, sentence):
    fresh = None if load is None else LOAD.model_copy(update=load)
    compared = break_even("t", fresh, readings, boot, 70.0)
    assert sentence in compared.sentence
    assert compared.too_late is too_late


def test_the_boot_time_is_the_median_of_the_last_instances():
    def joined(at, seconds):
        return InstanceReceipt(instance_type="m5.large", launched_at=at - seconds, joined_at=at)

    assert boot_seconds([InstanceReceipt(instance_type="m5.large", launched_at=1)]) is None
    old = [joined(number, 500) for number in range(30)]
    last = [joined(100 + number, 60 + number) for number in range(9)]
    assert boot_seconds([*last, *old]) == pytest.approx(64.5)


def test_a_tier_that_gets_workers_in_place_is_ready_sooner():
    pace = Pace(prepare=50, cut=10, join_in_place=7)
    assert change_seconds(pace, in_place=True) == 7
    assert change_seconds(pace, in_place=False) == 60
