"""What the tests of Avro and of Protobuf share: senders, a second release, and what was stored."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from confluent_kafka import Consumer, Producer, TopicPartition

from sluice_ops.model import paths
from sluice_ops.model.incarnation import State
from sluice_ops.model.tier import TierSpec
from tests.lab import ROOT, Lab


class Sender:
    """Sends hits in a format, and garbage between them."""

    def __init__(self, lab: Lab, garbage: Sequence[bytes]) -> None:
        self.producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
        self.ids: list[str] = []
        self.garbage = garbage

    def send(self, count: int, record_of: Callable[[str], bytes]) -> None:
        for number in range(len(self.ids), len(self.ids) + count):
            self.ids.append(f"hit-{number}")
            self.producer.produce("raw", record_of(self.ids[-1]), partition=number % 4)
        assert self.producer.flush(60) == 0

    def send_garbage(self) -> None:
        for number, record in enumerate(self.garbage):
            self.producer.produce("raw", record, partition=number % 4)
        assert self.producer.flush(60) == 0


def stored(lab: Lab) -> list[str]:
    return [row[0] for row in lab.query("select id from stored")]


def is_complete(lab: Lab, sender: Sender) -> Callable[[], bool]:
    return lambda: len(stored(lab)) >= len(sender.ids)


def published_release(lab: Lab) -> str:
    spec = lab.channel.read(paths.tier("entry"), TierSpec)
    assert spec is not None
    assert spec.value.release is not None
    return spec.value.release


def hand_over(lab: Lab, old: int, new: int) -> None:
    """Hand the entry over to a new incarnation of the published release."""
    lab.cut("entry", old, new, "h3", release=published_release(lab))
    lab.wait_for("entry", new, State.RUNNING)
    lab.set_owner("entry", new)


def publish(
    lab: Lab, folder: Path, pipeline: ModuleType, changes: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Publish the pipeline from another folder, with changes of its code."""
    assert pipeline.__file__ is not None
    module_file = folder / Path(pipeline.__file__).relative_to(ROOT)
    module_file.parent.mkdir(parents=True, exist_ok=True)
    code = Path(pipeline.__file__).read_text()
    for before, after in changes.items():
        assert code.count(before) == 1, before
        code = code.replace(before, after)
    module_file.write_text(code)
    for parent in list(module_file.relative_to(folder).parents)[:-1]:
        (folder / parent / "__init__.py").touch()
    command = [sys.executable, "-m", "sluice.commands.publish"]
    return subprocess.run(command, env=lab.env, cwd=folder, capture_output=True, text=True, check=False)


def records(lab: Lab, topic: str) -> Iterator[tuple[bytes, dict[str, bytes]]]:
    """Yield the value and the headers of each record of a topic."""
    consumer = Consumer({"bootstrap.servers": lab.endpoints.kafka, "group.id": "test-formats"})
    try:
        count = len(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        while messages := consumer.consume(100, timeout=5):
            for message in messages:
                yield message.value(), dict(message.headers())
    finally:
        consumer.close()


def quarantined(lab: Lab) -> dict[bytes, str]:
    """Return the reason of each record in quarantine."""
    return {value: headers["reason"].decode() for value, headers in records(lab, "raw.quarantine")}
