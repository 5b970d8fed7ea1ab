"""A realtime tier with almost no output: its next incarnation does not read all of the input again,
on real Kafka.
"""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from sluice_ops.model.incarnation import State
from tests.integration.sluice.test_streams import records
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.filtering_pipeline"
QUIET = {"raw/1": 30, "raw/2": 60, "raw/3": 120}
"""How far the driver must report each partition without output."""
PARTITION_PATTERN = (0, 1, 2, 2, 3, 3, 3, 3)
"""The partitions of successive records: each has another offset, so a value of one cannot hold for
another.
"""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def put(producer: Producer, number: int, partition: int, *, keep: bool, swell: bool = False) -> None:
    producer.produce("raw", json.dumps({"n": number, "keep": keep, "swell": swell}), partition=partition)


@contextmanager
def fed(lab: Lab) -> Iterator[Counter[int]]:
    """Write about twenty records a second, of which the tier keeps those in partition 0; yield the
    counts by partition.
    """
    producer, stop = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"}), threading.Event()
    counts = Counter[int]()

    def feed() -> None:
        while not stop.wait(0.05):
            number = counts.total()
            partition = PARTITION_PATTERN[number % len(PARTITION_PATTERN)]
            counts[partition] += 1
            put(producer, number, partition, keep=partition == 0)
            producer.poll(0)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join()
        assert producer.flush(30) == 0


def settled(lab: Lab) -> dict[str, int]:
    """Return the positions up to which the first incarnation reports all output as written."""
    report = lab.report("choose", 1)
    return {} if report is None or report.settled is None else report.settled.positions


def test_a_tier_without_output_resumes_from_what_it_has_read(lab: Lab) -> None:
    lab.start_owner("choose", 1, "h1")
    lab.wait_for("choose", 1, State.RUNNING)
    with fed(lab) as counts:
        until(
            "the quiet partitions are read far enough",
            lambda: all(settled(lab).get(name, 0) > most for name, most in QUIET.items()),
        )
        lab.driver("choose", 1).send_signal(signal.SIGKILL)
        lab.stop("choose", 1)
        before = settled(lab)
        assert all(before[f"raw/{partition}"] <= count for partition, count in counts.items()), (
            before,
            counts,
        )
        lab.start_owner("choose", 2, "h2")
        lab.wait_for("choose", 2, State.RUNNING)
        report = lab.report("choose", 2)
        assert report is not None
        assert report.started_from is not None
        assert all(report.started_from.positions[name] >= before[name] for name in QUIET)
        out = len(records(lab, "chosen"))
        until(
            "the next incarnation writes new records",
            lambda: len(records(lab, "chosen")) > out + QUIET["raw/1"],
        )
    until(
        "every kept record is out",
        lambda: len({record.value["n"] for record in records(lab, "chosen")}) == counts[0],
        60,
    )
    lab.set_owner("choose", None)
    lab.stop("choose", 2)


def test_a_record_that_cannot_be_sent_ends_the_executor(lab: Lab) -> None:
    lab.start_owner("choose", 3, "h1")
    lab.wait_for("choose", 3, State.RUNNING)
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    put(producer, -1, 1, keep=True, swell=True)
    for number in range(20):
        put(producer, -2 - number, 1, keep=False)
    assert producer.flush(30) == 0
    until(
        "the driver reports the refused record", lambda: "Kafka refused a record" in lab.log("choose", 3), 60
    )
