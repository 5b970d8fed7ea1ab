"""Helpers for the pipeline `loading`: records, output counts, recreated topics, and
`sluice skip`.
"""

import subprocess
import sys

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.kafka.reader import Streams
from tests.lab import ROOT, Lab, until


def put(lab: Lab, first: int, count: int) -> None:
    """Write records with the numbers from `first` on, in order."""
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    for number in range(first, first + count):
        producer.produce("raw", f"{number};{{}};{number}", partition=0)
    assert producer.flush(30) == 0


def loaded(lab: Lab) -> int:
    """Return how many records are in the table."""
    return int(lab.query("select count(*) from loaded")[0][0])


def copied(streams: Streams) -> int:
    """Return how many records are in the stream."""
    return sum(streams.bounds(["copied"]).ends.values())


def skip(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `sluice skip` as an operator does; return its result."""
    command = [sys.executable, "-m", "sluice.commands.skip", *words, "--json"]
    return subprocess.run(
        command, env=lab.env, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60
    )


def recreate(lab: Lab, topic: str) -> None:
    """Delete a topic, and create one with the same name and number of partitions."""
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
    admin.delete_topics([topic])[topic].result(30)

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        except KafkaException:
            return False  # the old topic is not deleted yet
        return True

    until(f"{topic} is recreated", is_created)
