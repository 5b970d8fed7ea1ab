"""A driver without ZooKeeper, but with Kafka, writes no stream beside its successor: the control
topic stops it.

If ZooKeeper is away for all drivers, none has a successor, and records flow on.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from sluice.api.marks import first_seen
from sluice.kafka.reader import Seen, Streams
from sluice_ops.model.incarnation import State
from sluice_ops.model.kafka_access import CONTROL_TOPIC
from sluice_ops.model.stream_writers import VALID_SECONDS, Writers
from tests.ensemble import Link
from tests.integration.sluice.test_frozen_drivers import FENCED, processes, resume, without_zookeeper
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIER = "enter"
STOP_SECONDS = 5.0
"""An executor hears of its successor within milliseconds; on a busy machine later."""
AWAY, BACK = "ZooKeeper does not answer; the driver continues", "ZooKeeper answers again"
"""What a driver logs about ZooKeeper."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def link(lab: Lab) -> Iterator[Link]:
    """A link to ZooKeeper that only one driver uses."""
    proxy = Link(int(lab.endpoints.zookeeper.partition("/")[0].rpartition(":")[2]))
    yield proxy
    proxy.close()


def address_over(lab: Lab, link: Link) -> str:
    """Return ZooKeeper's address over the link."""
    _, slash, root = lab.endpoints.zookeeper.partition("/")
    return f"127.0.0.1:{link.port}{slash}{root}"


def claims(lab: Lab) -> list[tuple[float, Writers]]:
    """Return the tier's claims in the control topic, and the broker's times of them.

    Unit: epoch ms.
    """
    consumer = Consumer(
        {"bootstrap.servers": lab.endpoints.kafka, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        partition = TopicPartition(CONTROL_TOPIC, 0, 0)
        end = consumer.get_watermark_offsets(partition, timeout=10)[1]
        consumer.assign([partition])
        messages = consumer.consume(end, timeout=10)
    return [
        (message.timestamp()[1], Writers.model_validate_json(message.value()))
        for message in messages
        if message.key() == TIER.encode()
    ]


def put_by(streams: Streams, number: int) -> list[Seen]:
    return [
        record for record in read_output(streams) if record.out.by.partition(".")[0] == f"{TIER}/{number}"
    ]


def put_since(streams: Streams, at: int) -> bool:
    """Tell whether a record was written after `at`. Unit: epoch ms."""
    return any(streams.since(["numbers"], streams.bounds(["numbers"]).ends, at))


def grows(streams: Streams) -> Callable[[], bool]:
    """Return a function that tells whether the stream has grown since this call."""
    before = sum(streams.bounds(["numbers"]).ends.values())
    return lambda: sum(streams.bounds(["numbers"]).ends.values()) > before


def test_a_cut_off_driver_stops_only_if_it_has_a_successor(lab: Lab, link: Link) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        with feeding(lab) as fed:
            lab.set_owner(TIER, 1)
            lab.start(TIER, 1, "h1", zookeeper=address_over(lab, link))
            lab.wait_for(TIER, 1, State.RUNNING)
            until("records come out", grows(streams))
            with without_zookeeper(lab):
                longer = int((time.time() + VALID_SECONDS + STOP_SECONDS) * 1000)
                until(
                    "records flow for longer than a claim is valid",
                    lambda: put_since(streams, longer),
                    VALID_SECONDS + 2 * STOP_SECONDS,
                )
            until("ZooKeeper is back", lambda: lab.channel.connected)
            until(
                "the driver has its connection back",
                lambda: lab.log(TIER, 1).count(BACK) == lab.log(TIER, 1).count(AWAY) > 0,
            )
            before = lab.log(TIER, 1).count(AWAY)
            link.cut()
            until("the driver is cut off", lambda: lab.log(TIER, 1).count(AWAY) > before)
            until("the driver writes on, because it has no successor", grows(streams), STOP_SECONDS)
            lab.start_owner(TIER, 2, "h2")
            lab.wait_for(TIER, 2, State.RUNNING)
            assert lab.driver(TIER, 1).wait(STOP_SECONDS + VALID_SECONDS) == FENCED, lab.log(TIER, 1)[-3000:]
            assert f'"{CONTROL_TOPIC}" names 2' in lab.log(TIER, 1)
        until(
            "every number is out",
            lambda: (
                len({(record.out.partition, record.out.offset) for record in read_output(streams)})
                == len(fed)
            ),
        )
        claimed = next(at for at, writers in claims(lab) if writers.members == (2,))
        late = max(record.out.at for record in put_by(streams, 1)) - claimed
        assert put_by(streams, 2)
    print(f"the last record of the cut-off driver: {late} ms after its successor's claim")
    assert late < STOP_SECONDS * 1000
    lab.set_owner(TIER, None, stopped=True)
    lab.stop(TIER, 1)
    lab.stop(TIER, 2)


def test_a_frozen_driver_writes_nothing_with_old_partition_counts(lab: Lab, link: Link) -> None:
    """Its successor uses added partitions: a driver that has not read the control topic for a
    minute must stop (decision 40).
    """
    with closing(Streams(lab.endpoints.kafka)) as streams:
        before = len({(record.out.partition, record.out.offset) for record in read_output(streams)})
        with feeding(lab, first=before) as fed:
            lab.set_owner(TIER, 3)
            lab.start(TIER, 3, "h1", zookeeper=address_over(lab, link))
            lab.wait_for(TIER, 3, State.RUNNING)
            until("incarnation 3 writes records", lambda: put_by(streams, 3))
            link.cut()
            frozen: list[psutil.Process] = processes(lab, TIER, 3)
            for process in frozen:
                process.suspend()
            try:
                lab.start_owner(TIER, 4, "h2")
                lab.wait_for(TIER, 4, State.RUNNING)
                admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
                admin.create_partitions([NewPartitions("numbers", 5)])["numbers"].result()
                until("incarnation 4 uses the added partition", lambda: _turn(lab, 4) == 1)
                streams.renew()
                until(
                    "the added partition has records",
                    lambda: any(record.place.startswith("numbers/4:") for record in put_by(streams, 4)),
                )
                thawed = time.time() * 1000
            finally:
                resume(frozen)
            assert lab.driver(TIER, 3).wait(VALID_SECONDS + 40) == FENCED, lab.log(TIER, 3)[-3000:]
        until(
            "every number is out",
            lambda: (
                len({(record.out.partition, record.out.offset) for record in read_output(streams)})
                == before + len(fed)
            ),
        )
        seen = read_output(streams)
    late = [record for record in seen if record.out.by.startswith(f"{TIER}/3") and record.out.at > thawed]
    print(f"records written after the driver was resumed: {len(late)}")
    record_paths = {
        (record.out.partition, record.out.offset, record.place.partition(":")[0]) for record in seen
    }
    assert len(record_paths) == before + len(fed), "no record has two paths"
    origins = [record.origin for record in seen]
    paths = [f"{record.out.partition}/{record.place.partition(':')[0]}" for record in seen]
    assert len(first_seen({}, paths, origins)) == before + len(fed), "each record is new once"
    lab.set_owner(TIER, None, stopped=True)
    lab.stop(TIER, 3)
    lab.stop(TIER, 4)


def _turn(lab: Lab, number: int) -> int | None:
    report = lab.report(TIER, number)
    return None if report is None or report.ways is None else report.ways.turn
