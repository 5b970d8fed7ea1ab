"""Whether a stream is still the one that positions belong to."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from pipeline.driver.identity import EVERY_SECONDS, UNKNOWN, Identities, Watch, changed, of_positions, refuse_changed
from pipeline.driver.positions import GoneError
from pipeline.driver.streams import NoStreamError, StreamError

IDS = st.dictionaries(st.sampled_from(["raw", "hits"]), st.sampled_from("abc"))


class Kafka(Identities):
    """Answers what a test has put there."""

    def __init__(self, **topics: str | KafkaException) -> None:
        super().__init__("kafka:9092")
        self.topics, self.asked = topics, 0

    def ask(self, topics: Any) -> dict[str, Future[Any]]:
        self.asked += 1
        answers: dict[str, Future[Any]] = {topic: Future() for topic in topics}
        for topic, future in answers.items():
            found = self.topics[topic]
            if isinstance(found, KafkaException):
                future.set_exception(found)
            else:
                future.set_result(SimpleNamespace(topic_id=found))
        return answers


@given(st.lists(IDS, max_size=3), IDS)
def test_a_stream_has_changed_where_its_id_is_none_of_those_that_were_read(said: list[dict[str, str]], now: dict[str, str]) -> None:
    known = {name: {each[name] for each in said if name in each} for name in ("raw", "hits")}
    for name in changed(known, now):
        assert all(each.get(name) != now[name] for each in said)
        assert any(name in each for each in said)
    for name in set(now) - set(changed(known, now)):
        assert not any(name in each for each in said) or any(each.get(name) == now[name] for each in said)


def test_a_changed_stream_is_refused_with_both_ids_and_the_way_out() -> None:
    refuse_changed({"raw": ["a"]}, {"raw": "a", "hits": "x"}, "")
    with pytest.raises(GoneError, match=r"raw: the stream was deleted and made anew.*id b, and a was read.*call somebody"):
        refuse_changed({"raw": ["a"]}, {"raw": "b"}, "call somebody")


def test_only_streams_that_have_a_position_count() -> None:
    assert of_positions({"raw/0": 5, "raw/1": 6}, {"raw": "a", "hits": "b"}) == {"raw": ["a"]}
    assert of_positions({}, {"raw": "a"}) == {}


def test_a_broker_without_ids_tells_none() -> None:
    assert Kafka(raw=UNKNOWN, hits="a").of(["raw", "hits"]) == {"hits": "a"}


def test_a_stream_that_is_gone_is_no_kafka_that_is_away() -> None:
    with pytest.raises(NoStreamError):
        Kafka(raw=KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))).of(["raw"])
    with pytest.raises(StreamError) as said:
        Kafka(raw=KafkaException(KafkaError(KafkaError._TIMED_OUT))).of(["raw"])
    assert not isinstance(said.value, NoStreamError)


def test_a_watch_asks_now_and_then_and_does_not_wait() -> None:
    clock = [0.0]
    kafka = Kafka(raw="a")
    watch = Watch(kafka, ["raw"], lambda: clock[0])
    assert watch.news() == {}, "it is only asked"
    assert watch.news() == {"raw": "a"}
    assert watch.news() == {}
    assert kafka.asked == 1
    clock[0] += EVERY_SECONDS
    kafka.topics["raw"] = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert (watch.news(), watch.news()) == ({}, {}), "no answer is no news"
    assert kafka.asked == 2
    assert Watch(None, ["raw"]).now() == Watch(None, ["raw"]).news() == {}
