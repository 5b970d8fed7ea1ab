"""A tier in micro-batches that writes a stream is moved and killed while records flow: each record
comes out.
"""

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Streams
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.incarnation import State
from sluice_ops.process.metrics_server import exporters
from tests.integration.sluice.test_streams import once, records
from tests.lab import Lab, until
from tests.scrape import scrape

PIPELINE_MODULE = "tests.integration.sluice.grouping_pipeline"
FIRST, ALL = 200, 600
FEW = range(FIRST, FIRST + 24, 4)
"""The first numbers of batches with one record in each partition."""
LONG_POLL_SECONDS = 0.45
"""Kafka's default for the wait of a fetch is 0.5 s."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def put(lab: Lab, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    for number in numbers:
        producer.produce("raw", json.dumps({"n": number, "who": f"user-{number % 7}"}), partition=number % 4)
    assert producer.flush(30) == 0


def seconds_of_a_batch(lab: Lab, exporter: Exporter, numbers: range) -> float:
    """Put few records, and return the mean time of the batches that process them."""

    def measured() -> tuple[float, float]:
        metrics = scrape(exporter, phase="addBatch")
        return metrics["sluice_tier_batch_phase_seconds_sum"], metrics[
            "sluice_tier_batch_phase_seconds_count"
        ]

    seconds, count = measured()
    put(lab, numbers)
    until("a batch has processed them", lambda: measured()[1] > count)
    later, more = measured()
    return (later - seconds) / (more - count)


@pytest.fixture
def chmods(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let drivers and executors note each call of `chmod` in a file."""
    notes, program = tmp_path / "notes", tmp_path / "bin" / "chmod"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nexec {shutil.which("chmod")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setitem(lab.env, "PATH", f"{program.parent}:{lab.env['PATH']}")
    return notes


def test_a_micro_batch_tier_is_moved_and_killed_without_loss(lab: Lab, chmods: Path) -> None:
    streams = Streams(lab.endpoints.kafka)
    lab.start_owner("spread", 1, "h1")
    lab.start_owner("tell", 1, "h2")
    put(lab, range(FIRST))
    until("the first records are out", lambda: sum(streams.bounds(["told"]).ends.values()) >= FIRST)

    (exporter,) = (each for each in exporters(lab.channel) if each.tier == "tell")
    until(
        "a batch has been measured",
        lambda: scrape(exporter, phase="addBatch").get("sluice_tier_batch_phase_seconds_count"),
    )
    assert scrape(exporter, phase="addBatch")["sluice_tier_batch_phase_seconds_sum"] < 60
    fastest = min(seconds_of_a_batch(lab, exporter, range(begin, begin + 4)) for begin in FEW)
    assert fastest < LONG_POLL_SECONDS, "tasks wait for Kafka's answer to a fetch at the end of a partition"
    until(
        "the pipeline's own counter has each record",
        lambda: scrape(exporter).get("sluice_own_told_numbers_total", 0) >= FIRST,
    )

    lab.cut("tell", 1, 2, "h3")
    put(lab, range(FEW.stop, 2 * FIRST))
    lab.wait_caught_up("tell", 2)
    lab.set_owner("tell", 2)
    lab.wait_for("tell", 1, State.STOPPED)
    lab.stop("tell", 1)

    lab.driver("tell", 2).kill()
    lab.stop("tell", 2)
    put(lab, range(2 * FIRST, ALL))
    lab.start_owner("tell", 3, "h1")
    until("each record is out", lambda: len(once(records(lab, "told"))) >= ALL)
    streams.close()
    output = once(records(lab, "told"))
    assert sorted(record.value["n"] for record in output) == list(range(ALL))
    assert all(record.value["words"] == f"number {record.value['n']}" for record in output)
    notes = chmods.read_text() if chmods.exists() else ""
    assert "offsets" not in notes, "each file of a checkpoint starts a process"
