"""Receipts tell how long instances have run, also after their end."""

import pytest
from simulation.ec2 import instance
from simulation.memory import MemoryChannel

from sluice_ops.cloud.cost import launch_of
from sluice_ops.cloud.receipts import KEPT_SECONDS, keep_receipts, receipts_now
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.site.ec2_config import Ec2Config

HOUR = 3600.0
NOON = 20_000 * 86_400.0 + 12 * HOUR
A, B = (
    instance("i-000000000000000a", launched_at=NOON),
    instance("i-000000000000000b", launched_at=NOON + HOUR),
)


@pytest.fixture
def channel():
    return MemoryChannel()


def kept(channel):
    """Return the receipts in the channel by id: when each instance was launched, joined and ended,
    in hours from noon.
    """
    names = channel.children(paths.INSTANCES)
    receipts = [channel.read(paths.instance(name), InstanceReceipt).value for name in names]
    return {
        name[-1]: tuple(
            None if at is None else (at - NOON) / HOUR
            for at in (each.launched_at, each.joined_at, each.ended_at)
        )
        for name, each in zip(names, receipts, strict=True)
    }


def test_a_receipt_has_the_launch_the_join_and_the_end(channel):
    keep_receipts(channel, [A, B], NOON)
    assert kept(channel) == {"a": (0, None, None), "b": (1, None, None)}
    channel.clock = NOON + HOUR
    channel.put(paths.host(A.host), HostFacts(name=A.host, address="a", zone="ec2", cpu=4, memory=4096))
    keep_receipts(channel, [A, B], NOON + 2 * HOUR, [B.id])
    assert kept(channel) == {"a": (0, 1, None), "b": (1, None, 2)}
    channel.delete(paths.host(A.host))
    keep_receipts(channel, [], NOON + 3 * HOUR)
    assert kept(channel) == {"a": (0, 1, 3), "b": (1, None, 2)}, "an end that nobody asked for is noticed"
    keep_receipts(channel, [A], NOON + 4 * HOUR)
    assert kept(channel)["a"] == (0, 1, None), "EC2 had not shown it yet"


def test_an_instance_that_nobody_recorded_has_a_receipt_when_it_ends(channel):
    keep_receipts(channel, [A], NOON + HOUR, [A.id])
    assert kept(channel) == {"a": (0, None, 1)}


def test_old_receipts_are_deleted_and_an_unreadable_one_is_written_again(channel):
    keep_receipts(channel, [A, B], NOON, [A.id])
    channel.put(paths.instance(B.id), HostFacts(name=B.host, address="a", zone="ec2", cpu=4, memory=4096))
    keep_receipts(channel, [B], NOON + KEPT_SECONDS)
    assert kept(channel).keys() == {"a", "b"}
    keep_receipts(channel, [B], NOON + KEPT_SECONDS + 1)
    assert kept(channel).keys() == {"b"}


def test_a_look_writes_nothing(channel):
    keep_receipts(channel, [A], NOON)
    writes = channel.writes
    (receipt,) = receipts_now(channel, [], NOON + HOUR)
    assert receipt.ended_at == NOON + HOUR
    assert channel.writes == writes
    keep_receipts(channel, [A], NOON + HOUR)
    assert channel.writes == writes, "nothing has changed"


def test_a_day_of_short_bursts_counts_as_a_whole(channel):
    config = Ec2Config(price_per_hour={"m5.large": 0.10}, max_cost_per_day=2.5)
    above = lambda count, now: launch_of(receipts_now(channel, [], now), count, config, now).above(2.5)
    for hour in range(5):
        burst = instance(f"i-000000000000001{hour}", launched_at=NOON + hour * HOUR)
        assert above(1, burst.launched_at) == ""
        keep_receipts(channel, [burst], burst.launched_at)
        keep_receipts(channel, [burst], burst.launched_at + HOUR, [burst.id])
    evening = NOON + 5 * HOUR
    assert above(3, evening) == (
        "3 instances could cost 2.10 until midnight UTC; the day has spent 0.50 of 2.50"
    )
    assert above(2, evening) == ""
    assert above(1, NOON + 13 * HOUR) == ""
