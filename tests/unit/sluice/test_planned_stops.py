"""A driver knows whether its tier was stopped on request before it starts."""

import pytest
from simulation.memory import MemoryChannel
from simulation.world import tier

from sluice.driver.control.control_channel import ChannelFollower
from sluice_ops.model import paths
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Placement,
    State,
    Timed,
)
from sluice_ops.model.tier import Mode

STOPPED, KILLED = (
    IncarnationReport(state=state, since=0.0, pid=1) for state in (State.STOPPED, State.RUNNING)
)


class WakingChannel(MemoryChannel):
    connected = True

    def on_wake(self, waker):
        del waker


@pytest.mark.parametrize(
    ("fields", "last_report", "after_stop"),
    [
        ({"start": Timed(by="anna", at=0.0, predicted_seconds=None)}, None, True),
        ({"after_stop": True}, None, True),
        ({}, STOPPED, True),
        ({}, KILLED, False),
        ({}, None, False),
    ],
)
def test_a_driver_knows_whether_its_tier_was_stopped_on_request(fields, last_report, after_stop):
    channel = WakingChannel()
    placement = Placement(driver="h1", slots=("h1",))
    spec = IncarnationSpec(
        tier="counts", incarnation=1, placement=placement, reason="test", created_at=0, **fields
    )
    channel.put(paths.tier("counts"), tier("counts", Mode.BATCH, 0))
    channel.put(paths.owner("counts"), OwnerRecord(owner=1))
    channel.put(paths.incarnation("counts", 1), spec)
    if last_report is not None:
        channel.put(paths.report("counts", 1), last_report)
    follower = ChannelFollower(channel, "counts", 1, leaving=lambda: False)
    follower.wait_for_start()
    assert follower.after_stop is after_stop
