"""A realtime tier of which next to nothing comes out: whoever goes on after it does not read all of it again. On real Kafka."""

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

PIPELINE_MODULE = "tests.integration.sluice.choosing"
QUIET = {"raw/1": 30, "raw/2": 60, "raw/3": 120}
"""So much is to be known of each partition of which nothing comes out."""
TURN = (0, 1, 2, 2, 3, 3, 3, 3)
"""The partitions of records that follow each other: what is told of one cannot hold for another."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def give(producer: Producer, number: int, partition: int, *, keep: bool, swell: bool = False) -> None:
    producer.produce("raw", json.dumps({"n": number, "keep": keep, "swell": swell}), partition=partition)


@contextmanager
def fed(lab: Lab) -> Iterator[Counter[int]]:
    """Give some twenty records a second, of which those in the first partition are kept; yield how many there are in each."""
    producer, stop = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"}), threading.Event()
    given = Counter[int]()

    def feed() -> None:
        while not stop.wait(0.05):
            number = given.total()
            partition = TURN[number % len(TURN)]
            given[partition] += 1
            give(producer, number, partition, keep=partition == 0)
            producer.poll(0)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield given
    finally:
        stop.set()
        thread.join()
        assert producer.flush(30) == 0


def settled(lab: Lab) -> dict[str, int]:
    """Return up to where the first incarnation says that all is out."""
    said = lab.report("choose", 1)
    return {} if said is None or said.settled is None else said.settled.positions


def test_a_tier_without_output_resumes_from_what_it_has_read(lab: Lab) -> None:
    lab.start_owner("choose", 1, "h1")
    lab.wait_for("choose", 1, State.RUNNING)
    with fed(lab) as given:
        until(
            "much was read of the quiet partitions",
            lambda: all(settled(lab).get(name, 0) > most for name, most in QUIET.items()),
        )
        lab.driver("choose", 1).send_signal(signal.SIGKILL)
        lab.stop("choose", 1)
        before = settled(lab)
        assert all(before[f"raw/{partition}"] <= count for partition, count in given.items()), (before, given)
        lab.start_owner("choose", 2, "h2")
        lab.wait_for("choose", 2, State.RUNNING)
        said = lab.report("choose", 2)
        assert said is not None
        assert said.started_from is not None
        assert all(said.started_from.positions[name] >= before[name] for name in QUIET)
        out = len(records(lab, "chosen"))
        until("it puts out what comes", lambda: len(records(lab, "chosen")) > out + QUIET["raw/1"])
    until(
        "all of it is out",
        lambda: len({record.value["n"] for record in records(lab, "chosen")}) == given[0],
        60,
    )
    lab.set_owner("choose", None)
    lab.stop("choose", 2)


def test_a_record_that_cannot_be_sent_ends_the_executor(lab: Lab) -> None:
    lab.start_owner("choose", 3, "h1")
    lab.wait_for("choose", 3, State.RUNNING)
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    give(producer, -1, 1, keep=True, swell=True)
    for number in range(20):
        give(producer, -2 - number, 1, keep=False)
    assert producer.flush(30) == 0
    until("it is said", lambda: "Kafka refused a record" in lab.log("choose", 3), 60)
