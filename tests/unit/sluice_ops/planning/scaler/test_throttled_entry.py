"""A throttled entry: its load is what arrives, and the tier that it waits for grows."""

import pytest

from sluice_ops.model.incarnation import Placement
from sluice_ops.model.load import TierLoad
from sluice_ops.model.scaler import Memory, ScalerSettings
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from sluice_ops.planning.scaler.observe import observe
from sluice_ops.planning.scaler.planner import plan
from tests.unit.sluice_ops.planning.clusters import host_of, spec_of
from tests.unit.sluice_ops.planning.scaler.pipelines import START

ARRIVING, ADMITTED = 14_000.0, 4_500.0
"""Records a second that senders write, and that the slow tier, and so the entry, processes."""
PLACEMENT = Placement(driver="h1", slots=("h1",))


def load(rate_in, rate_done, **fields):
    usual = {"at": 0.0, "busy": None, "workers": 1, "lag": 0, "lag_seconds": 0.0, "rate_out": rate_done}
    return TierLoad(rate_in=rate_in, rate_done=rate_done, **{**usual, **fields})


FLOWING = load(ARRIVING, 20_000.0, lag=30_000, lag_seconds=3.0)
"""The entry catches up after its start, and so shows what it can do."""
OVERRUN = load(20_000.0, ADMITTED, lag=60_000, lag_seconds=13.0)
"""The slow tier meanwhile."""
THROTTLED = load(ARRIVING, ADMITTED, lag=900_000, lag_seconds=200.0, throttled=True)
SLOW = load(ADMITTED, ADMITTED, lag=60_000, lag_seconds=13.0)


def chain(most_entries):
    """Return the realtime tiers `entry` and `slow` on a host with room for both."""
    entry = spec_of("entry", mode=Mode.REALTIME, distance=1).model_copy(update={"outputs": ("middle",)})
    slow = spec_of("slow", mode=Mode.REALTIME).model_copy(update={"inputs": ("middle",)})
    hosts = {"h1": host_of("h1", cpu=32, memory=65536)}
    for spec in (entry, slow):
        hosts = holding(hosts, spec, PLACEMENT)
    shares = {
        "entry": Share(minimum=1, target=1, maximum=most_entries),
        "slow": Share(minimum=1, target=1, maximum=8),
    }
    tiers = {spec.name: TierNow(spec, PLACEMENT) for spec in (entry, slow)}
    return Cluster(hosts, tiers, (), Rules(shares=shares, partitions=16))


def decide(cluster, looks):
    """Return the last decisions after looks at the loads of the entry and the slow tier."""
    memory, now, decisions = Memory(), START, {}
    for entry, slow in looks:
        loads = {"entry": entry, "slow": slow}
        observation = observe(cluster, loads, memory, starved=(), busy=(), modest=(), changing=(), now=now)
        decisions, memory = plan(observation, ScalerSettings(), memory)
        now += 15.0
    return decisions


@pytest.mark.parametrize("before", [[], [(FLOWING, OVERRUN)] * 2])
@pytest.mark.parametrize("most_entries", [1, 8])
def test_the_slowest_tier_grows_to_what_arrives_and_the_entry_stays(before, most_entries):
    decisions = decide(chain(most_entries), [*before, *[(THROTTLED, SLOW)] * 4])
    assert decisions["slow"].wanted == 4, "four times as many workers are the largest step"
    assert decisions["slow"].reason.startswith("14,000 records/s "), decisions["slow"].reason
    assert decisions["entry"].wanted == 1, decisions["entry"].reason


def test_the_tiers_behind_a_throttled_entry_count_its_backlog_at_once():
    waiting = THROTTLED.model_copy(update={"lag": 2_000_000})
    looks = [*[(FLOWING, OVERRUN)] * 2, *[(waiting, SLOW)] * 4]
    decisions = decide(chain(8), looks)
    reason = decisions["slow"].reason
    assert "14,000 records/s and 6,687/s of backlog need 5 workers" in reason, "6,000/s wait at the entry"
    assert decisions["entry"].wanted == 1, decisions["entry"].reason


def test_after_the_throttle_the_entry_is_judged_by_its_own_rate_again():
    entry = load(ARRIVING, 10_000.0, lag=900_000, lag_seconds=90.0)
    decisions = decide(chain(8), [(THROTTLED, SLOW)] * 4 + [(entry, load(10_000.0, 10_000.0))] * 4)
    assert decisions["entry"].wanted > 1, decisions["entry"].reason
