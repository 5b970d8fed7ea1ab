"""What the tests of Avro and of Protobuf share: senders, a second release, and what was stored."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from confluent_kafka import Consumer, Producer, TopicPartition

from sluice_ops.model import paths
from sluice_ops.model.tier import TierSpec
from tests.lab import ROOT, Lab

TIERS = ("entry", "store", "count")


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


def counted(lab: Lab) -> dict[str, int]:
    """Return the number of hits of each user."""
    return {user: int(hits) for user, hits in lab.query('select "user", hits from counted')}


def is_complete(lab: Lab, sender: Sender) -> Callable[[], bool]:
    """Return a function that tells whether each record is stored and counted."""
    return lambda: len(stored(lab)) >= len(sender.ids) <= sum(counted(lab).values())


def published_release(lab: Lab) -> str:
    spec = lab.channel.read(paths.tier("entry"), TierSpec)
    assert spec is not None
    assert spec.value.release is not None
    return spec.value.release


def hand_over(lab: Lab, tier: str, old: int, new: int) -> None:
    """Hand a tier over to a new incarnation of the published release."""
    lab.prepare(tier, old, new, "h3", release=published_release(lab))
    lab.hand_over(tier, old, new)


def start_each(lab: Lab, release: str) -> None:
    for tier, host in zip(TIERS, ("h1", "h2", "h3"), strict=True):
        lab.start_owner(tier, 1, host, release=release)


def kill_each(lab: Lab, release: str, send: Callable[[], None]) -> None:
    """Kill the driver of each tier, and send records before it is back."""
    for tier in TIERS:
        lab.driver(tier, 1).kill()
        send()
        lab.start_owner(tier, 2, "h1", release=release)
        lab.stop(tier, 1)


def assert_counted(lab: Lab, sender: Sender, anna: int) -> None:
    """Assert that each record is stored and counted once, and stop the tiers."""
    assert sorted(stored(lab)) == sorted(sender.ids), "each record is in the table once"
    assert counted(lab) == {"anna": anna, "nobody": len(sender.ids) - anna}, "each record is counted once"
    for tier in TIERS:
        lab.stop(tier, 3)


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
