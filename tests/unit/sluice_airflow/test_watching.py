"""What there is to tell of a tier: each failure once, a giving up once, and nothing of a driver that was killed and replaced."""

import pytest

from sluice_airflow.triggers.tier_watch import AGAIN_SECONDS, CATCH_UP_SECONDS, TierWatch
from sluice_ops.model import paths
from sluice_ops.model.backpressure import Lag, Pressure
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Placement,
    State,
    TierWanted,
)
from sluice_ops.model.status import ControllerStatus, Loss, TierState, TierStatus
from tests.unit.sluice_airflow.memory import MemoryChannel

TIER = TierName("counts")


@pytest.fixture
def channel():
    memory = MemoryChannel()
    memory.put(paths.wanted(TIER), TierWanted(running=True, by="anna"))
    return memory


def incarnation(channel, number, state, reason="launch", **said):
    placement = Placement(driver=HostName("h1"), slots=(HostName("h1"),))
    spec = IncarnationSpec(
        tier=TIER, incarnation=Incarnation(number), placement=placement, reason=reason, created_at=0
    )
    channel.put(paths.incarnation(TIER, number), spec)
    channel.put(
        paths.report(TIER, number), IncarnationReport(**({"state": state, "since": 0, "pid": 1} | said))
    )


def owned_by(channel, number):
    channel.put(paths.owner(TIER), OwnerRecord(owner=Incarnation(number)))


def status(channel, state, error=None, pressure=None):
    line = TierStatus(state=state, sentence=f"it is {state}", error=error, pressure=pressure)
    channel.put(
        paths.CONTROLLER_STATUS, ControllerStatus(leader="c1", epoch=1, at=0, sentence="", tiers={TIER: line})
    )


def test_a_tier_that_runs_is_nothing_to_tell(channel):
    incarnation(channel, 1, State.RUNNING)
    owned_by(channel, 1)
    status(channel, TierState.RUNNING)
    assert TierWatch(TIER, 0, 0, 0).look(channel) is None


def test_a_failed_incarnation_is_told_once_with_its_drivers_last_error(channel):
    incarnation(channel, 1, State.FAILED, error="no such column: campain")
    watch = TierWatch(TIER, 0, 0, 0)
    told = watch.look(channel)
    assert (told.kind, told.incarnation, told.error) == ("failed", 1, "no such column: campain")
    assert watch.look(channel) is None
    assert TierWatch(TIER, told.incarnation, 0, 0).look(channel) is None, (
        "not by a triggerer that starts again either"
    )


def test_failures_are_told_one_by_one(channel):
    for number in (1, 2):
        incarnation(channel, number, State.FAILED, error=f"error {number}")
    watch = TierWatch(TIER, 0, 0, 0)
    assert [watch.look(channel).incarnation, watch.look(channel).incarnation] == [1, 2]


def test_a_killed_driver_that_was_replaced_is_a_note(channel):
    incarnation(channel, 1, State.RUNNING)
    owned_by(channel, 1)
    watch = TierWatch(TIER, 0, 0, 0)
    assert watch.look(channel) is None
    incarnation(channel, 2, State.RUNNING, reason="driver of 1 was killed")
    owned_by(channel, 2)
    assert watch.look(channel) is None
    assert watch.notes() == [
        "counts: incarnation 1 owns the tier on h1 (launch)",
        "counts: incarnation 2 owns the tier, after incarnation 1 on h1 (driver of 1 was killed)",
    ]
    assert watch.notes() == []


def test_a_tier_that_was_given_up_is_told_until_it_was_started_again(channel):
    incarnation(channel, 5, State.RUNNING)
    owned_by(channel, 5)
    status(channel, TierState.FAILED, error="killed by signal 9")
    told = TierWatch(TIER, 5, 0, 0).look(channel)
    assert (told.kind, told.incarnation, told.error) == ("given_up", 5, "killed by signal 9")
    assert TierWatch(TIER, 5, restarted=5, loss=0).look(channel) is None
    incarnation(channel, 6, State.RUNNING)
    assert TierWatch(TIER, 5, restarted=5, loss=0).look(channel).kind == "given_up", (
        "one after the new start was tried, and given up too"
    )


def test_a_tier_that_nobody_wants_any_more_is_told(channel):
    channel.put(paths.wanted(TIER), TierWanted(running=False, by="cli:anna"))
    told = TierWatch(TIER, 0, 0, 0).look(channel)
    assert (told.kind, told.sentence) == ("unwanted", "stop requested by cli:anna")


def test_what_goes_wrong_while_a_tier_is_stopped_on_purpose_is_no_news(channel):
    incarnation(channel, 1, State.FAILED, error="Kafka is away")
    owned_by(channel, 1)
    status(channel, TierState.FAILED, pressure=Pressure(stream="enriched", lag=None, since=10_000.0))
    channel.put(paths.wanted(TIER), TierWanted(running=False, by="cli:anna"))
    assert TierWatch(TIER, 0, 0, 0).look(channel).kind == "unwanted"
    channel.put(paths.loss(TIER), Loss(number=4, sentence="2 records are nowhere"))
    assert TierWatch(TIER, 0, 0, 0).look(channel).kind == "lost", "which has nothing to do with it"


def test_a_tier_has_half_an_hour_to_catch_up_after_a_stop(channel):
    begun = 50_000.0
    incarnation(channel, 1, State.RUNNING, since=begun)
    owned_by(channel, 1)
    status(
        channel,
        TierState.RUNNING,
        pressure=Pressure(stream="enriched", lag=Lag(records=90, seconds=7200), since=begun + 3),
    )

    def told(at, behind=0.0):
        return TierWatch(TIER, 0, 0, 0, behind, clock=lambda: at).look(channel)

    assert told(begun + 5) is None
    assert told(begun + CATCH_UP_SECONDS - 1) is None
    assert told(begun + CATCH_UP_SECONDS + 1).kind == "behind"
    status(
        channel,
        TierState.RUNNING,
        pressure=Pressure(stream="enriched", lag=Lag(records=90, seconds=130), since=begun + 300),
    )
    assert told(begun + 301).kind == "behind", "it had caught up before"
    status(channel, TierState.STARTING, pressure=Pressure(stream="enriched", lag=None, since=begun + 3))
    assert told(begun + 200).kind == "behind", "one that takes nothing catches nothing up"


def test_a_loss_is_told_once_by_its_number(channel):
    incarnation(channel, 1, State.RUNNING)
    watch = TierWatch(TIER, 0, 0, 0)
    assert watch.look(channel) is None
    channel.put(paths.loss(TIER), Loss(number=4, sentence="2 records are nowhere"))
    told = watch.look(channel)
    assert (told.kind, told.loss, told.sentence) == ("lost", 4, "2 records are nowhere")
    assert watch.look(channel) is None
    assert TierWatch(TIER, 0, 0, told.loss).look(channel) is None, (
        "not by a triggerer that starts again either"
    )
    channel.put(paths.loss(TIER), Loss(number=5, sentence="another one"))
    assert watch.look(channel).loss == 5


def test_a_lagging_tier_alerts_and_alerts_again_only_after_a_while(channel):
    incarnation(channel, 1, State.RUNNING)

    def behind(since):
        lag = Lag(records=200_000, seconds=60)
        status(
            channel,
            TierState.RUNNING,
            pressure=Pressure(stream="enriched", lag=lag, since=since, rate_in=800, rate_done=400),
        )

    behind(10_000.0)
    watch = TierWatch(TIER, 0, 0, 0)
    told = watch.look(channel)
    assert (told.kind, told.behind) == ("behind", 10_000)
    assert (
        told.sentence
        == "counts is 200000 records, 60 s behind in enriched; 800/s came in and 400/s were done"
    )
    behind(10_000.0 + AGAIN_SECONDS)
    assert watch.look(channel) is None
    assert TierWatch(TIER, 0, 0, 0, told.behind).look(channel) is None, (
        "not by a triggerer that starts again either"
    )
    behind(10_001.0 + AGAIN_SECONDS)
    assert watch.look(channel).kind == "behind"
    behind(10_001.0 + AGAIN_SECONDS - 3600)
    assert watch.look(channel).kind == "behind", "a clock that jumped back hides nothing"
