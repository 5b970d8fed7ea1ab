"""A driver that ZooKeeper does not reach, while Kafka does, writes no stream beside its successor: it is told where it writes.

Where ZooKeeper is away for all of them, nobody has taken over, and records flow on.
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
from tests.integration.sluice.test_frozen import FENCED, processes, wake, without_zookeeper
from tests.integration.sluice.test_workers import everything, giving
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.outliving"
TIER = "enter"
SOON = 5.0
"""An executor hears of it within milliseconds; a busy machine takes longer."""
AWAY, BACK = "ZooKeeper does not answer; the driver continues", "ZooKeeper answers again"
"""What a driver logs of ZooKeeper."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def link(lab: Lab) -> Iterator[Link]:
    """A way to ZooKeeper that only one driver takes."""
    made = Link(int(lab.endpoints.zookeeper.partition("/")[0].rpartition(":")[2]))
    yield made
    made.close()


def over(lab: Lab, link: Link) -> str:
    """Return ZooKeeper's address by that way."""
    _, slash, root = lab.endpoints.zookeeper.partition("/")
    return f"127.0.0.1:{link.port}{slash}{root}"


def claims(lab: Lab) -> list[tuple[float, Writers]]:
    """Return what the control topic says of the tier, and when the broker took it. Unit: epoch ms."""
    consumer = Consumer(
        {"bootstrap.servers": lab.endpoints.kafka, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        place = TopicPartition(CONTROL_TOPIC, 0, 0)
        end = consumer.get_watermark_offsets(place, timeout=10)[1]
        consumer.assign([place])
        found = consumer.consume(end, timeout=10)
    return [
        (each.timestamp()[1], Writers.model_validate_json(each.value()))
        for each in found
        if each.key() == TIER.encode()
    ]


def put_by(streams: Streams, number: int) -> list[Seen]:
    return [each for each in everything(streams) if each.out.by.partition(".")[0] == f"{TIER}/{number}"]


def put_since(streams: Streams, at: int) -> bool:
    """Tell whether a record was put out since then. Unit: epoch ms."""
    return any(streams.since(["numbers"], streams.bounds(["numbers"]).ends, at))


def grows(streams: Streams) -> Callable[[], bool]:
    """Tell, when asked later, whether more has come out."""
    before = sum(streams.bounds(["numbers"]).ends.values())
    return lambda: sum(streams.bounds(["numbers"]).ends.values()) > before


def test_it_stops_as_its_successor_begins_and_not_while_nobody_can(lab: Lab, link: Link) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        with giving(lab) as given:
            lab.set_owner(TIER, 1)
            lab.start(TIER, 1, "h1", zookeeper=over(lab, link))
            lab.wait_for(TIER, 1, State.RUNNING)
            until("records come out", grows(streams))
            with without_zookeeper(lab):
                longer = int((time.time() + VALID_SECONDS + SOON) * 1000)
                until(
                    "records flow for longer than a claim is valid",
                    lambda: put_since(streams, longer),
                    VALID_SECONDS + 2 * SOON,
                )
            until("ZooKeeper is back", lambda: lab.channel.connected)
            until(
                "the driver has heard so",
                lambda: lab.log(TIER, 1).count(BACK) == lab.log(TIER, 1).count(AWAY) > 0,
            )
            before = lab.log(TIER, 1).count(AWAY)
            link.cut()
            until("the driver is cut off", lambda: lab.log(TIER, 1).count(AWAY) > before)
            until("it writes on, for nobody has taken over", grows(streams), SOON)
            lab.start_owner(TIER, 2, "h2")
            lab.wait_for(TIER, 2, State.RUNNING)
            assert lab.driver(TIER, 1).wait(SOON + VALID_SECONDS) == FENCED, lab.log(TIER, 1)[-3000:]
            assert f'"{CONTROL_TOPIC}" names 2' in lab.log(TIER, 1)
        until(
            "all is out",
            lambda: (
                len({(each.out.partition, each.out.offset) for each in everything(streams)}) == len(given)
            ),
        )
        claimed = next(at for at, writers in claims(lab) if writers.members == (2,))
        late = max(each.out.at for each in put_by(streams, 1)) - claimed
        assert put_by(streams, 2)
    print(f"the last record of the one that was cut off: {late} ms after its successor's claim")
    assert late < SOON * 1000
    lab.set_owner(TIER, None, stopped=True)
    lab.stop(TIER, 1)
    lab.stop(TIER, 2)


@pytest.mark.long
def test_one_that_stood_still_puts_nothing_by_old_partition_counts(lab: Lab, link: Link) -> None:
    """Its successor uses partitions that were added: whoever read no more for a minute must not go on (decision record 0040)."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        before = len({(each.out.partition, each.out.offset) for each in everything(streams)})
        with giving(lab, first=before) as given:
            lab.set_owner(TIER, 3)
            lab.start(TIER, 3, "h1", zookeeper=over(lab, link))
            lab.wait_for(TIER, 3, State.RUNNING)
            until("it puts records", lambda: put_by(streams, 3))
            link.cut()
            frozen: list[psutil.Process] = processes(lab, TIER, 3)
            for each in frozen:
                each.suspend()
            try:
                lab.start_owner(TIER, 4, "h2")
                lab.wait_for(TIER, 4, State.RUNNING)
                admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
                admin.create_partitions([NewPartitions("numbers", 5)])["numbers"].result()
                until("it uses the one that was added", lambda: _turn(lab, 4) == 1)
                streams.renew()
                until(
                    "records are in it",
                    lambda: any(each.place.startswith("numbers/4:") for each in put_by(streams, 4)),
                )
                thawed = time.time() * 1000
            finally:
                wake(frozen)
            assert lab.driver(TIER, 3).wait(VALID_SECONDS + 40) == FENCED, lab.log(TIER, 3)[-3000:]
        until(
            "all is out",
            lambda: (
                len({(each.out.partition, each.out.offset) for each in everything(streams)})
                == before + len(given)
            ),
        )
        seen = everything(streams)
    late = [each for each in seen if each.out.by.startswith(f"{TIER}/3") and each.out.at > thawed]
    print(f"put after it was woken: {len(late)}")
    ways = {(each.out.partition, each.out.offset, each.place.partition(":")[0]) for each in seen}
    assert len(ways) == before + len(given), "no record goes two ways"
    origins = [each.origin for each in seen]
    paths = [f"{each.out.partition}/{each.place.partition(':')[0]}" for each in seen]
    assert len(first_seen({}, paths, origins)) == before + len(given), "and each is new once"
    lab.set_owner(TIER, None, stopped=True)
    lab.stop(TIER, 3)
    lab.stop(TIER, 4)


def _turn(lab: Lab, number: int) -> int | None:
    report = lab.report(TIER, number)
    return None if report is None or report.ways is None else report.ways.turn
