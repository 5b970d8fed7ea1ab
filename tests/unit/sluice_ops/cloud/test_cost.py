"""A burst that could cost more in a day than the site file allows is refused."""

from datetime import UTC, datetime

import pytest
from simulation.ec2 import instance

from sluice_ops.cloud.cost import most_per_hour, refuse_too_expensive, total
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
    ("receipts", "count", "refusal"),
    [
        ([], 3, None),  # 3 x 6 h x 0.20 = 3.60
        ([], 4, "4 more instances could cost 4.80 until midnight UTC"),
        ([ran(NOW - 3600)], 2, None),  # 7 h x 0.10 + 2.40 = 3.10
        ([ran(YESTERDAY)], 1, None),  # from midnight on: 24 h x 0.10 + 1.20 = 3.60
        ([ran(YESTERDAY)], 2, "1 running and 0 ended, have cost 1.80 so far, and could cost 0.60 more"),
        ([ran(NOW - 7200, NOW - 3600, "m6i.large")], 3, None),  # 0.20 + 3.60 = 3.80
        ([ran(NOW - 7200, NOW, "m6i.large"), ran(NOW - 3600, NOW)], 3, "The sum is 4.10, above"),
        ([ran(YESTERDAY, NOW - 61200)], 3, None),  # from midnight on: 1 h x 0.10 + 3.60 = 3.70
        ([ran(YESTERDAY, NOW - 64800)], 3, None),  # it ended at midnight
        ([ran(YESTERDAY, NOW - 36000)], 3, "0 running and 1 ended, have cost 0.80 so far"),
    ],
)
def test_what_ran_today_and_what_may_run_until_midnight_count(receipts, count, refusal):
    if refusal is None:
        refuse_too_expensive(receipts, count, CONFIG, NOW)
        return
    with pytest.raises(QuotaError) as error:
        refuse_too_expensive(receipts, count, CONFIG, NOW)
    assert refusal in str(error.value)
    refuse_too_expensive(receipts, count, CONFIG.model_copy(update={"max_cost_per_day": None}), NOW)


@pytest.mark.parametrize("receipt", [ran(NOW), ran(NOW - 3600, NOW)])
def test_an_instance_of_today_without_a_price_is_named(receipt):
    config = Ec2Config(instance_types=["c5.large"], price_per_hour={"c5.large": 0.1}, max_cost_per_day=9.0)
    with pytest.raises(QuotaError, match=r"the price of m5.large is not known"):
        refuse_too_expensive([receipt], 1, config, NOW)
    refuse_too_expensive([ran(YESTERDAY, NOW - 64800)], 1, config, NOW)


def test_prices_that_are_not_known_are_not_guessed():
    assert most_per_hour(2, CONFIG) == 0.4
    assert total([instance("i-1", launched_at=NOW - 7200)], CONFIG, NOW) == 0.2
    assert most_per_hour(2, Ec2Config()) is None
    assert total([instance("i-1", launched_at=NOW)], Ec2Config(), NOW) is None
