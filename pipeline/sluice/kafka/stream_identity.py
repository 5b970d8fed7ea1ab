"""Whether a stream is still the one that a tier's positions belong to: Kafka gives each topic an id that no other ever has (KIP-516).

A topic that was deleted and made anew, and one of another cluster, have another id, however long they are (decision record 0043). A
partition that was cut back keeps the topic's id; the epoch of its leader tells it (`sluice.kafka.truncation`).
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sluice.kafka.positions import GoneError
from sluice.kafka.reader import SECONDS, NoStreamError, StreamError, name, split
from sluice.kafka.truncation import Logs, cut, cut_error
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.kafka_access import LOOKERS
from sluice_ops.site.brokers import brokers

log = structlog.get_logger()

STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)
"""What brokers say to a client that knows an earlier leader."""
UNKNOWN = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id zero: brokers that know no ids answer it."""
EVERY_SECONDS = 5.0
"""Between two looks at the streams of a tier that runs."""


def changed(known: Mapping[str, Collection[str]], now: Mapping[str, str]) -> list[str]:
    """Return the streams whose id is none of those that are known of them; a stream of which no id is known has not changed. Pure."""
    return sorted(
        stream for stream, identity in now.items() if known.get(stream) and identity not in known[stream]
    )


def refuse_changed(known: Mapping[str, Collection[str]], now: Mapping[str, str], way_out: str) -> None:
    """Refuse to read a stream from positions of another one. Pure."""
    if streams := changed(known, now):
        ids = "; ".join(
            f"{each} has the id {now[each]}, and {' or '.join(sorted(known[each]))} was read"
            for each in streams
        )
        message = (
            f"{', '.join(streams)}: the stream was deleted and made anew, or is another cluster's ({ids}); the tier has stopped, for "
            f"the old offsets mean other records now; {way_out}"
        )
        raise GoneError(message)


def of_positions(positions: Mapping[str, int], streams: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids of the streams that have a position; those of others are of no account. Pure."""
    return {
        stream: [streams[stream]] for stream in {split(place)[0] for place in positions} if stream in streams
    }


class Identities:
    """Asks Kafka for the ids of streams and the epochs of their partitions' leaders. Thread-safe, but for `resumed`."""

    def __init__(self, bootstrap: str) -> None:
        """Connect once asked."""
        self._bootstrap = bootstrap
        self._admin: AdminClient | None = None

    def ask(self, topics: Sequence[str]) -> "dict[str, Future[Any]]":
        """Ask, without waiting for the answer; `SECONDS` later there is one, if only that there is none."""
        return dict(self._connected().describe_topics(TopicCollection(list(topics)), request_timeout=SECONDS))

    def of(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the id of each stream; NoStreamError where one is not there, StreamError where Kafka does not answer."""
        return self.answer(self.ask(topics))

    def answer(self, asked: "Mapping[str, Future[Any]]") -> dict[str, str]:
        """Wait for the answers to a question, and return them."""
        ids = {topic: str(self._result(future, topic).topic_id) for topic, future in asked.items()}
        return {topic: identity for topic, identity in ids.items() if identity != UNKNOWN}

    def ask_ends(self, places: Collection[str]) -> "dict[str, Future[Any]]":
        """Ask the leaders of partitions for the ends of their logs, likewise."""
        wanted = {TopicPartition(*split(place)): OffsetSpec.latest() for place in places}
        asked = self._connected().list_offsets(wanted, request_timeout=SECONDS) if wanted else {}
        return {name(each.topic, each.partition): future for each, future in asked.items()}

    def ends(self, asked: "Mapping[str, Future[Any]]") -> dict[str, tuple[int, int]]:
        """Wait for the answers, and return the end of each log with the epoch of the leader that tells it.

        The client keeps asking the leader that it knows for minutes where another was elected. It is refused for the old epoch, or where
        that broker is down, its answer is empty: a new client asks again.
        """
        if any(_is_stale(future) for future in asked.values()):
            self._admin = None
            asked = self.ask_ends(asked)
        found = {place: self._result(future, place) for place, future in asked.items()}
        if unknown := sorted(place for place, each in found.items() if each.leader_epoch is None):
            self._admin = None
            message = f"Kafka at {self._bootstrap} does not tell the leader of {', '.join(unknown)}"
            raise StreamError(message)
        return {place: (int(each.offset), int(each.leader_epoch)) for place, each in found.items()}

    def resumed(self, positions: Mapping[str, int], epochs: Mapping[str, int]) -> dict[str, int]:
        """Return where a reader of each position goes on that knows the epoch it was read by: before it, where the log was cut off there.

        Kafka's client asks for the end of that epoch (OffsetForLeaderEpoch), and goes back to it.
        """
        consumer = Consumer(
            {
                **brokers(self._bootstrap).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",  # an open transaction holds nobody up
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        found: dict[str, int] = {}
        try:
            consumer.assign(
                [
                    TopicPartition(*split(place), offset, leader_epoch=epochs[place])
                    for place, offset in positions.items()
                ]
            )
            deadline = time.monotonic() + SECONDS
            while left := positions.keys() - found.keys():
                message = consumer.poll(0.2)
                if message is None:
                    if time.monotonic() > deadline:
                        text = f"Kafka at {self._bootstrap} does not tell whether the logs of {', '.join(sorted(left))} were cut back"
                        raise StreamError(text)
                    continue
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 — its only name
                    text = (
                        f"Kafka at {self._bootstrap} does not tell whether logs were cut back: {error.str()}"
                    )
                    raise StreamError(text)
                found.setdefault(name(str(message.topic()), message.partition() or 0), message.offset() or 0)
        finally:
            consumer.close()
        return found

    def cut(
        self, positions: Mapping[str, int], known: Mapping[str, int], now: Mapping[str, int]
    ) -> dict[str, int]:
        """Return which partitions were cut back below these positions since the epochs that are known, and where; now there are others."""
        kept = {place: epoch for place, epoch in known.items() if place in positions}
        refuse_old(kept, now)
        return cut(positions, kept, now, self.resumed)

    def _connected(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**brokers(self._bootstrap).client, "log_level": 2})
        return self._admin

    def _result(self, future: "Future[Any]", what: str) -> Any:
        try:
            return future.result(SECONDS + 1)
        except (KafkaException, TimeoutError) as error:
            known = error.args[0] if isinstance(error, KafkaException) else None
            if known is not None and known.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                message = f'stream "{what}" is not in Kafka at {self._bootstrap}; run `python -m sluice.commands.publish`'
                raise NoStreamError(message) from error
            self._admin = None  # it may wait for a broker that is down, as the controller that it knows, until that one is back
            why = "" if known is None else f": {known.str()}"
            message = f"Kafka at {self._bootstrap} does not tell the id of {what}, or its leader{why}"
            raise StreamError(message) from error


def _is_stale(future: "Future[Any]") -> bool:
    try:
        error = future.exception(SECONDS + 1)
    except TimeoutError:
        return False
    if error is None:
        return future.result().leader_epoch is None
    return isinstance(error, KafkaException) and error.args[0].code() in STALE


def epochs_of(ends: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the epochs alone."""
    return {place: epoch for place, (_, epoch) in ends.items()}


def refuse_old(known: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Take no answer of a broker that knows less than was known: epochs only grow."""
    if old := sorted(place for place, epoch in now.items() if epoch < known.get(place, epoch)):
        message = (
            f"Kafka tells epoch {now[old[0]]} of the leader of {old[0]}, and {known[old[0]]} was told before: that broker's metadata is "
            f"old, or was restored from a backup"
        )
        raise StreamError(message)


class Watch:
    """Looks every few seconds, without waiting for the answer, whether the streams that a run reads are still the same."""

    def __init__(self, identities: Identities | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; without `identities` nothing is ever known."""
        self._identities, self._clock = identities, clock
        self._places: Collection[str] = ()
        self._asked: tuple[Mapping[str, Future[Any]], Mapping[str, Future[Any]]] | None = None
        self._due = 0.0

    def now(self, places: Collection[str]) -> Logs:
        """Return which logs there are of these partitions, waiting for the answer; `news` is of the same."""
        self._places, self._asked = places, None
        if self._identities is None:
            return Logs()
        return self._answer(self._ask(self._identities), self._identities)

    def news(self) -> Logs | None:
        """Return it when an answer has come since the last call; else None. Where Kafka does not answer, it is asked again."""
        if self._identities is None:
            return None
        if self._asked is not None and all(
            future.done() for asked in self._asked for future in asked.values()
        ):
            asked, self._asked = self._asked, None
            try:
                return self._answer(asked, self._identities)
            except StreamError:
                return None  # where it is gone, the query ends by itself
        if self._asked is None and self._clock() >= self._due:
            self._due = self._clock() + EVERY_SECONDS
            self._asked = self._ask(self._identities)
        return None

    def cut(
        self, positions: Mapping[str, int], known: Mapping[str, int], now: Mapping[str, int]
    ) -> dict[str, int]:
        """Return which partitions were cut back below these positions, and where; StreamError where Kafka does not answer."""
        return {} if self._identities is None else self._identities.cut(positions, known, now)

    def _ask(self, identities: Identities) -> "tuple[Mapping[str, Future[Any]], Mapping[str, Future[Any]]]":
        return identities.ask(sorted({split(place)[0] for place in self._places})), identities.ask_ends(
            self._places
        )

    @staticmethod
    def _answer(
        asked: "tuple[Mapping[str, Future[Any]], Mapping[str, Future[Any]]]", identities: Identities
    ) -> Logs:
        topics, ends = asked
        return Logs(identities.answer(topics), epochs_of(identities.ends(ends)))


class SameStreams:
    """The inputs of a tier whose earlier runs have said which streams they read; where none has, those that there are."""

    def __init__(self, watch: Watch, said: Callable[[], list[Receipt]], way_out: str) -> None:
        """Prepare; `said` are the receipts of earlier runs, as far as they are known."""
        self._watch, self._said, self._way_out = watch, said, way_out
        self.logs = Logs()
        """What its positions belong to."""
        self._leaders: dict[str, int] = {}
        """The epochs that there were when the run began."""
        self._again: dict[str, int] = {}
        """Up to where partitions are read again by a tier that filters: its output does not tell which leader's records it left out."""
        self._before: dict[str, int] = {}
        """The epochs that were known of those."""

    def ask(self, places: Collection[str]) -> Logs:
        """Refuse to go on in a stream that is not the one whose offsets are known; return which logs there are of these partitions.

        Whether they were cut back is another question: `cut`.
        """
        now = self._watch.now(places)
        self._compare(now.streams)
        return now

    def cut(self, positions: Mapping[str, int], now: Logs) -> dict[str, int]:
        """Return which partitions of `now` may have been cut back below these positions, and where."""
        return self._watch.cut(positions, self._known_epochs(), now.epochs)

    def refuse_kept(self, now: Logs) -> None:
        """Refuse to go on where records were cut off that were read for certain."""
        kept = self.kept()
        if found := self.cut(kept, now):
            raise cut_error(kept, found, self._way_out)

    def take(self, now: Logs, again: Mapping[str, int]) -> None:
        """Take positions for those in these logs, from here on; those in partitions that are read `again` once they are behind that."""
        known = self._known_epochs()
        self._before = {place: known[place] for place in again}
        self._leaders, self._again = dict(now.epochs), dict(again)
        logs = self.logs.on(now)
        self.logs = Logs(
            logs.streams, {place: epoch for place, epoch in logs.epochs.items() if place not in again}
        )

    def passed(self, positions: Mapping[str, int]) -> None:
        """Take note of up to where a run has put out all."""
        for place in [place for place, until in self._again.items() if positions.get(place, 0) >= until]:
            self.logs = self.logs.on(Logs(epochs={place: self._leaders[place]}))
            del self._again[place], self._before[place]

    def kept(self) -> dict[str, int]:
        """Return up to where earlier runs have read partitions for certain, by leaders no later than those that `cut` asks about."""
        found: dict[str, int] = {}
        known = self._known_epochs()
        for receipt in self._said():
            for place in receipt.epochs.keys() & receipt.positions.keys():
                if receipt.epochs[place] <= known[place]:
                    found[place] = max(receipt.positions[place], found.get(place, 0))
        return found

    def look(self) -> bool | None:
        """Refuse likewise while a tier runs, without waiting: it would read on in a new stream from where the old one was.

        Return whether leaders were elected since the run began; None where no answer has come.
        """
        now = self._watch.news()
        if now is None:
            return None
        self._compare(now.streams)
        return any(epoch > self._leaders.get(place, epoch) for place, epoch in now.epochs.items())

    def _known_epochs(self) -> dict[str, int]:
        """Return its own; a run beside it may know of a later leader, and has not read what this one has."""
        told: dict[str, int] = {}
        for receipt in self._said():
            for place, epoch in receipt.epochs.items():
                told[place] = max(epoch, told.get(place, epoch))
        return told | self.logs.epochs | self._before

    def _compare(self, now: dict[str, str]) -> None:
        known = {name: {identity} for name, identity in self.logs.streams.items()}
        for receipt in self._said() if set(now) - set(known) else []:
            for stream, identity in receipt.streams.items():
                known.setdefault(stream, set()).add(identity)
        refuse_changed(known, now, self._way_out)
        if new := {stream: identity for stream, identity in now.items() if stream not in known}:
            log.info(
                "the ids of its inputs were not known; its positions are taken for theirs from now on",
                streams=new,
            )
        self.logs = self.logs.on(Logs(now))
