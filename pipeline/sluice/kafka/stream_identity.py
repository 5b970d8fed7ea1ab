"""Checks whether a stream is still the stream to which a tier's positions belong.

Kafka gives each topic a unique id (KIP-516). A topic that was deleted and recreated, or is in
another cluster, has another id, whatever its length (decision 43). A partition that was
cut back keeps the topic's id; the epoch of its leader reveals the cut (`sluice.kafka.truncation`).
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sluice.kafka.positions import RecordsGoneError
from sluice.kafka.reader import SECONDS, NoStreamError, StreamError, partition_name, topic_and_number
from sluice.kafka.truncation import Logs, cut, cut_error
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.kafka_access import LOOKERS
from sluice_ops.site.brokers import brokers

log = structlog.get_logger()

STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)
"""Brokers' errors for a client that knows an older leader."""
UNKNOWN = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id zero, which brokers without topic ids return."""
ANSWER_SECONDS = 4.0
"""The longest wait for one answer about topics and leaders.

A client goes on waiting for a broker that was killed, also after another one leads. Only a new
client finds the new leader, and a new one is made after each wait without an answer.
"""
SOON_SECONDS = 1.0
"""The longest wait for an answer if a new client asks next."""
EVERY_SECONDS = 5.0
"""The time between two checks of the streams of a running tier."""


def changed(known: Mapping[str, Collection[str]], now: Mapping[str, str]) -> list[str]:
    """Return the streams whose id differs from all their known ids. Pure.

    A stream without known ids has not changed.
    """
    return sorted(
        stream for stream, identity in now.items() if known.get(stream) and identity not in known[stream]
    )


def refuse_changed(known: Mapping[str, Collection[str]], now: Mapping[str, str], way_out: str) -> None:
    """Raise RecordsGoneError if a stream is not the one to which the positions belong. Pure."""
    if streams := changed(known, now):
        ids = "; ".join(
            f"{stream} has the id {now[stream]}, and {' or '.join(sorted(known[stream]))} was read"
            for stream in streams
        )
        message = (
            f"{', '.join(streams)}: the stream was deleted and recreated, or belongs to another cluster "
            f"({ids}); the tier has stopped, because the old offsets mean other records now; {way_out}"
        )
        raise RecordsGoneError(message)


def of_positions(positions: Mapping[str, int], streams: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the known ids of the streams that have a position. Pure."""
    return {
        stream: [streams[stream]]
        for stream in {topic_and_number(place)[0] for place in positions}
        if stream in streams
    }


class Identities:
    """Asks Kafka for topic ids and leader epochs. Thread-safe, except `resumed`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: AdminClient | None = None

    def ask(self, topics: Sequence[str], seconds: float = ANSWER_SECONDS) -> "dict[str, Future[Any]]":
        """Ask for the topics without waiting.

        Each future is done within `seconds`, with an error at worst.
        """
        asked = self._connected().describe_topics(TopicCollection(list(topics)), request_timeout=seconds)
        return dict(asked)

    def of(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the id of each stream.

        NoStreamError if a stream does not exist, StreamError if Kafka does not answer.
        """
        return self.answer(self.ask(topics))

    def answer(self, asked: "Mapping[str, Future[Any]]") -> dict[str, str]:
        """Wait for the answers to `ask`, and return the ids."""
        ids = {topic: str(self._result(future, topic).topic_id) for topic, future in asked.items()}
        return {topic: identity for topic, identity in ids.items() if identity != UNKNOWN}

    def ask_ends(self, places: Collection[str], seconds: float = ANSWER_SECONDS) -> "dict[str, Future[Any]]":
        """Ask the partitions' leaders for the ends of their logs, without waiting."""
        wanted = {TopicPartition(*topic_and_number(place)): OffsetSpec.latest() for place in places}
        asked = self._connected().list_offsets(wanted, request_timeout=seconds) if wanted else {}
        return {
            partition_name(partition.topic, partition.partition): future
            for partition, future in asked.items()
        }

    def ends(self, asked: "Mapping[str, Future[Any]]") -> dict[str, tuple[int, int]]:
        """Wait for the answers to `ask_ends`, and return each end with the epoch of the leader.

        The client keeps asking a known leader for minutes after another one was elected. Then that
        broker refuses the old epoch, or the answer is empty because the broker is down. In both
        cases, a new client asks again.
        """
        if any(_is_stale(future) for future in asked.values()):
            self._admin = None
            asked = self.ask_ends(asked)
        ends = {place: self._result(future, place) for place, future in asked.items()}
        if unknown := sorted(place for place, end in ends.items() if end.leader_epoch is None):
            self._admin = None
            message = f"Kafka at {self._bootstrap} does not tell the leader of {', '.join(unknown)}"
            raise StreamError(message)
        return {place: (int(end.offset), int(end.leader_epoch)) for place, end in ends.items()}

    def resumed(self, positions: Mapping[str, int], epochs: Mapping[str, int]) -> dict[str, int]:
        """Return where a reader of each position would continue, given the epoch of the position.

        The result is before the position if the log was cut off there. Kafka's client asks for the
        end of that epoch (OffsetForLeaderEpoch) and goes back to it. StreamError if Kafka does not
        answer.
        """
        consumer = Consumer(
            {
                **brokers(self._bootstrap).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",  # open transactions do not delay the reader
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        resumed_at: dict[str, int] = {}
        try:
            consumer.assign(
                [
                    TopicPartition(*topic_and_number(place), offset, leader_epoch=epochs[place])
                    for place, offset in positions.items()
                ]
            )
            deadline = time.monotonic() + SECONDS
            while left := positions.keys() - resumed_at.keys():
                message = consumer.poll(0.2)
                if message is None:
                    if time.monotonic() > deadline:
                        text = (
                            f"Kafka at {self._bootstrap} does not tell whether the logs of "
                            f"{', '.join(sorted(left))} were cut back"
                        )
                        raise StreamError(text)
                    continue
                error = message.error()
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
                if error is not None and not is_end:
                    text = (
                        f"Kafka at {self._bootstrap} does not tell whether logs were cut back: {error.str()}"
                    )
                    raise StreamError(text)
                place = partition_name(str(message.topic()), message.partition() or 0)
                resumed_at.setdefault(place, message.offset() or 0)
        finally:
            consumer.close()
        return resumed_at

    def cut(
        self, positions: Mapping[str, int], known: Mapping[str, int], now: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the partitions that were cut back below these positions since the known epochs.

        The values are the offsets of the cuts. Other records may now follow these offsets.
        """
        epochs = {place: epoch for place, epoch in known.items() if place in positions}
        refuse_old(epochs, now)
        return cut(positions, epochs, now, self.resumed)

    def _connected(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**brokers(self._bootstrap).client, "log_level": 2})
        return self._admin

    def _result(self, future: "Future[Any]", place: str) -> Any:
        """Return the answer about a stream or a partition."""
        try:
            return future.result(ANSWER_SECONDS + 1)
        except (KafkaException, TimeoutError) as error:
            kafka_error = error.args[0] if isinstance(error, KafkaException) else None
            if kafka_error is not None and kafka_error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                message = f'stream "{place}" is not in Kafka at {self._bootstrap}; run `sluice publish`'
                raise NoStreamError(message) from error
            # The old client may wait for a broker that is down (the controller that it knows).
            self._admin = None
            cause = "" if kafka_error is None else f": {kafka_error.str()}"
            message = f"Kafka at {self._bootstrap} does not tell the id of {place}, or its leader{cause}"
            raise StreamError(message) from error


def _is_stale(future: "Future[Any]") -> bool:
    try:
        error = future.exception(ANSWER_SECONDS + 1)
    except TimeoutError:
        return False
    if error is None:
        return future.result().leader_epoch is None
    return isinstance(error, KafkaException) and error.args[0].code() in STALE


def epochs_of(ends: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    return {place: epoch for place, (_, epoch) in ends.items()}


def refuse_old(known: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Raise StreamError if a broker reports an epoch older than a known one: epochs only grow."""
    if old := sorted(place for place, epoch in now.items() if epoch < known.get(place, epoch)):
        message = (
            f"Kafka reports epoch {now[old[0]]} for the leader of {old[0]}, and reported {known[old[0]]} "
            "before: the broker's metadata is old, or was restored from a backup"
        )
        raise StreamError(message)


class Watch:
    """Checks every few seconds whether the streams of a run are the same. It never waits for Kafka,
    except in `now` and `cut`.
    """

    def __init__(self, identities: Identities | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare a watch. Without `identities`, nothing is ever known."""
        self._identities, self._clock = identities, clock
        self._places: Collection[str] = ()
        self._asked: tuple[Mapping[str, Future[Any]], Mapping[str, Future[Any]]] | None = None
        self._due = 0.0

    def now(self, places: Collection[str]) -> Logs:
        """Wait for Kafka, and return the logs of these partitions.

        A client that was connected before a leader was killed has no answer; the next one asks the
        new leader at once. Later calls of `news` check the same partitions.
        """
        self._places, self._asked = places, None
        if self._identities is None:
            return Logs()
        try:
            return self._answer(self._ask(self._identities, SOON_SECONDS), self._identities)
        except NoStreamError:
            raise
        except StreamError:
            return self._answer(self._ask(self._identities), self._identities)

    def news(self) -> Logs | None:
        """Return the logs if an answer came since the last call, else None.

        If Kafka does not answer, the next call asks again.
        """
        if self._identities is None:
            return None
        if self._asked is not None and all(
            future.done() for asked in self._asked for future in asked.values()
        ):
            asked, self._asked = self._asked, None
            try:
                return self._answer(asked, self._identities)
            except StreamError:
                return None  # if a stream was deleted, the query ends by itself
        if self._asked is None and self._clock() >= self._due:
            self._due = self._clock() + EVERY_SECONDS
            self._asked = self._ask(self._identities)
        return None

    def cut(
        self, positions: Mapping[str, int], known: Mapping[str, int], now: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the offset of the cut for each partition that was cut back below its position.

        StreamError if Kafka does not answer.
        """
        return {} if self._identities is None else self._identities.cut(positions, known, now)

    def _ask(
        self, identities: Identities, seconds: float = ANSWER_SECONDS
    ) -> "tuple[Mapping[str, Future[Any]], Mapping[str, Future[Any]]]":
        topics = sorted({topic_and_number(place)[0] for place in self._places})
        return identities.ask(topics, seconds), identities.ask_ends(self._places, seconds)

    @staticmethod
    def _answer(
        asked: "tuple[Mapping[str, Future[Any]], Mapping[str, Future[Any]]]", identities: Identities
    ) -> Logs:
        topics, ends = asked
        return Logs(identities.answer(topics), epochs_of(identities.ends(ends)))


class SameStreams:
    """The inputs of a tier, compared with the streams that earlier runs have read.

    If no run has stored its streams, the present streams count as the same.
    """

    def __init__(self, watch: Watch, receipts: Callable[[], list[Receipt]], way_out: str) -> None:
        """Prepare the comparison. `receipts` returns the known receipts of earlier runs."""
        self._watch, self._receipts, self._way_out = watch, receipts, way_out
        self.logs = Logs()
        """The logs to which the tier's positions belong."""
        self._leaders: dict[str, int] = {}
        """The leader epochs at the start of the run."""
        self._read_again_until: dict[str, int] = {}
        """Offsets up to which partitions are read again by a tier that filters.

        The output of such a tier does not tell from which leader it read the records that it left
        out.
        """
        self._epochs_before: dict[str, int] = {}
        """The epochs of those partitions that were known before the run."""

    def ask(self, places: Collection[str]) -> Logs:
        """Return the logs of these partitions. RecordsGoneError if a stream is not the known one.

        The function `cut` tells whether a stream was cut back.
        """
        now = self._watch.now(places)
        self._compare(now.streams)
        return now

    def cut(self, positions: Mapping[str, int], now: Logs) -> dict[str, int]:
        """Return the offset of the cut for each partition that was cut back below its position."""
        return self._watch.cut(positions, self._known_epochs(), now.epochs)

    def refuse_kept(self, now: Logs) -> None:
        """Raise RecordsGoneError if records that were certainly read were cut off."""
        kept = self.kept()
        if cuts := self.cut(kept, now):
            raise cut_error(kept, cuts, self._way_out)

    def take(self, now: Logs, again: Mapping[str, int]) -> None:
        """From now on, positions belong to these logs.

        For partitions in `again`, this holds only after the run has passed their offsets.
        """
        known = self._known_epochs()
        self._epochs_before = {place: known[place] for place in again}
        self._leaders, self._read_again_until = dict(now.epochs), dict(again)
        logs = self.logs.on(now)
        self.logs = Logs(
            logs.streams, {place: epoch for place, epoch in logs.epochs.items() if place not in again}
        )

    def passed(self, positions: Mapping[str, int]) -> None:
        """Note up to where all output of the run is in Kafka."""
        for place in [
            place for place, until in self._read_again_until.items() if positions.get(place, 0) >= until
        ]:
            self.logs = self.logs.on(Logs(epochs={place: self._leaders[place]}))
            del self._read_again_until[place], self._epochs_before[place]

    def kept(self) -> dict[str, int]:
        """Return up to where earlier runs have certainly read each partition.

        Only receipts count whose leader epoch is not later than the epoch that `cut` asks about.
        """
        positions: dict[str, int] = {}
        known = self._known_epochs()
        for receipt in self._receipts():
            for place in receipt.epochs.keys() & receipt.positions.keys():
                if receipt.epochs[place] <= known[place]:
                    positions[place] = max(receipt.positions[place], positions.get(place, 0))
        return positions

    def compare(self) -> bool | None:
        """Compare the streams while the tier runs, without waiting.

        RecordsGoneError if a stream was recreated, because the tier would read the new stream from
        the offset of the old one. Return whether leaders were elected since the start of the run;
        None if no answer came.
        """
        now = self._watch.news()
        if now is None:
            return None
        self._compare(now.streams)
        return any(epoch > self._leaders.get(place, epoch) for place, epoch in now.epochs.items())

    def _known_epochs(self) -> dict[str, int]:
        """Return the epochs that this run knows; for other partitions, the latest of the receipts.

        A run beside this one may know a later leader, but has not read the same records.
        """
        epochs: dict[str, int] = {}
        for receipt in self._receipts():
            for place, epoch in receipt.epochs.items():
                epochs[place] = max(epoch, epochs.get(place, epoch))
        return epochs | self.logs.epochs | self._epochs_before

    def _compare(self, now: dict[str, str]) -> None:
        known = {name: {identity} for name, identity in self.logs.streams.items()}
        for receipt in self._receipts() if set(now) - set(known) else []:
            for stream, identity in receipt.streams.items():
                known.setdefault(stream, set()).add(identity)
        refuse_changed(known, now, self._way_out)
        if new := {stream: identity for stream, identity in now.items() if stream not in known}:
            log.info(
                "the topic ids of the inputs were not known; the tier's positions now count for these topics",
                streams=new,
            )
        self.logs = self.logs.on(Logs(now))
