"""How records get from tier to tier, on real Kafka: each grouping, several outputs, and a stream
that leads back.
"""

import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sluice.api.lineage_header import texts
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams, topic_and_number
from sluice_ops.model.incarnation import State
from sluice_ops.process.metrics_server import exporters
from tests.integration.sluice.grouping_pipeline import GROUPED, PIPELINE, ROUNDS
from tests.lab import Lab, until
from tests.repeating import repeated
from tests.scrape import scrape

PIPELINE_MODULE = "tests.integration.sluice.grouping_pipeline"
PARTITIONS = range(4)
NUMBERS = range(200)

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


@dataclass(frozen=True)
class Record:
    """One record of a stream."""

    partition: int
    value: dict[str, Any]
    headers: dict[str, str]
    """The headers, and the words of the lineage."""


def records(lab: Lab, stream: str) -> list[Record]:
    """Return all records of a stream; each partition's records are in order."""
    streams = Streams(lab.endpoints.kafka)
    ends = streams.bounds([stream]).ends
    streams.close()
    settings = {
        "bootstrap.servers": lab.endpoints.kafka,
        "group.id": "test",
        "enable.partition.eof": True,
        "log_level": 2,
    }
    consumer, stream_records = Consumer(settings), []
    consumer.assign([TopicPartition(*topic_and_number(place), 0) for place in ends])
    unread = {topic_and_number(place)[1] for place, end in ends.items() if end}
    while unread:
        for message in consumer.consume(500, timeout=1):
            if message.error() is not None:
                unread.discard(message.partition() or 0)
                continue
            if (message.offset() or 0) + 1 >= ends[
                f"{stream}/{message.partition()}"
            ]:  # a partition that keeps growing has no end of partition
                unread.discard(message.partition() or 0)
            stream_records.append(
                Record(
                    message.partition() or 0, json.loads(message.value() or b"{}"), texts(message.headers())
                )
            )
    consumer.close()
    return stream_records


@pytest.fixture(scope="module")
def spread(lab: Lab) -> Iterator[Callable[[str], list[Record]]]:
    """Run both tiers over the numbers; return a function that reads a stream after all numbers are
    through.
    """
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    for number in NUMBERS:
        producer.produce(
            "raw", json.dumps({"n": number, "who": f"user-{number % 7}"}), partition=number % len(PARTITIONS)
        )
    assert producer.flush(30) == 0
    lab.start_owner("spread", 1, "h1")
    lab.start_owner("halve", 1, "h2")
    streams = Streams(lab.endpoints.kafka)

    def count(*names: str) -> int:
        return sum(streams.bounds(names).ends.values())

    until("all numbers are spread", lambda: count("everywhere") >= len(NUMBERS) * len(PARTITIONS))
    until(
        "all numbers are halved", lambda: count("done", "back.quarantine", "local.quarantine") >= len(NUMBERS)
    )
    streams.close()
    yield lambda stream: records(lab, stream)
    for tier in ("spread", "halve"):
        lab.set_owner(tier, None)
        lab.stop(tier, 1)


def once(with_replays: list[Record]) -> list[Record]:
    """Drop replays, as the next tier does."""
    return list({record.headers["origin"]: record for record in with_replays}.values())


def origin(number: int) -> str:
    return f"{number % len(PARTITIONS)}:{number // len(PARTITIONS)}"


def test_local_keeps_the_partition(spread: Callable[[str], list[Record]]) -> None:
    local = once(spread("local"))
    assert sorted(record.value["n"] for record in local) == list(NUMBERS)
    assert all(record.partition == record.value["n"] % len(PARTITIONS) for record in local)
    assert all(record.headers["origin"] == origin(record.value["n"]) for record in local)


def test_shuffle_is_even_and_the_same_for_replays(spread: Callable[[str], list[Record]]) -> None:
    shuffled = spread("shuffled")
    assert len(once(shuffled)) == len(NUMBERS)
    shares = Counter(record.partition for record in once(shuffled))
    assert all(len(NUMBERS) / 8 < shares[partition] < len(NUMBERS) / 2 for partition in PARTITIONS)
    assert len({(record.headers["origin"], record.partition) for record in shuffled}) == len(NUMBERS)
    partition_pairs = {(record.value["n"] % len(PARTITIONS), record.partition) for record in shuffled}
    assert len(partition_pairs) == len(PARTITIONS) ** 2, (
        "every input partition reaches every output partition"
    )


def test_fields_keep_equal_values_together_and_in_order(spread: Callable[[str], list[Record]]) -> None:
    by_who = once(spread("by-who"))
    places = {(record.value["who"], record.partition) for record in by_who}
    assert len(places) == len({who for who, _ in places}) == 7
    assert len({partition for _, partition in places}) > 1
    for who, came_from in itertools.product({who for who, _ in places}, PARTITIONS):
        numbers = [
            number
            for record in by_who
            if record.value["who"] == who and (number := record.value["n"]) % len(PARTITIONS) == came_from
        ]
        assert numbers == sorted(numbers), f"{who} from partition {came_from}"


def test_all_gives_each_partition_a_copy_with_its_own_origin(
    spread: Callable[[str], list[Record]],
) -> None:
    copies = once(spread("everywhere"))
    assert Counter(record.partition for record in copies) == dict.fromkeys(PARTITIONS, len(NUMBERS))
    assert {(record.headers["origin"], record.partition) for record in copies} == {
        (f"{origin(number)}:{partition}", partition) for number in NUMBERS for partition in PARTITIONS
    }


def test_global_is_one_partition_in_order(spread: Callable[[str], list[Record]]) -> None:
    one_partition = once(spread("one"))
    assert {record.partition for record in one_partition} == {0}
    for partition in PARTITIONS:
        numbers = [
            record.value["n"] for record in one_partition if record.value["n"] % len(PARTITIONS) == partition
        ]
        assert numbers == [number for number in NUMBERS if number % len(PARTITIONS) == partition]


def test_direct_grouping_quarantines_records_with_no_such_destination(
    spread: Callable[[str], list[Record]],
) -> None:
    direct = once(spread("said"))
    assert sorted(record.value["n"] for record in direct) == [
        number for number in NUMBERS if number % 5 in PARTITIONS
    ]
    assert all(record.partition == record.value["n"] % 5 for record in direct)
    bad = once(spread("raw.quarantine"))
    assert sorted(record.value["n"] for record in bad) == [
        number for number in NUMBERS if number % 5 == len(PARTITIONS)
    ]
    assert {record.headers["reason"] for record in bad} == {
        "said has the partitions 0 to 3, but the record names partition 4"
    }


def test_records_that_come_back_are_counted_and_limited(spread: Callable[[str], list[Record]]) -> None:
    turns = {number: math.floor(math.log2(number)) if number > 1 else 0 for number in NUMBERS}
    names = {origin(number) + "&back" * count: count for number, count in turns.items()}
    done = {record.headers["origin"]: record.value["rounds"] for record in spread("done")}
    assert done == {name: count for name, count in names.items() if count <= ROUNDS}
    reasons = {record.headers["origin"]: record.headers["reason"] for record in spread("back.quarantine")}
    assert reasons.keys() == {
        origin(number) + "&back" * ROUNDS for number, count in turns.items() if count > ROUNDS
    }
    assert set(reasons.values()) == {f"the record came back on back {ROUNDS} times, which is the limit"}


def test_a_driver_shows_its_flow_to_prometheus(lab: Lab, spread: Callable[[str], list[Record]]) -> None:
    del spread
    exporter_of = {exporter.tier: exporter for exporter in exporters(lab.channel)}
    assert {tier: (exporter.incarnation, exporter.host) for tier, exporter in exporter_of.items()} == {
        "spread": (1, "h1"),
        "halve": (1, "h2"),
    }
    until(
        "spread reports no lag",
        lambda: scrape(exporter_of["spread"], stream="raw").get("sluice_tier_lag_records") == 0,
    )
    assert scrape(exporter_of["spread"], state="running")["sluice_driver_state"] == 1
    metrics = scrape(exporter_of["spread"])
    assert metrics["sluice_driver_owner"] == 1
    assert time.time() - 300 < metrics["sluice_tier_last_output_timestamp_seconds"] < time.time()
    assert "sluice_tier_marks" not in metrics, "a tier without a sink has no marks"
    assert scrape(exporter_of["spread"], to="said")["sluice_tier_records_out_total"] <= 160


def test_every_stream_has_every_number(spread: Callable[[str], list[Record]]) -> None:
    counts = {name: len(once(spread(name))) for name in GROUPED}
    assert counts == {name: len(NUMBERS) for name in GROUPED} | {"everywhere": 800, "said": 160}


def arrivals(lab: Lab) -> dict[str, float]:
    """Return when each record arrived in `raw`, by its name. Unit: epoch seconds."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        bounds = streams.bounds(["raw"])
        messages = [
            message
            for place, end in bounds.ends.items()
            for message in streams.messages(place, bounds.oldest[place], end)
        ]
    return {
        f"{message.partition()}:{message.offset()}": message.timestamp()[1] / 1000 for message in messages
    }


def test_a_loop_is_complete_when_its_records_have_left_it(
    lab: Lab, spread: Callable[[str], list[Record]]
) -> None:
    """The loop's tier is killed and handed over meanwhile."""
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    numbers = itertools.count(len(NUMBERS))
    looks: list[tuple[float, set[str]]] = []
    lost: list[object] = []

    def give() -> None:
        for number in itertools.islice(numbers, 10):
            value = json.dumps({"n": number, "who": f"user-{number % 7}"})
            producer.produce("raw", value, partition=number % len(PARTITIONS))
        assert producer.flush(30) == 0

    def look() -> None:
        lost.extend(auditor.check())
        complete = auditor.metrics.complete.get("halve")
        if complete is not None:
            out = (*spread("done"), *spread("back.quarantine"))
            looks.append((complete, {record.headers["origin"].partition("&")[0] for record in out}))

    tiers = (PIPELINE.tier("spread"), PIPELINE.tier("halve"))
    with closing(Auditor(tiers, lab.endpoints)) as auditor, repeated(look, every=0.5):
        with repeated(give, every=0.5):
            until("the loop has a time", lambda: looks)
            lab.driver("halve", 1).kill()
            lab.stop("halve", 1)
            lab.start_owner("halve", 2, "h1")
            lab.wait_for("halve", 2, State.RUNNING)
            lab.prepare("halve", 2, 3, "h3")
            lab.hand_over("halve", 2, 3)
        last = time.time()
        until("the loop is complete", lambda: looks[-1][0] > last)
    lab.set_owner("halve", None)
    lab.stop("halve", 3)
    arrived = arrivals(lab)
    assert lost == []
    for complete, out in looks:
        assert {name for name, at in arrived.items() if at < complete} <= out
    assert looks[-1][1] == arrived.keys()
