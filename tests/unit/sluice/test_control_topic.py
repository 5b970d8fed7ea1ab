"""A driver's end of the control topic, on a broker in memory: what it claims, what stops it, and what the owner repeats."""

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from sluice.driver.control import write_fence
from sluice.driver.control.write_fence import AGAIN_SECONDS, LEAVE_SECONDS, ControlTopic
from sluice.sinks.ledger import FencedError
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.incarnation import OwnerRecord, Phase
from sluice_ops.model.kafka_access import CONTROL_TOPIC
from sluice_ops.model.stream_writers import Writers


class Follow:
    """What a driver reads of ZooKeeper, which may be away."""

    def __init__(self, me: int, record: OwnerRecord) -> None:
        self.me, self.record, self.away = me, record, False

    @property
    def owns(self) -> bool:
        return self.record.owner == self.me

    def confirmed(self) -> OwnerRecord | None:
        return None if self.away else self.record


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(write_fence, "WAIT_MS", 20)  # this broker answers later, even when something has come
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


def topic(kafka: str, follow: Follow) -> ControlTopic:
    return ControlTopic(kafka, "enter", cast("Any", follow))


def heard(kafka: str) -> Writers | None:
    """Return what somebody else reads there."""
    other = topic(kafka, Follow(0, OwnerRecord()))
    other._read_anew()
    return other._heard


def looks(control: ControlTopic) -> None:
    """Look until all has come."""
    for _ in range(20):
        control.look()
        time.sleep(0.05)


def test_a_run_claims_once_and_its_executors_are_told(kafka: str) -> None:
    control = topic(kafka, Follow(1, OwnerRecord(owner=1, epoch=3)))
    assert control.options() == {}, "a warm-up claims nothing"
    assert control.sole_seconds() is None
    control.claim()
    control.claim()
    assert control._next == 1
    assert heard(kafka) == Writers(epoch=3, members=(1,))
    assert control.options()["kafka.sluice.epoch"] == "3"
    assert control.sole_seconds() is not None


def test_a_run_without_zookeeper_stops_when_another_claims(kafka: str) -> None:
    old, new = Follow(1, OwnerRecord(owner=1, epoch=3)), Follow(2, OwnerRecord(owner=2, epoch=4))
    control = topic(kafka, old)
    control.claim()
    old.away = True
    looks(control)
    topic(kafka, new).claim()
    with pytest.raises(FencedError, match='"sluice-writers" names 2 by the owner record of epoch 4'):
        looks(control)
    with pytest.raises(FencedError):
        control.claim()
    never = topic(kafka, old)
    with pytest.raises(ChannelAwayError, match="could confirm this writer"):
        never.claim()
    assert heard(kafka) == Writers(epoch=4, members=(2,))


def test_the_owner_claims_above_a_later_value_that_names_its_number(kafka: str) -> None:
    """A run of a tree that was lost stood still with its claim, and puts it after the owner's: neither would stop the other one."""
    control = topic(kafka, Follow(2, OwnerRecord(owner=2, epoch=2)))
    control.claim()
    topic(kafka, Follow(1, OwnerRecord(owner=1, next=2, epoch=101, phase=Phase.CUT))).claim()
    looks(control)
    assert heard(kafka) == Writers(term=1, epoch=2, members=(2,))


def test_a_later_value_with_the_runs_number_gives_no_right_alone(kafka: str) -> None:
    """The number may be that of an incarnation of a tree that was lost."""
    follow = Follow(1, OwnerRecord(owner=1, epoch=1))
    control = topic(kafka, follow)
    control.claim()
    topic(kafka, Follow(1, OwnerRecord(owner=1, epoch=100))).claim()
    follow.away = True
    looks(control)
    with pytest.raises(ChannelAwayError, match="could confirm this writer"):
        control.claim()
    follow.away = False
    control.claim()
    assert heard(kafka) == Writers(term=1, epoch=1, members=(1,))


def test_a_claim_by_a_newer_version_stops_a_run_of_this_one(kafka: str) -> None:
    old = Follow(1, OwnerRecord(owner=1, epoch=3))
    control = topic(kafka, old)
    control.claim()
    old.away = True
    said = json.dumps({**Writers(epoch=4, members=(2,)).model_dump(), "of_next": 1}).encode()
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    producer.produce(CONTROL_TOPIC, key=b"enter", value=said, partition=0)
    assert producer.flush(10) == 0
    with pytest.raises(FencedError, match='"sluice-writers" names 2 by the owner record of epoch 4'):
        looks(control)


def test_what_a_lost_tree_has_left_stops_nobody_that_zookeeper_names(kafka: str) -> None:
    topic(kafka, Follow(7, OwnerRecord(owner=7, epoch=900))).claim()
    control = topic(kafka, Follow(1, OwnerRecord(owner=1, epoch=2)))
    control.claim()
    assert heard(kafka) == Writers(term=1, epoch=2, members=(1,))
    looks(control)


def test_the_owner_leaves_others_out_once_they_had_time_to_stop(kafka: str, clock: SimpleNamespace) -> None:
    follow = Follow(2, OwnerRecord(owner=1, next=2, phase=Phase.CUT, epoch=5))
    control = topic(kafka, follow)
    control.claim()
    follow.record = OwnerRecord(owner=2, epoch=6)
    looks(control)
    assert heard(kafka) == Writers(epoch=5, members=(1, 2))
    assert control.sole_seconds() == 0
    clock.by += LEAVE_SECONDS
    looks(control)
    assert heard(kafka) == Writers(epoch=6, members=(2,))
    clock.by += 30
    assert (control.sole_seconds() or 0) > 30


def test_the_owner_repeats_what_it_has_said(kafka: str, clock: SimpleNamespace) -> None:
    control = topic(kafka, Follow(1, OwnerRecord(owner=1, epoch=3)))
    control.claim()
    looks(control)
    assert control._next == 1
    clock.by += AGAIN_SECONDS
    looks(control)
    assert control._next == 2
