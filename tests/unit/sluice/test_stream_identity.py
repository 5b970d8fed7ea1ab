"""Ids and leaders of streams: whether positions still belong to the stream."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from sluice.kafka.positions import RecordsGoneError
from sluice.kafka.reader import NoStreamError, StreamError
from sluice.kafka.stream_identity import (
    EVERY_SECONDS,
    UNKNOWN,
    Identities,
    Watch,
    changed,
    of_positions,
    refuse_changed,
)
from sluice.kafka.truncation import Logs

IDS = st.dictionaries(st.sampled_from(["raw", "hits"]), st.sampled_from("abc"))


class Kafka(Identities):
    """A Kafka that answers with the test's values."""

    def __init__(self, **topics: str | KafkaException) -> None:
        super().__init__("kafka:9092")
        self.topics, self.asked, self.epoch, self.log = topics, 0, 3, 100
        self.stale: list[KafkaException] = []
        self.empty = 0

    def ask_ends(self, places: Any, _seconds: float = 0.0) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {place: Future() for place in places}
        for future in answers.values():
            if self.stale:
                future.set_exception(self.stale.pop())
            elif self.empty:
                self.empty -= 1
                future.set_result(SimpleNamespace(offset=-1001, leader_epoch=None))
            else:
                future.set_result(SimpleNamespace(offset=self.log, leader_epoch=self.epoch))
        return answers

    def resumed(self, positions: Any, _epochs: Any) -> dict[str, int]:
        return {place: min(position, self.log) for place, position in positions.items()}

    def ask(self, topics: Any, _seconds: float = 0.0) -> dict[str, Future[Any]]:
        self.asked += 1
        answers: dict[str, Future[Any]] = {topic: Future() for topic in topics}
        for topic, future in answers.items():
            identity = self.topics[topic]
            if isinstance(identity, KafkaException):
                future.set_exception(identity)
            else:
                future.set_result(SimpleNamespace(topic_id=identity))
        return answers


@given(st.lists(IDS, max_size=3), IDS)
def test_a_stream_has_changed_if_no_read_position_has_its_id(
    read_ids: list[dict[str, str]], now: dict[str, str]
) -> None:
    known = {name: {ids[name] for ids in read_ids if name in ids} for name in ("raw", "hits")}
    for name in changed(known, now):
        assert all(ids.get(name) != now[name] for ids in read_ids)
        assert any(name in ids for ids in read_ids)
    for name in set(now) - set(changed(known, now)):
        assert not any(name in ids for ids in read_ids) or any(ids.get(name) == now[name] for ids in read_ids)


def test_a_changed_stream_is_refused_with_both_ids_and_the_next_step() -> None:
    refuse_changed({"raw": ["a"]}, {"raw": "a", "hits": "x"}, "")
    with pytest.raises(
        RecordsGoneError,
        match=r"raw: the stream was deleted and recreated.*id b, and a was read.*call somebody",
    ):
        refuse_changed({"raw": ["a"]}, {"raw": "b"}, "call somebody")


def test_only_streams_with_a_position_count() -> None:
    assert of_positions({"raw/0": 5, "raw/1": 6}, {"raw": "a", "hits": "b"}) == {"raw": ["a"]}
    assert of_positions({}, {"raw": "a"}) == {}


def test_a_broker_without_ids_gives_none() -> None:
    assert Kafka(raw=UNKNOWN, hits="a").of(["raw", "hits"]) == {"hits": "a"}


def test_a_missing_stream_is_told_from_an_unreachable_kafka() -> None:
    with pytest.raises(NoStreamError):
        Kafka(raw=KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))).of(["raw"])
    with pytest.raises(StreamError) as raised:
        Kafka(raw=KafkaException(KafkaError(KafkaError._TIMED_OUT))).of(["raw"])
    assert not isinstance(raised.value, NoStreamError)


def test_a_watch_asks_at_intervals_and_does_not_block() -> None:
    clock = [0.0]
    kafka = Kafka(raw="a")
    watch = Watch(kafka, lambda: clock[0])
    assert watch.now(["raw/0"]) == Logs({"raw": "a"}, {"raw/0": 3})
    assert watch.news() is None, "the first call only asks"
    assert watch.news() == Logs({"raw": "a"}, {"raw/0": 3})
    assert watch.news() is None
    assert kafka.asked == 2
    clock[0] += EVERY_SECONDS
    kafka.topics["raw"] = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert (watch.news(), watch.news()) == (None, None), "no answer is no news"
    assert kafka.asked == 3
    assert (Watch(None).now(["raw/0"]), Watch(None).news()) == (Logs(), None)


def test_only_partitions_with_another_leader_are_asked_about() -> None:
    kafka = Kafka(raw="a")
    assert kafka.cut({"raw/0": 120}, {"raw/0": 3}, {"raw/0": 3}) == {}, (
        "without an election, no log was cut back"
    )
    assert kafka.cut({"raw/0": 120}, {"raw/0": 3}, {"raw/0": 4}) == {"raw/0": 100}
    assert kafka.cut({"raw/0": 100}, {"raw/0": 3}, {"raw/0": 4}) == {}
    assert kafka.cut({"raw/0": 120}, {}, {"raw/0": 4}) == {}, "a position without an epoch cannot be checked"
    assert kafka.cut({}, {"raw/0": 3}, {"raw/0": 0}) == {}, (
        "a recreated stream that an operator has read from its start"
    )


def test_a_client_with_an_outdated_leader_is_replaced() -> None:
    kafka = Kafka(raw="a")
    kafka._connected()
    kafka.stale = [KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))]
    assert kafka.ends(kafka.ask_ends(["raw/0"])) == {"raw/0": (100, 3)}
    assert kafka._admin is None, "the former client would ask with the old leader for minutes"
    kafka.empty = 1
    assert kafka.ends(kafka.ask_ends(["raw/0"])) == {"raw/0": (100, 3)}, (
        "a client whose leader is down answers without an epoch"
    )
    kafka.empty = 2
    with pytest.raises(StreamError, match="does not tell the leader of raw/0"):
        kafka.ends(kafka.ask_ends(["raw/0"]))
    kafka.epoch = 0
    assert kafka.ends(kafka.ask_ends(["raw/0"])) == {"raw/0": (100, 0)}, "epoch 0 is the first leader"


def test_an_older_leader_epoch_of_a_broker_is_refused() -> None:
    with pytest.raises(StreamError, match="epoch 2 for the leader of raw/0, and reported 3 before"):
        Kafka(raw="a").cut({"raw/0": 120}, {"raw/0": 3}, {"raw/0": 2})


def test_a_client_that_gets_no_answer_is_replaced() -> None:
    kafka = Kafka(raw=KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out waiting for controller")))
    kafka._connected()
    with pytest.raises(StreamError, match="Timed out waiting for controller"):
        kafka.of(["raw"])
    assert kafka._admin is None, "the former client would wait until the failed controller is back"
    kafka._connected()
    kafka.topics["raw"] = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(NoStreamError):
        kafka.of(["raw"])
    assert kafka._admin is not None, "a missing topic is an answer, so the client stays"


def test_a_watch_asks_a_new_client_once_if_no_answer_comes() -> None:
    no_answer = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out"))
    kafka = Kafka(raw="a")
    kafka._connected()
    kafka.stale = [no_answer]
    assert Watch(kafka).now(["raw/0"]).epochs == {"raw/0": 3}
    assert (kafka.asked, kafka._admin) == (2, None), "the former client waits for the killed leader"
    kafka.topics["raw"] = no_answer
    with pytest.raises(StreamError, match="Timed out"):
        Watch(kafka).now(["raw/0"])
    assert kafka.asked == 4
    kafka.topics["raw"] = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(NoStreamError):
        Watch(kafka).now(["raw/0"])
    assert kafka.asked == 5, "a missing topic is an answer"
