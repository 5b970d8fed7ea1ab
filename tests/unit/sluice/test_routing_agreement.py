"""Runs of a tier agree on routing epochs over the channel: a run that may already write misses no
change.
"""

import pytest
from simulation.memory import MemoryChannel

from sluice.driver.control.control_channel import ChannelFollower, reported_routing
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Phase,
    Placement,
    State,
)
from sluice_ops.model.routing_epochs import begun, newest

FIRST = begun({"hits": 4})
WIDER = FIRST.widened({"hits": 5}, {"raw/0": 7})


class LossyChannel(MemoryChannel):
    """A channel that loses answers, or requests, while `loses` is set."""

    loses = takes = False

    def on_wake(self, waker):
        del waker

    def multi(self, writes):
        if not self.loses or self.takes:
            super().multi(writes)
        self._raise_if_lost()

    def read(self, path, model, **options):
        self._raise_if_lost()
        return super().read(path, model, **options)

    def put(self, path, value, *, version=None):
        self._raise_if_lost()
        super().put(path, value, version=version)

    def _raise_if_lost(self):
        if self.loses:
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)


@pytest.fixture
def channel():
    return LossyChannel()


@pytest.fixture
def owner(channel):
    own(channel)
    return running(channel, 2)


def own(channel, **record):
    channel.put(paths.owner("entry"), OwnerRecord(owner=2, **record))


def running(channel, number):
    placement = Placement(driver="h1", slots=("h1",))
    spec = IncarnationSpec(tier="entry", incarnation=number, placement=placement, reason="test", created_at=0)
    channel.put(paths.incarnation("entry", number), spec)
    follow = ChannelFollower(channel, "entry", number, leaving=lambda: False)
    follow.read_owner()
    follow.enter(State.RUNNING)
    return follow


def newest_ways(channel):
    return newest(reported_routing(channel, "entry"))


def test_all_runs_read_the_newest_announced_routing(channel, owner):
    assert owner.agreed_routing() is None
    owner.announce_routing(FIRST)
    assert owner.switch_routing(WIDER)
    following = running(channel, 3)
    assert following.agreed_routing() == newest_ways(channel) == WIDER
    following.announce_routing(WIDER)
    owner.note(gap_seconds=0.1)
    assert channel.read(paths.report("entry", 2), IncarnationReport).value.ways == WIDER


def test_routing_is_not_switched_while_another_run_may_write(channel, owner):
    owner.announce_routing(FIRST)
    own(channel, next=3, phase=Phase.CUT)
    assert not owner.switch_routing(WIDER)
    assert owner.agreed_routing() == newest_ways(channel) == FIRST
    assert owner.other_writer() == "incarnation 3 is about to take over"


@pytest.mark.parametrize("takes", [True, False])
def test_after_a_lost_answer_the_channel_tells_the_valid_routing_epochs(channel, owner, takes):
    owner.announce_routing(FIRST)
    channel.loses, channel.takes = True, takes
    with pytest.raises(ChannelAwayError):
        owner.switch_routing(WIDER)
    with pytest.raises(ChannelAwayError):
        owner.agreed_routing()
    owner.note(gap_seconds=0.1)
    channel.loses = False
    owner.note(gap_seconds=0.2)
    assert owner.agreed_routing() == newest_ways(channel) == (WIDER if takes else FIRST)


def test_another_writer_is_a_run_with_the_right_to_write(channel, owner):
    assert owner.other_writer() is None
    other = running(channel, 1)
    assert owner.other_writer() is None, (
        "a run that stands still and lost its right to write must not delay new partitions for ever"
    )
    assert other.other_writer() == "incarnation 2 owns the tier"
    own(channel, standby=4, standby_runs=True)
    assert owner.other_writer() == "incarnation 4 runs beside it"
    own(channel, standby=4, standby_runs=False)
    assert owner.other_writer() is None
    channel.loses = True
    assert owner.other_writer() == "the channel is away"
