"""Whether a stream is still the one that a tier's positions belong to: Kafka gives each topic an id that no other ever has (KIP-516).

A topic that was deleted and made anew, and one of another cluster, have another id, however long they are (decision record 0043).
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from ops.brokers import brokers
from pipeline.driver.positions import GoneError
from pipeline.driver.streams import SECONDS, NoStreamError, StreamError, split

log = structlog.get_logger()

UNKNOWN = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id zero: brokers that know no ids answer it."""
EVERY_SECONDS = 5.0
"""Between two looks at the streams of a tier that runs."""


def changed(known: Mapping[str, Collection[str]], now: Mapping[str, str]) -> list[str]:
    """Return the streams whose id is none of those that are known of them; a stream of which no id is known has not changed. Pure."""
    return sorted(stream for stream, identity in now.items() if known.get(stream) and identity not in known[stream])


def refuse_changed(known: Mapping[str, Collection[str]], now: Mapping[str, str], way_out: str) -> None:
    """Refuse to read a stream from positions of another one. Pure."""
    if streams := changed(known, now):
        ids = "; ".join(f"{each} has the id {now[each]}, and {' or '.join(sorted(known[each]))} was read" for each in streams)
        message = (
            f"{', '.join(streams)}: the stream was deleted and made anew, or is another cluster's ({ids}); the tier has stopped, for "
            f"the old offsets mean other records now; {way_out}"
        )
        raise GoneError(message)


def of_positions(positions: Mapping[str, int], streams: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids of the streams that have a position; those of others are of no account. Pure."""
    return {stream: [streams[stream]] for stream in {split(place)[0] for place in positions} if stream in streams}


class Identities:
    """Asks Kafka for the ids of streams. Thread-safe."""

    def __init__(self, bootstrap: str) -> None:
        """Connect once asked."""
        self._bootstrap = bootstrap
        self._admin: AdminClient | None = None

    def ask(self, topics: Sequence[str]) -> "dict[str, Future[Any]]":
        """Ask, without waiting for the answer; `SECONDS` later there is one, if only that there is none."""
        if self._admin is None:
            self._admin = AdminClient({**brokers(self._bootstrap).client, "log_level": 2})
        return dict(self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=SECONDS))

    def of(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the id of each stream; NoStreamError where one is not there, StreamError where Kafka does not answer."""
        return self.answer(self.ask(topics))

    def answer(self, asked: "Mapping[str, Future[Any]]") -> dict[str, str]:
        """Wait for the answers to a question, and return them."""
        ids: dict[str, str] = {}
        for topic, future in asked.items():
            try:
                ids[topic] = str(future.result(SECONDS + 1).topic_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    message = f'stream "{topic}" is not in Kafka at {self._bootstrap}; run `python -m pipeline.publish`'
                    raise NoStreamError(message) from error
                message = f"Kafka at {self._bootstrap} does not tell the id of {topic}: {error.args[0].str()}"
                raise StreamError(message) from error
            except TimeoutError as error:
                message = f"Kafka at {self._bootstrap} does not tell the id of {topic}"
                raise StreamError(message) from error
        return {topic: identity for topic, identity in ids.items() if identity != UNKNOWN}


class Watch:
    """Looks every few seconds, without waiting for the answer, whether the streams that a run reads are still the same."""

    def __init__(self, identities: Identities | None, topics: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; without `identities` nothing is ever known."""
        self._identities, self._topics, self._clock = identities, topics, clock
        self._asked: Mapping[str, Future[Any]] = {}
        self._due = 0.0

    def now(self) -> dict[str, str]:
        """Return the ids, waiting for them."""
        return {} if self._identities is None else self._identities.of(self._topics)

    def refuse_others(self, streams: Mapping[str, str]) -> None:
        """Refuse what was read just now, unless the streams are still those that the run began with."""
        refuse_changed({name: [identity] for name, identity in streams.items()}, self.now(), "it is begun again")

    def news(self) -> dict[str, str]:
        """Return the ids when an answer has come since the last call; else nothing. Where Kafka does not answer, it is asked again."""
        if self._identities is None:
            return {}
        if self._asked and all(future.done() for future in self._asked.values()):
            asked, self._asked = self._asked, {}
            try:
                return self._identities.answer(asked)
            except StreamError:
                return {}  # where it is gone, the query ends by itself
        if not self._asked and self._clock() >= self._due:
            self._due = self._clock() + EVERY_SECONDS
            self._asked = self._identities.ask(self._topics)
        return {}


class SameStreams:
    """The inputs of a tier whose earlier runs have said which streams they read; where none has, those that there are."""

    def __init__(self, watch: Watch, said: Callable[[], list[dict[str, str]]], way_out: str) -> None:
        """Prepare; `said` are the ids of earlier runs, as far as they are known."""
        self._watch, self._said, self._way_out = watch, said, way_out
        self.streams: dict[str, str] = {}
        """The ids that its positions belong to."""

    def ask(self) -> None:
        """Refuse to go on in a stream that is not the one whose offsets are known."""
        self._compare(self._watch.now())

    def look(self, *, running: bool) -> None:
        """Do so while a query runs, without waiting: it would read on in a new stream from where the old one was."""
        if running:
            self._compare(self._watch.news())

    def _compare(self, now: dict[str, str]) -> None:
        known = {name: {identity} for name, identity in self.streams.items()}
        for streams in self._said() if set(now) - set(known) else []:
            for name, identity in streams.items():
                known.setdefault(name, set()).add(identity)
        refuse_changed(known, now, self._way_out)
        if new := {name: identity for name, identity in now.items() if name not in known}:
            log.info("the ids of its inputs were not known; its positions are taken for theirs from now on", streams=new)
        self.streams = self.streams | now
