"""Workers of a tier in micro-batches, one by one, on real Spark: paused and kept, and woken, while the others work on."""

import json
import threading
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from ops.model.assignment import slot_id
from ops.model.incarnation import State, WorkerReceipt
from pipeline.driver.streams import Streams
from tests.integration.pipeline.given import ends
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.pipeline.slow"
DRAINED_SECONDS, AWAKE_SECONDS = 2.0, 3.0
BUSY = 3.0
"""The promise holds on a machine of its own; one that does much else may take so many times as long."""
WORKERS = 3
ROUNDS = 3

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_a_worker_is_drained_kept_and_woken_while_the_others_work_on(lab: Lab) -> None:
    producer, over, given = Producer({"bootstrap.servers": lab.where.kafka, "acks": "all"}), threading.Event(), []

    def give() -> None:
        while not over.wait(0.1):
            for _ in range(20):
                number = len(given)
                headers = {"origin": f"{number % 4}:{number // 4}", "path": str(number % 4), "t0": str(int(time.time() * 1000))}
                value = json.dumps({"n": number, "who": f"user-{number % 7}"})
                producer.produce("numbers", value, partition=number % 4, headers={key: value.encode() for key, value in headers.items()})
                given.append(number)
            producer.poll(0)

    def stored() -> int:
        return int(lab.ask("select count(*) from stored")[0][0])

    def receipt(worker: str, *, paused: bool) -> WorkerReceipt:
        def told() -> WorkerReceipt | None:
            said = lab.report("store", 1)
            found = None if said is None else said.workers.get(worker)
            return found if found is not None and found.paused is paused else None

        return until(f"{worker} is {'paused' if paused else 'awake'}", told, 30)

    giver = threading.Thread(target=give)
    giver.start()
    try:
        lab.cold("store", 1, "h1", slots=WORKERS)
        until("records are stored", stored)
        took = []
        for number in range(ROUNDS):
            worker = slot_id("store", 1, number % WORKERS)
            begun = time.monotonic()
            lab.own("store", 1, paused_workers=(worker,))
            drained = receipt(worker, paused=True)
            told = time.monotonic() - begun
            assert drained.failed == 0
            assert drained.tasks > 0, "it had worked"
            assert lab.running[worker].poll() is None, "its slot is kept"
            before = stored()
            until("the others work on", lambda before=before: stored() > before + 100, 30)
            begun = time.monotonic()
            lab.own("store", 1)
            awake = receipt(worker, paused=False)
            took.append((told, drained.seconds, time.monotonic() - begun, awake.seconds))
        print(f"told, drained, told, awake: {took}")  # noqa: T201 — the figures that the docs have
        assert max(each[0] for each in took) < DRAINED_SECONDS * BUSY
        assert max(each[2] for each in took) < AWAKE_SECONDS * BUSY
    finally:
        over.set()
        giver.join()
        producer.flush(30)
    with closing(Streams(lab.where.kafka)) as streams:
        until("all is stored", lambda: ends(lab, "store") == streams.bounds(["numbers"]).ends)
    assert lab.ask("select count(*), count(distinct n) from stored") == [(len(given), len(given))]
    said = lab.report("store", 1)
    assert said is not None
    assert said.state is State.RUNNING
    assert said.flowed is None or said.flowed.restarts == 0, "its query went on all the time"
    assert lab.ask("select coalesce(sum(rows_in - rows_out), 0) from ledger") == [(0,)]
