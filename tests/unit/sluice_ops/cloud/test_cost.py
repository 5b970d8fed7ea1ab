"""A burst that could cost more in a day than the site file allows is refused."""

from datetime import UTC, datetime

import pytest
from simulation.ec2 import instance

from sluice_ops.cloud.cost import most_per_hour, refuse_too_expensive, total
from sluice_ops.cloud.errors import QuotaError
from sluice_ops.site.ec2_config import Ec2Config

CONFIG = Ec2Config(
    instance_types=["m5.large", "m6i.large"],
    price_per_hour={"m5.large": 0.10, "m6i.large": 0.20},
    max_cost_per_day=4.0,
)
NOW = datetime(2026, 11, 25, 18, tzinfo=UTC).timestamp()
YESTERDAY = NOW - 86400


def running(launched_at):
    return instance("i-0000000000000001", launched_at=launched_at)


@pytest.mark.parametrize(
    ("instances", "count", "refusal"),
    [
        ([], 3, None),  # 3 x 6 h x 0.20 = 3.60
        ([], 4, "4 more instances could cost 4.80 until midnight UTC, beside 0.00 of the 0 that run"),
        ([running(NOW - 3600)], 2, None),  # 7 h x 0.10 + 2.40 = 3.10
        ([running(YESTERDAY)], 1, None),  # from midnight on: 24 h x 0.10 + 1.20 = 3.60
        ([running(YESTERDAY)], 2, "beside 2.40 of the 1 that run: more than ec2.max_cost_per_day, 4.00"),
    ],
)
def test_running_and_new_instances_count_until_midnight(instances, count, refusal):
    if refusal is None:
        refuse_too_expensive(instances, count, CONFIG, NOW)
        return
    with pytest.raises(QuotaError) as error:
        refuse_too_expensive(instances, count, CONFIG, NOW)
    assert refusal in str(error.value)
    refuse_too_expensive(instances, count, CONFIG.model_copy(update={"max_cost_per_day": None}), NOW)


def test_a_running_instance_without_a_price_is_named():
    config = Ec2Config(instance_types=["c5.large"], price_per_hour={"c5.large": 0.1}, max_cost_per_day=9.0)
    with pytest.raises(QuotaError, match=r"the price of m5.large is not known"):
        refuse_too_expensive([running(NOW)], 1, config, NOW)


def test_prices_that_are_not_known_are_not_guessed():
    assert most_per_hour(2, CONFIG) == 0.4
    assert total([running(NOW - 7200)], CONFIG, NOW) == 0.2
    assert most_per_hour(2, Ec2Config()) is None
    assert total([running(NOW)], Ec2Config(), NOW) is None
