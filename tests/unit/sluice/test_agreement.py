"""A driver's end of the channel, where the runs of a tier agree on their ways: nobody who was told to run before misses a change."""

import pytest
from simulation.memory import MemoryChannel

from sluice.driver.control.control_channel import ChannelFollower, reported_ways
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


class Lossy(MemoryChannel):
    """Loses answers, or requests, when it is told to."""

    loses = takes = False

    def on_wake(self, waker):
        del waker

    def multi(self, writes):
        if not self.loses or self.takes:
            super().multi(writes)
        self._away()

    def read(self, path, model, **how):
        self._away()
        return super().read(path, model, **how)

    def put(self, path, value, *, version=None):
        self._away()
        super().put(path, value, version=version)

    def _away(self):
        if self.loses:
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)


@pytest.fixture
def channel():
    return Lossy()


@pytest.fixture
def owner(channel):
    own(channel)
    return running(channel, 2)


def own(channel, **record):
    channel.put(paths.owner("entry"), OwnerRecord(owner=2, **record))


def running(channel, number):
    place = Placement(driver="h1", slots=("h1",))
    spec = IncarnationSpec(tier="entry", incarnation=number, placement=place, reason="test", created_at=0)
    channel.put(paths.incarnation("entry", number), spec)
    follow = ChannelFollower(channel, "entry", number, leaving=lambda: False)
    follow.look()
    follow.enter(State.RUNNING)
    return follow


def said(channel):
    return newest(reported_ways(channel, "entry"))


def test_all_hear_what_one_has_said_and_the_newest_holds(channel, owner):
    assert owner.agreed_ways() is None
    owner.announce_ways(FIRST)
    assert owner.switch_ways(WIDER)
    following = running(channel, 3)
    assert following.agreed_ways() == said(channel) == WIDER
    following.announce_ways(WIDER)
    owner.note(gap_seconds=0.1)
    assert channel.read(paths.report("entry", 2), IncarnationReport).value.ways == WIDER


def test_other_ways_are_not_taken_where_somebody_may_have_been_told_to_run(channel, owner):
    owner.announce_ways(FIRST)
    own(channel, next=3, phase=Phase.CUT)
    assert not owner.switch_ways(WIDER)
    assert owner.agreed_ways() == said(channel) == FIRST
    assert owner.other_writer() == "incarnation 3 is about to take over"


@pytest.mark.parametrize("takes", [True, False])
def test_after_a_lost_answer_the_channel_tells_the_valid_routing_epochs(channel, owner, takes):
    owner.announce_ways(FIRST)
    channel.loses, channel.takes = True, takes
    with pytest.raises(ChannelAwayError):
        owner.switch_ways(WIDER)
    with pytest.raises(ChannelAwayError):
        owner.agreed_ways()
    owner.note(gap_seconds=0.1)
    channel.loses = False
    owner.note(gap_seconds=0.2)
    assert owner.agreed_ways() == said(channel) == (WIDER if takes else FIRST)


def test_company_is_whoever_is_told_to_put_records_out(channel, owner):
    assert owner.other_writer() is None
    other = running(channel, 1)
    assert owner.other_writer() is None, (
        "one that was told to before, and stands still, does not hold new partitions up for good"
    )
    assert other.other_writer() == "incarnation 2 owns the tier"
    own(channel, standby=4, standby_runs=True)
    assert owner.other_writer() == "incarnation 4 runs beside it"
    own(channel, standby=4, standby_runs=False)
    assert owner.other_writer() is None
    channel.loses = True
    assert owner.other_writer() == "the channel is away"
