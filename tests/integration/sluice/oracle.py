"""Checks of the pipeline `hanging_pipeline`, with its tiers `enter` and `store`, after a fault
under load.

No record is lost or stored twice, and each key's records keep their order. Each epoch has one owner
of a tier and one leader.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, TopicPartition

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.kafka_access import CONTROL_TOPIC
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.stream_writers import Writers
from tests.integration.sluice.test_streams import records
from tests.lab import Lab, until

LOOK_SECONDS = 0.05
WRITERS = "select tier, incarnation from ledger order by tier, batch"
OUT_OF_ORDER = """
    select who, n, batch, before from
    (select *, lag(batch) over (partition by who, split_part(origin, ':', 1) order by n) as before
     from stored) as batches
    where batch < before
"""


class Epochs:
    """The leader and the owner record of each epoch, as ZooKeeper showed them during a test."""

    def __init__(self, tiers: Sequence[str]) -> None:
        self._tiers = tiers
        self._over = threading.Event()
        self.leaders: dict[int, set[str]] = defaultdict(set)
        self.statuses: dict[int, int] = {}
        """The epoch of the leader that wrote the status, by the node's version."""
        self.owners: dict[str, dict[int, int]] = {tier: {} for tier in tiers}
        """The epoch of each owner record, by the node's version."""

    def follow(self, address: str) -> None:
        with Channel(address) as channel:
            while not self._over.wait(LOOK_SECONDS):
                with suppress(ChannelAwayError):
                    self._look(channel)

    def end(self) -> None:
        self._over.set()

    def _look(self, channel: Channel) -> None:
        epoch = channel.read(paths.EPOCH, EpochRecord)
        if epoch is not None:
            self.leaders[epoch.value.epoch].add(epoch.value.leader)
        status = channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        if status is not None:
            self.leaders[status.value.epoch].add(status.value.leader)
            self.statuses[status.version] = status.value.epoch
        for tier in self._tiers:
            record = channel.read(paths.owner(tier), OwnerRecord)
            if record is not None:
                self.owners[tier][record.version] = record.value.epoch

    def check(self) -> None:
        assert self.statuses, "no status of a leader was read"
        assert all(len(names) == 1 for names in self.leaders.values()), (
            f"two leaders of an epoch: {dict(self.leaders)}"
        )
        epochs = [epoch for _, epoch in sorted(self.statuses.items())]
        assert epochs == sorted(epochs), f"a leader of an earlier epoch has written: {epochs}"
        for tier, epoch_by_version in self.owners.items():
            assert epoch_by_version, f"no owner record of {tier} was read"
            by_version = [epoch for _, epoch in sorted(epoch_by_version.items())]
            assert by_version == sorted(set(by_version)), (
                f"{tier}: an epoch was used twice or decreased: {by_version}"
            )


@contextmanager
def followed(lab: Lab, *tiers: str) -> Iterator[Epochs]:
    """Follow the epochs during the block, and check them at the end."""
    epochs = Epochs(tiers)
    thread = threading.Thread(target=epochs.follow, args=(lab.endpoints.zookeeper,))
    thread.start()
    try:
        yield epochs
    finally:
        epochs.end()
        thread.join()
    epochs.check()


def stored(lab: Lab) -> int:
    return int(lab.query("select count(*) from stored")[0][0])


def check(lab: Lab, count: int, seconds: float = 120, *, partitions_added: bool = False) -> None:
    """Wait until the numbers below `count`, which are all numbers of the test, are stored; check
    the output.

    With added partitions, a key may change its partition once for each change. A reader may then
    meet its records out of order (decision 40).
    """
    until(f"{count} records are stored", lambda: stored(lab) >= count, seconds)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (count, count, count * (count - 1) // 2)
    ]
    _no_holes(lab)
    assert partitions_added or lab.query(OUT_OF_ORDER) == [], "the sink has each key's records in order"
    _keys_in_order(lab, count)
    _one_writer_at_a_time(lab)
    _one_owner_for_each_epoch(lab)


def _no_holes(lab: Lab) -> None:
    """Assert that each batch begins where the one before ended, or at the beginning of an added
    partition.
    """
    before: dict[str, dict[str, int]] = {}
    for tier, batch, begins, ends in lab.query(
        "select tier, batch, begins, ends from ledger order by tier, batch"
    ):
        expected = dict.fromkeys(begins, 0) | before.get(tier, begins)
        assert begins == expected, f"batch {batch} of {tier} begins at {begins}, not at {expected}"
        before[tier] = ends


def _keys_in_order(lab: Lab, count: int) -> None:
    """Assert that each key's records of a raw partition are in order, and none returns to a
    partition that the key has left.
    """
    places: dict[str, int] = {}
    numbers: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in records(lab, "numbers"):
        origin = record.headers["origin"]
        if origin in places:  # a replay, which readers drop
            assert places[origin] == record.partition, f"{origin} was put into two partitions"
            continue
        places[origin] = record.partition
        numbers[record.value["who"], record.headers["path"]][record.partition].append(int(record.value["n"]))
    assert len(places) == count
    for key, by_partition in numbers.items():
        by_first = sorted(by_partition.values(), key=lambda of_partition: of_partition[0])
        order = [number for of_partition in by_first for number in of_partition]
        assert order == sorted(order), f"{key}: {order}"


def _one_writer_at_a_time(lab: Lab) -> None:
    """Assert that an incarnation writes no more after a later one has written."""
    writers: dict[str, list[int]] = defaultdict(list)
    for tier, incarnation in lab.query(WRITERS):
        writers[tier].append(incarnation)
    for tier, numbers in writers.items():
        assert numbers == sorted(numbers), f"{tier}: {numbers}"


def _one_owner_for_each_epoch(lab: Lab) -> None:
    """Assert that all claims of one owner record, to write a stream, name the same writers."""
    consumer = Consumer(
        {"bootstrap.servers": lab.endpoints.kafka, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    place = TopicPartition(CONTROL_TOPIC, 0, 0)
    end = consumer.get_watermark_offsets(place, timeout=10)[1]
    consumer.assign([place])
    claims: dict[tuple[bytes, int, int], set[tuple[int, ...]]] = defaultdict(set)
    for message in consumer.consume(end, timeout=10):
        claim = Writers.model_validate_json(message.value() or b"", extra="ignore")
        claims[message.key() or b"", claim.term, claim.epoch].add(claim.members)
    consumer.close()
    assert claims, "no run claimed the right to write"
    assert all(len(members) == 1 for members in claims.values()), f"two owners of an epoch: {claims}"
