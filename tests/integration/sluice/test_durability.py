"""One of three brokers loses its disk under load: the site's `replication` decides whether
acknowledged records survive.
"""

from collections.abc import Iterator
from threading import Event, Thread
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from sluice.api import declarations
from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.kafka import topics
from sluice.kafka.durability import IN_SYNC, WeakStreamError
from sluice.kafka.producer import producer
from sluice_ops.model.kafka_access import ONE_COPY, Durability
from sluice_ops.model.tier import Kind
from tests.lab import until
from tests.three_brokers import NODES, ThreeBrokers

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

HITS = declarations.load("hits")
BARE = Pipeline(
    (
        Tier(
            "bare",
            Kind.ENTRY,
            (Stream("bare"),),
            lambda records: records,
            outputs=(Stream("bare-out", "id string"),),
        ),
    )
)
PARTITIONS = 6
SAFE, UNSAFE = Durability(3, 2), ONE_COPY


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    brokers = ThreeBrokers(tmp_path_factory.mktemp("three"))
    yield brokers
    brokers.end()


class Load:
    """Writes numbered records into a stream, as Sluice's producers do, and keeps the acknowledged
    numbers.
    """

    def __init__(self, address: str, stream: str) -> None:
        self.acknowledged: set[int] = set()
        self._producer, self._stream, self._stopped = producer(address), stream, Event()
        self._thread = Thread(target=self._put)

    def _put(self) -> None:
        number = 0
        while not self._stopped.wait(0.002):
            self._producer.produce(
                self._stream,
                str(number).encode(),
                partition=number % PARTITIONS,
                on_delivery=self._on_delivery,
            )
            self._producer.poll(0)
            number += 1
        self._producer.flush(60)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int(message.value() or b""))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()


def stored_numbers(address: str, stream: str) -> set[int]:
    """Return the numbers of all records in a stream."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "test", "log_level": 0})
    numbers = set()
    for partition in range(PARTITIONS):
        topic_partition = TopicPartition(stream, partition, 0)
        position, end = reader.get_watermark_offsets(topic_partition, timeout=30)
        reader.assign([topic_partition])
        while position < end:
            for record in reader.consume(1000, timeout=5):
                position = (record.offset() or 0) + 1
                numbers.add(int(record.value() or b""))
    reader.close()
    return numbers


def lost_after_disk_loss(
    three: ThreeBrokers, stream: str, node: int, *, one_copy: bool = False
) -> tuple[set[int], int]:
    """Replace a broker's disk under load; return the lost acknowledged numbers, and how many were
    acknowledged.
    """
    with Load(three.address, stream) as load:
        until("records are acknowledged", lambda: len(load.acknowledged) > 2000, seconds=60)
        before = len(load.acknowledged)
        three.destroy(node)
        until("more records are acknowledged", lambda: len(load.acknowledged) > before + 1000, seconds=60)
    if one_copy:
        until("Kafka knows that the broker is away", lambda: three.leaderless(stream), seconds=60)
    three.start(node)
    until("the broker is back", lambda: three.count() == len(NODES), seconds=120)
    if one_copy:
        three.force_leader(node, stream)  # Kafka elects no new, empty disk by itself
    until("every replica is in sync", lambda: three.all_in_sync(stream), seconds=120)
    return load.acknowledged - stored_numbers(three.address, stream), len(load.acknowledged)


def test_no_stream_is_created_with_more_replicas_than_brokers(three: ThreeBrokers) -> None:
    with pytest.raises(WeakStreamError, match="the site wants each record on 4 brokers"):
        topics.create(three.address, HITS, PARTITIONS, Durability(4, 2))
    assert not three.admin.list_topics(timeout=5).topics.keys() & topics.wanted(HITS).keys()


def test_only_streams_with_one_copy_lose_records_with_a_disk(three: ThreeBrokers) -> None:
    assert "raw" in topics.create(three.address, HITS, PARTITIONS, SAFE)
    lost_numbers, acknowledged = lost_after_disk_loss(three, "raw", 1)
    assert lost_numbers == set(), f"{len(lost_numbers)} of {acknowledged} acknowledged records are lost"

    assert "bare" in topics.create(three.address, BARE, PARTITIONS, UNSAFE)
    lost_numbers, acknowledged = lost_after_disk_loss(three, "bare", 1, one_copy=True)
    assert 0 < len(lost_numbers) < acknowledged, "the test must be able to fail"

    with pytest.raises(WeakStreamError, match="stream bare has 1 of 3 replicas") as refused:
        topics.create(three.address, BARE, PARTITIONS, SAFE)
    assert "replication: 1" in str(refused.value)


def test_a_stream_with_weak_settings_is_refused_until_it_is_corrected(three: ThreeBrokers) -> None:
    topics.create(three.address, HITS, PARTITIONS, SAFE)
    _acknowledge_with(three, "1")
    until("publishing is refused", lambda: _refused(three), seconds=30)
    _acknowledge_with(three, "2")
    until("publishing succeeds", lambda: not _refused(three), seconds=30)


def _acknowledge_with(three: ThreeBrokers, in_sync: str) -> None:
    change = ConfigEntry(IN_SYNC, in_sync, incremental_operation=AlterConfigOpType.SET)
    altered = three.admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, "hits", incremental_configs=[change])]
    )
    for result in altered.values():
        result.result()


def _refused(three: ThreeBrokers) -> bool:
    try:
        topics.create(three.address, HITS, PARTITIONS, SAFE)
    except WeakStreamError as error:
        assert str(error).startswith("stream hits acknowledges with 1 of 2 brokers in sync; kafka-configs.sh")  # noqa: PT017
        return True
    return False
