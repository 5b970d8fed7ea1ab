"""Partitions are added to a tier's outputs while it runs and is killed: replayed records take the
same path, on real Kafka.
"""

import json
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from sluice.api.marks import first_seen
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationSpec, State
from tests.integration.sluice.test_streams import Record, once, records
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.grouping_pipeline"
SPREAD = ("shuffled", "by-who", "everywhere")

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@contextmanager
def fed(lab: Lab) -> Iterator[list[int]]:
    """Feed about twenty numbers a second; yield the list of all numbers fed."""
    producer, stop = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"}), threading.Event()
    numbers: list[int] = []

    def feed() -> None:
        while not stop.wait(0.05):
            number = len(numbers)
            producer.produce(
                "raw", json.dumps({"n": number, "who": f"user-{number // 4 % 23}"}), partition=number % 4
            )
            producer.poll(0)
            numbers.append(number)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield numbers
    finally:
        stop.set()
        thread.join()
        assert producer.flush(30) == 0


def mark_retired(lab: Lab, tier: str, number: int) -> None:
    """Record that an incarnation's units are gone, as the controller does."""
    versioned = lab.channel.read(paths.incarnation(tier, number), IncarnationSpec)
    assert versioned is not None
    lab.channel.put(paths.incarnation(tier, number), versioned.value.model_copy(update={"retired": True}))


def new_origins(stream_records: list[Record]) -> list[str]:
    """Return the origins that a sink with totals would count as new."""
    paths = [f"{record.headers['path']}/{record.partition}" for record in stream_records]
    origins = [record.headers["origin"] for record in stream_records]
    return [origins[row] for row in first_seen({}, paths, origins)]


def test_no_record_takes_two_paths_and_keys_keep_their_order(lab: Lab) -> None:
    lab.start_owner("spread", 1, "h1")
    lab.wait_for("spread", 1, State.RUNNING)
    with fed(lab) as numbers:
        until("300 records are out", lambda: len(records(lab, "by-who")) > 300)
        admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
        for created in admin.create_partitions([NewPartitions(name, 5) for name in SPREAD]).values():
            created.result()
        lab.driver("spread", 1).send_signal(signal.SIGKILL)
        lab.stop("spread", 1)
        mark_retired(lab, "spread", 1)
        lab.start_owner("spread", 2, "h2")
        lab.wait_for("spread", 2, State.RUNNING)
        warning = until(
            "the driver reports the partitions that it does not use",
            lambda: (report := lab.report("spread", 2)) is not None and report.narrow,
        )
        assert "by-who has 5 partitions and 4 of them get records" in warning
        until(
            "the driver uses the new partitions",
            lambda: (
                (report := lab.report("spread", 2)) is not None
                and report.ways is not None
                and report.ways.turn == 1
            ),
        )
        until(
            "records go to the new partition",
            lambda: any(record.partition == 4 for record in records(lab, "by-who")),
        )
        lab.kill_executor("spread", 2)
        until("the query restarts in place", lambda: "restarts in place" in lab.log("spread", 2))
    until(
        "all numbers are out", lambda: all(len(once(records(lab, name))) >= len(numbers) for name in SPREAD)
    )
    report = lab.report("spread", 2)
    assert report is not None
    assert report.ways is not None
    since = report.ways.since
    lab.set_owner("spread", None)
    lab.stop("spread", 2)
    for name in SPREAD:
        stream_records = records(lab, name)
        assert len(stream_records) > len(once(stream_records)), "there were replays"
        assert sorted(new_origins(stream_records)) == sorted(
            {record.headers["origin"] for record in stream_records}
        ), f"{name}: each origin is new once"
        assert len({(record.headers["origin"], record.partition) for record in stream_records}) == len(
            once(stream_records)
        ), "and has one partition"
        later = {
            record.partition for record in stream_records if _offset(record) >= since[f"raw/{_raw(record)}"]
        }
        assert later == {0, 1, 2, 3, 4}
        assert 4 not in {
            record.partition for record in stream_records if _offset(record) < since[f"raw/{_raw(record)}"]
        }
    partitions_by_key = defaultdict[tuple[str, int], list[int]](list)
    for record in sorted(once(records(lab, "by-who")), key=_offset):
        partitions_by_key[record.value["who"], _raw(record)].append(record.partition)
    assert all(
        len(set(partitions)) <= 2 and partitions.count(partitions[0]) == partitions.index(partitions[-1])
        for partitions in partitions_by_key.values()
        if partitions[0] != partitions[-1]
    )
    assert any(partitions[0] != partitions[-1] for partitions in partitions_by_key.values()), (
        "some keys have moved"
    )


def _raw(record: Record) -> int:
    return int(record.headers["path"])


def _offset(record: Record) -> int:
    return int(record.headers["origin"].split(":")[1])
