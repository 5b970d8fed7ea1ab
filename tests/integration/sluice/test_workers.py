"""Workers are paused one by one on real Spark, in a realtime tier and in one with micro-batches;
the other workers go on.

Each worker is paused and resumed; then the last one is released.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Seen, Streams
from tests.integration.sluice.state_feed import ends
from tests.integration.sluice.worker_pauses import BUSY_FACTOR, gaps, pause_each_worker, release_last_worker
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.slow_sink_pipeline"
GAP_SECONDS = 1.5
"""The longest time without output of a partition while a realtime tier restarts on other workers,
on an idle machine.
"""
KNOWN_SECONDS = 2.0
"""The time after which the producer of `feeding` knows added partitions."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def record_of(number: int) -> dict[str, Any]:
    return {"n": number, "who": f"user-{number % 97}", "at": int(time.time() * 1000)}


@contextmanager
def feeding(lab: Lab, first: int = 0, partitions: Callable[[], int] = lambda: 4) -> Iterator[list[int]]:
    """Write 200 numbers a second from `first` on, to `partitions()` partitions; yield the list of
    written numbers.
    """
    settings = {
        "bootstrap.servers": lab.endpoints.kafka,
        "acks": "all",
        "topic.metadata.refresh.interval.ms": int(KNOWN_SECONDS * 500),
    }
    producer, stopped, fed = Producer(settings), threading.Event(), list[int]()

    def give() -> None:
        while not stopped.wait(0.1):
            for number in range(first + len(fed), first + len(fed) + 20):
                producer.produce("raw", json.dumps(record_of(number)), partition=number % partitions())
                fed.append(number)
            producer.poll(0)

    giver = threading.Thread(target=give)
    giver.start()
    try:
        yield fed
    finally:
        stopped.set()
        giver.join()
        producer.flush(30)


def test_paused_realtime_workers_hand_their_partitions_to_the_others(lab: Lab) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:

        def out() -> int:
            return sum(streams.bounds(["numbers"]).ends.values())

        with feeding(lab) as fed:
            lab.start_owner("enter", 1, "h1", slots=2)
            until("records come out", out)
            request_times = pause_each_worker(lab, "enter", 1, 2, out)
            release_last_worker(lab, "enter", 1, 2, out)
        until(
            "every number is out",
            lambda: len({(seen.out.partition, seen.out.offset) for seen in read_output(streams)}) == len(fed),
            60,
        )
        output_gaps = gaps(read_output(streams), request_times)
    print(f"without output after each pause and resumption: {output_gaps}")
    assert max(output_gaps) < GAP_SECONDS * BUSY_FACTOR


def test_paused_micro_batch_workers_store_nothing_twice(lab: Lab) -> None:
    def stored() -> int:
        return int(lab.query("select count(*) from stored")[0][0])

    with closing(Streams(lab.endpoints.kafka)) as streams:
        before = sum(streams.bounds(["raw"]).ends.values())
        with feeding(lab, first=before) as fed:
            lab.start_owner("store", 1, "h2", slots=2)
            until("records are stored", stored)
            pause_each_worker(lab, "store", 1, 2, stored)
            release_last_worker(lab, "store", 1, 2, stored)
        until(
            "every number is stored",
            lambda: stored() == before + len(fed) and ends(lab, "store") == streams.bounds(["numbers"]).ends,
        )
    assert lab.query("select count(distinct n) from stored") == [(before + len(fed),)]
    ((rows_in, replays),) = lab.query("select sum(rows_in), sum(replays) from ledger")
    assert rows_in == before + len(fed) + replays


def read_output(streams: Streams) -> list[Seen]:
    """Return all output records with their lineage."""
    return list(streams.since(["numbers"], streams.bounds(["numbers"]).ends, 0))
