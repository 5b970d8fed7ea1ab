"""A launch takes the first pools with capacity, and leaves all instances or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.ec2 import MemoryCloud

from sluice_ops.cloud.api import WAITS
from sluice_ops.cloud.errors import (
    NO_ANSWER,
    CapacityError,
    CloudAwayError,
    CloudError,
    NextStep,
    next_step,
)
from sluice_ops.cloud.pools import pools
from sluice_ops.site.ec2_config import Ec2Config

TYPES = ("m6i.large", "m5.large")
SUBNETS = {"eu-central-1a": "subnet-0000000a", "eu-central-1b": "subnet-0000000b"}
CONFIG = Ec2Config(instance_types=TYPES, market="spot", subnets=SUBNETS, max_instances=50)
POOLS = [(pool.market, pool.instance_type, pool.subnet) for pool in pools(CONFIG)]


def silent(_sentence):
    pass


def launched(cloud, count):
    return [each.id for each in cloud.launch("change", count, silent)]


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ("InsufficientInstanceCapacity", NextStep.POOL),
        ("Unsupported", NextStep.POOL),
        ("SpotMaxPriceTooLow", NextStep.MARKET),
        ("RequestLimitExceeded", NextStep.RETRY),
        (NO_ANSWER, NextStep.RETRY),
        ("VcpuLimitExceeded", NextStep.REFUSE),
        ("UnauthorizedOperation", NextStep.REFUSE),
        ("InvalidAMIID.NotFound", NextStep.REFUSE),
    ],
)
def test_each_error_of_ec2_has_one_next_step(code, step):
    assert next_step(code) is step


def test_pools_follow_market_then_type_then_zone():
    assert [
        (market, kind, subnet)
        for market in ("spot", "on-demand")
        for kind in TYPES
        for subnet in SUBNETS.values()
    ] == POOLS
    assert [pool.market for pool in pools(Ec2Config())] == ["on-demand"]


@given(st.lists(st.integers(0, 4), min_size=8, max_size=8), st.integers(1, 12))
def test_a_launch_gives_all_instances_in_order_of_preference_or_none(capacities, count):
    cloud = MemoryCloud(CONFIG, dict(zip(POOLS, capacities, strict=True)))
    if sum(capacities) < count:
        with pytest.raises(CapacityError, match="none was kept"):
            launched(cloud, count)
        assert cloud.ec2.running == []
        return
    assert sorted(launched(cloud, count)) == sorted(cloud.ec2.running)
    assert len(cloud.ec2.running) == count
    used = [before - cloud.ec2.capacity[pool] for pool, before in zip(POOLS, capacities, strict=True)]
    full = [before == taken for before, taken in zip(capacities, used, strict=True)]
    last = max(number for number, taken in enumerate(used) if taken)
    assert all(full[:last]), "a less preferred pool is used only when the better ones are full"


def test_a_spot_refusal_for_the_price_goes_to_on_demand_at_once():
    cloud = MemoryCloud(CONFIG, dict.fromkeys(POOLS, 5))
    cloud.ec2.errors = [None, "SpotMaxPriceTooLow"]
    sentences = []
    (instance,) = cloud.launch("change", 1, sentences.append)
    assert (instance.market, instance.instance_type) == ("on-demand", "m6i.large")
    assert len(cloud.ec2.asked) == 1
    assert sentences == [
        "EC2 does not have 1 x m6i.large (spot) in eu-central-1a (SpotMaxPriceTooLow); trying the next pool"
    ]


@pytest.mark.parametrize("code", ["RequestLimitExceeded", NO_ANSWER])
def test_a_throttled_or_unanswered_launch_is_repeated_and_launches_once(code):
    cloud = MemoryCloud()
    cloud.ec2.errors = [None, code, code]
    assert launched(cloud, 2) == cloud.ec2.running
    assert len(cloud.ec2.running) == 2
    assert cloud.ec2.waited == [1.0, 2.0]


def test_a_launch_without_an_answer_keeps_its_instances_for_the_next_try():
    cloud = MemoryCloud()
    cloud.ec2.errors = [None, *[NO_ANSWER] * (len(WAITS) + 1)]
    with pytest.raises(CloudAwayError):
        launched(cloud, 2)
    assert len(cloud.ec2.running) == 2
    assert launched(cloud, 2) == cloud.ec2.running
    assert len(cloud.ec2.running) == 2


def test_a_refusal_in_a_later_pool_terminates_the_earlier_instances():
    cloud = MemoryCloud(CONFIG, {POOLS[0]: 1})
    cloud.ec2.errors = [None, None, None, "UnauthorizedOperation"]
    with pytest.raises(CloudError, match="UnauthorizedOperation"):
        launched(cloud, 2)
    assert len(cloud.ec2.described) == 1
    assert cloud.ec2.running == []


def test_a_retry_after_an_undone_launch_launches_new_instances():
    cloud = MemoryCloud(CONFIG, {POOLS[0]: 1})
    with pytest.raises(CapacityError):
        launched(cloud, 2)
    cloud.ec2.capacity = {POOLS[0]: 1, POOLS[1]: 1}
    assert launched(cloud, 2) == cloud.ec2.running
    assert len(cloud.ec2.running) == 2


def test_a_second_call_launches_only_what_is_missing():
    cloud = MemoryCloud()
    first = launched(cloud, 1)
    assert launched(cloud, 3) == [*first, *cloud.ec2.running[1:]]
    assert launched(cloud, 3) == cloud.ec2.running
    assert len(cloud.ec2.running) == 3
