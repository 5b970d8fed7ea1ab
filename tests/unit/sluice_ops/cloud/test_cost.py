"""What the day of a burst could cost."""

from datetime import UTC, datetime

import pytest
from simulation.ec2 import instance

from sluice_ops.cloud.cost import launch_of, most_per_hour, total
from sluice_ops.cloud.errors import QuotaError
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.site.ec2_config import Ec2Config

CONFIG = Ec2Config(
    instance_types=["m5.large", "m6i.large"],
    price_per_hour={"m5.large": 0.10, "m6i.large": 0.20},
    max_cost_per_day=4.0,
)
NOW = datetime(2026, 11, 25, 18, tzinfo=UTC).timestamp()
YESTERDAY = NOW - 86400


def ran(since, until=None, instance_type="m5.large"):
    return InstanceReceipt(instance_type=instance_type, launched_at=since, ended_at=until)


@pytest.mark.parametrize(
    ("receipts", "count", "day", "above"),
    [
        ([], 3, 3.60, ""),  # 3 x 6 h x 0.20
        ([], 4, 4.80, "4 instances could cost 4.80 until midnight UTC; the day has spent 0.00 of 4.00"),
        ([ran(NOW - 3600)], 2, 3.10, ""),  # 7 h x 0.10 + 2.40
        ([ran(YESTERDAY)], 1, 3.60, ""),  # from midnight on: 24 h x 0.10 + 1.20
        (
            [ran(YESTERDAY)],
            2,
            4.80,
            (
                "2 instances could cost 2.40 until midnight UTC; the day has spent 1.80 of 4.00, and the "
                "running instances could cost 0.60 more"
            ),
        ),
        ([ran(NOW - 7200, NOW - 3600, "m6i.large")], 3, 3.80, ""),  # 0.20 + 3.60
        ([ran(NOW - 7200, NOW, "m6i.large"), ran(NOW - 3600, NOW)], 3, 4.10, "has spent 0.50 of 4.00"),
        ([ran(YESTERDAY, NOW - 61200)], 3, 3.70, ""),  # from midnight on: 1 h x 0.10 + 3.60
        ([ran(YESTERDAY, NOW - 64800)], 3, 3.60, ""),  # it ended at midnight
        ([ran(YESTERDAY, NOW - 36000)], 3, 4.40, "the day has spent 0.80 of 4.00"),
        ([ran(YESTERDAY)] * 3, 0, 7.20, ""),  # nothing is launched
    ],
)
def test_what_ran_today_and_what_may_run_until_midnight_count(receipts, count, day, above):
    launch = launch_of(receipts, count, CONFIG, NOW)
    assert launch.day == pytest.approx(day)
    assert above in launch.above(4.0)
    assert bool(launch.above(4.0)) is bool(above)
    assert launch.above(None) == ""


@pytest.mark.parametrize("receipt", [ran(NOW), ran(NOW - 3600, NOW)])
def test_an_instance_of_today_without_a_price_is_named(receipt):
    config = Ec2Config(instance_types=["c5.large"], price_per_hour={"c5.large": 0.1}, max_cost_per_day=9.0)
    with pytest.raises(QuotaError, match=r"the price of m5.large is not known"):
        launch_of([receipt], 1, config, NOW)
    assert launch_of([ran(YESTERDAY, NOW - 64800)], 1, config, NOW).day is not None


@pytest.mark.parametrize("receipts", [[], [ran(NOW)]])
def test_a_cost_that_is_not_known_is_above_every_limit(receipts):
    launch = launch_of(receipts, 2, Ec2Config(instance_types=["c5.large"]), NOW)
    assert (launch.day, launch.above(None)) == (None, "")
    assert launch.above(1000).startswith("the cost of 2 instances is not known, and the limit of a day is")


def test_prices_that_are_not_known_are_not_guessed():
    assert most_per_hour(2, CONFIG) == 0.4
    assert total([instance("i-1", launched_at=NOW - 7200)], CONFIG, NOW) == 0.2
    assert most_per_hour(2, Ec2Config()) is None
    assert total([instance("i-1", launched_at=NOW)], Ec2Config(), NOW) is None
