"""The control topic of stream writers, on a broker in memory: claims of a run, values that stop it,
and repetitions by the owner.
"""

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from sluice.driver.control import write_fence
from sluice.driver.control.write_fence import LEAVE_SECONDS, REPEAT_SECONDS, ControlTopic
from sluice.sinks.fence import FencedError
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.incarnation import OwnerRecord, Phase
from sluice_ops.model.kafka_access import CONTROL_TOPIC
from sluice_ops.model.stream_writers import Writers


class Follower:
    """The channel follower of a driver, as far as the topic uses it. ZooKeeper may be away."""

    def __init__(self, me: int, record: OwnerRecord) -> None:
        self.incarnation, self.record, self.away = me, record, False

    @property
    def owns(self) -> bool:
        return self.record.owner == self.incarnation

    def confirmed_owner_record(self) -> OwnerRecord | None:
        return None if self.away else self.record


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(write_fence, "WAIT_MS", 20)  # the mock broker answers late even if it has records
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    producer.list_topics(CONTROL_TOPIC, timeout=10)
    yield f"{broker.host}:{broker.port}"
    producer.flush(1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    shifted = SimpleNamespace(by=0.0)
    before = time.monotonic
    monkeypatch.setattr(write_fence, "time", SimpleNamespace(monotonic=lambda: before() + shifted.by))
    return shifted


def topic(kafka: str, follower: Follower) -> ControlTopic:
    return ControlTopic(kafka, "enter", cast("Any", follower))


def newest_value(kafka: str) -> Writers | None:
    """Return the value that another reader finds in the topic."""
    reader = topic(kafka, Follower(0, OwnerRecord()))
    reader._read_anew()
    return reader._heard


def look_repeatedly(control: ControlTopic) -> None:
    """Look until all values have arrived."""
    for _ in range(20):
        control.check()
        time.sleep(0.05)


def test_a_run_claims_once_and_its_executors_get_the_epoch(kafka: str) -> None:
    control = topic(kafka, Follower(1, OwnerRecord(owner=1, epoch=3)))
    assert control.options() == {}, "a warm-up claims nothing"
    assert control.sole_seconds() is None
    control.claim()
    control.claim()
    assert control._next == 1
    assert newest_value(kafka) == Writers(epoch=3, members=(1,))
    assert control.options()["kafka.sluice.epoch"] == "3"
    assert control.sole_seconds() is not None


def test_a_run_without_zookeeper_stops_when_another_claims(kafka: str) -> None:
    old, new = Follower(1, OwnerRecord(owner=1, epoch=3)), Follower(2, OwnerRecord(owner=2, epoch=4))
    control = topic(kafka, old)
    control.claim()
    old.away = True
    look_repeatedly(control)
    topic(kafka, new).claim()
    with pytest.raises(FencedError, match='"sluice-writers" names 2 by the owner record of epoch 4'):
        look_repeatedly(control)
    with pytest.raises(FencedError):
        control.claim()
    never = topic(kafka, old)
    with pytest.raises(ChannelAwayError, match="could confirm this writer"):
        never.claim()
    assert newest_value(kafka) == Writers(epoch=4, members=(2,))


def test_the_owner_claims_above_a_later_value_that_names_its_number(kafka: str) -> None:
    """The claim of a stalled run of a lost ZooKeeper tree comes after the owner's claim.

    Without a higher claim, neither run would stop the other.
    """
    control = topic(kafka, Follower(2, OwnerRecord(owner=2, epoch=2)))
    control.claim()
    topic(kafka, Follower(1, OwnerRecord(owner=1, next=2, epoch=101, phase=Phase.CUT))).claim()
    look_repeatedly(control)
    assert newest_value(kafka) == Writers(term=1, epoch=2, members=(2,))


def test_a_later_value_with_the_runs_number_gives_no_right_alone(kafka: str) -> None:
    """The number may be that of an incarnation of a lost ZooKeeper tree."""
    follower = Follower(1, OwnerRecord(owner=1, epoch=1))
    control = topic(kafka, follower)
    control.claim()
    topic(kafka, Follower(1, OwnerRecord(owner=1, epoch=100))).claim()
    follower.away = True
    look_repeatedly(control)
    with pytest.raises(ChannelAwayError, match="could confirm this writer"):
        control.claim()
    follower.away = False
    control.claim()
    assert newest_value(kafka) == Writers(term=1, epoch=1, members=(1,))


def test_a_claim_by_a_newer_version_stops_a_run_of_this_one(kafka: str) -> None:
    old = Follower(1, OwnerRecord(owner=1, epoch=3))
    control = topic(kafka, old)
    control.claim()
    old.away = True
    claim = json.dumps({**Writers(epoch=4, members=(2,)).model_dump(), "of_next": 1}).encode()
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    producer.produce(CONTROL_TOPIC, key=b"enter", value=claim, partition=0)
    assert producer.flush(10) == 0
    with pytest.raises(FencedError, match='"sluice-writers" names 2 by the owner record of epoch 4'):
        look_repeatedly(control)


def test_values_of_a_lost_tree_do_not_stop_the_owner(kafka: str) -> None:
    topic(kafka, Follower(7, OwnerRecord(owner=7, epoch=900))).claim()
    control = topic(kafka, Follower(1, OwnerRecord(owner=1, epoch=2)))
    control.claim()
    assert newest_value(kafka) == Writers(term=1, epoch=2, members=(1,))
    look_repeatedly(control)


def test_the_owner_drops_other_writers_after_their_time_to_stop(kafka: str, clock: SimpleNamespace) -> None:
    follower = Follower(2, OwnerRecord(owner=1, next=2, phase=Phase.CUT, epoch=5))
    control = topic(kafka, follower)
    control.claim()
    follower.record = OwnerRecord(owner=2, epoch=6)
    look_repeatedly(control)
    assert newest_value(kafka) == Writers(epoch=5, members=(1, 2))
    assert control.sole_seconds() == 0
    clock.by += LEAVE_SECONDS
    look_repeatedly(control)
    assert newest_value(kafka) == Writers(epoch=6, members=(2,))
    clock.by += 30
    assert (control.sole_seconds() or 0) > 30


def test_the_owner_repeats_its_claim(kafka: str, clock: SimpleNamespace) -> None:
    control = topic(kafka, Follower(1, OwnerRecord(owner=1, epoch=3)))
    control.claim()
    look_repeatedly(control)
    assert control._next == 1
    clock.by += REPEAT_SECONDS
    look_repeatedly(control)
    assert control._next == 2
