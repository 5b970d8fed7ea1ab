"""The broker's disk is full: the broker stops, queries and feed wait, and all continue by
themselves after there is space.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from hits.feed import hit
from sluice_ops.model.incarnation import State
from tests.lab import Lab, opened, until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
DISK = "400m"
"""The broker starts only with 256 MiB free."""
RATE = 50
OUTAGE_SECONDS = 100
"""Longer than a query's own failures are retried."""
TIERS = {"entry": "h1", "enrich": "h2", "outbound": "h3"}


class Feed(threading.Thread):
    """Writes numbered hits, and waits as long as the broker does not accept them."""

    def __init__(self, kafka: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "log_level": 2,
            }
        )
        self._stopped = threading.Event()
        self.fed = 0
        self.taken: set[str] = set()
        self.refused: list[KafkaError] = []

    def run(self) -> None:
        started = time.monotonic()
        while not self._stopped.wait(0.1):
            while self.fed < (time.monotonic() - started) * RATE:
                self.fed += 1
                hit_record = hit(self.fed, time.time())
                self._producer.produce(
                    "raw",
                    key=str(hit_record["user"]),
                    value=json.dumps(hit_record),
                    on_delivery=self._answered,
                )
            self._producer.poll(0)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.taken.add(str(json.loads(message.value() or b"{}")["id"]))
        else:
            self.refused.append(error)

    def end(self) -> None:
        self._stopped.set()
        self.join()
        assert self._producer.flush(120) == 0


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "home" / "data" / "kafka") as mounted:
        yield mounted


@pytest.fixture
def lab(disk: Path, tmp_path: Path) -> Iterator[Lab]:  # noqa: ARG001
    """Start a lab whose broker is on the mounted disk."""
    with opened(tmp_path / "home") as opened_lab:
        yield opened_lab


def fill(disk: Path) -> Path:
    """Fill the disk completely; return the filler file."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


def test_all_continue_by_themselves_when_there_is_space_again(lab: Lab, disk: Path) -> None:
    for tier, host in TIERS.items():
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    feed = Feed(lab.endpoints.kafka)
    feed.start()
    until("records flow", lambda: lab.delivered()[0] > 5 * RATE)

    filler, full = fill(disk), time.monotonic()
    log = lab.home / "logs" / "kafka.log"
    until(
        "the broker has stopped, and waits for space",
        lambda: "kafka waits for disk space" in log.read_text(),
        120,
    )
    print(f"the broker stopped {time.monotonic() - full:.0f} s after its disk was full")
    time.sleep(OUTAGE_SECONDS)
    stopped_at = lab.delivered()[0]
    waiting_records = feed.fed - len(feed.taken)
    assert waiting_records > RATE * OUTAGE_SECONDS / 2, "fed hits wait"

    filler.unlink()
    freed = time.monotonic()
    until("records flow again", lambda: lab.delivered()[0] > stopped_at, 180)
    print(
        f"records flowed {time.monotonic() - freed:.0f} s after there was space; {waiting_records} had waited"
    )
    feed.end()
    assert not feed.refused
    assert len(feed.taken) == feed.fed
    until("every hit is delivered", lambda: lab.delivered()[0] >= feed.fed)
    assert lab.delivered() == (feed.fed, feed.fed)
    assert {row[0] for row in lab.query("select id from delivered")} == feed.taken
    assert lab.query("select sum(rows_in - rows_out - filtered - quarantined - replays) from ledger") == [
        (0,)
    ]
    for tier in TIERS:
        report = lab.report(tier, 1)
        assert report is not None
        assert report.state is State.RUNNING, "the same driver runs on"
