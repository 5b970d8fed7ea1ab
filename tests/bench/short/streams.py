"""Reads and makes the streams of the workloads in Kafka."""

from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.kafka.topics import SETTINGS
from sluice_ops.model.kafka_access import Purpose
from tests.bench.flow import PARTITIONS, ends
from tests.integration.nexmark.event_feed import Event, as_entry_writes

MANY = 10_000
"""How many records one call reads."""


def make(kafka: str, source: str, later: Sequence[str] = ()) -> None:
    """Make the streams of another system like those that Sluice publishes."""
    settings = {source: SETTINGS[Purpose.ARRIVALS], **dict.fromkeys(later, SETTINGS[Purpose.BETWEEN])}
    topics = [NewTopic(name, len(PARTITIONS), 1, config=config) for name, config in settings.items()]
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics(topics).values():
        made.result()


def values(kafka: str, stream: str) -> Iterator[bytes]:
    """Yield every record of a stream until its present end."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench", "enable.auto.commit": False})
    until = ends(kafka, stream)
    consumer.assign([TopicPartition(stream, number, 0) for number in until])
    left = {number for number, end in until.items() if end}
    while left:
        for message in consumer.consume(MANY, timeout=0.2):
            assert message.error() is None, message.error()
            if message.offset() < until[message.partition()]:
                yield message.value()
            if message.offset() + 1 >= until[message.partition()]:
                left.discard(message.partition())
    consumer.close()


def send(kafka: str, stream: str, records: Sequence[str]) -> None:
    """Send records, to the partitions in turn."""
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    for number, record in enumerate(records):
        producer.produce(stream, value=record, partition=number % len(PARTITIONS))
    assert producer.flush(30) == 0


def send_as_entry(kafka: str, events: Sequence[tuple[int, Event]]) -> None:
    """Send numbered events of Nexmark into the streams behind the entry, as of their own time.

    Kafka stamps a record of the source with the present time, and a state takes no event that is
    older than its lateness when it arrives.
    """
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    for number, event in events:
        partition = number % len(PARTITIONS)
        path = f"bounded/{partition}"
        record = as_entry_writes(event, f"{path}:{number}", path, event["at"])
        producer.produce(**record, partition=partition)
    assert producer.flush(30) == 0
