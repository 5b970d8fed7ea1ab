"""Records for the pipeline `loading`, how many of them are out, and topics that are deleted and made anew."""

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.driver.streams import Streams
from tests.lab import Lab, until


def put(lab: Lab, first: int, count: int) -> None:
    """Bring records with the numbers from `first` on, in order."""
    producer = Producer({"bootstrap.servers": lab.where.kafka})
    for number in range(first, first + count):
        producer.produce("raw", f"{number};{{}};{number}", partition=0)
    assert producer.flush(30) == 0


def loaded(lab: Lab) -> int:
    """Return how many records are in the table."""
    return int(lab.ask("select count(*) from loaded")[0][0])


def copied(streams: Streams) -> int:
    """Return how many records are in the stream."""
    return sum(streams.bounds(["copied"]).ends.values())


def make_anew(lab: Lab, topic: str) -> None:
    """Delete a topic, and make one of the same name with as many partitions."""
    admin = AdminClient({"bootstrap.servers": lab.where.kafka})
    partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
    admin.delete_topics([topic])[topic].result(30)

    def is_made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        except KafkaException:
            return False  # it is not gone yet
        return True

    until(f"{topic} is made anew", is_made)
