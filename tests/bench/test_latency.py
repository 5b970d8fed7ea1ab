"""How long a record takes through three realtime tiers, from when it was due in `raw` to a consumer of the last stream."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from ops.model.incarnation import State
from tests.bench.conftest import keep
from tests.lab import HOSTS, ROOT, Lab, opened

pytestmark = pytest.mark.timeout(3600)

RATE = 1_000
SECONDS = float(os.environ.get("SLUICE_BENCH_SECONDS", "900"))
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
BARS = {"p50": 2.5, "p99": 25.0, "p99.9": 250.0}
"""Unit: milliseconds."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with opened(tmp_path_factory.mktemp("chain"), "tests.bench.chain") as lab:
        for host, tier in zip(HOSTS, ("first", "second", "third"), strict=True):
            lab.cold(tier, 1, host)
            lab.wait(tier, 1, State.RUNNING)
        yield lab


def spent(lab: Lab) -> float:
    """Return the processor seconds of all drivers and workers."""
    total = 0.0
    for process in lab.running.values():
        main = psutil.Process(process.pid)
        for each in (main, *main.children(recursive=True)):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def load(lab: Lab, seconds: float) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "tests.bench.load", lab.where.kafka, str(RATE), str(seconds)]
    return subprocess.Popen(words, env=lab.env, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_three_realtime_tiers(chain: Lab) -> None:
    load(chain, 90).communicate()  # what the JVMs compile, they have compiled
    consumer = Consumer({"bootstrap.servers": chain.where.kafka, "group.id": "bench", "fetch.wait.max.ms": 5, "fetch.min.bytes": 1})
    parts = [TopicPartition("three", number) for number in range(4)]
    consumer.assign([TopicPartition("three", part.partition, consumer.get_watermark_offsets(part)[1]) for part in parts])
    before, loading = spent(chain), load(chain, SECONDS)
    waits: dict[int, float] = {}
    end = time.monotonic() + SECONDS + 60
    while len(waits) < RATE * SECONDS and time.monotonic() < end:
        message = consumer.poll(0.1)  # one by one: a call for several waits for several
        if message is None or message.error():
            continue
        record = json.loads(message.value())
        waits.setdefault(record["id"], (time.time_ns() - record["sent"]) / 1e6)
    consumer.close()
    processor = spent(chain) - before
    sent = int(loading.communicate()[0])
    ordered = sorted(waits.values())
    figures = {name: round(ordered[int(len(ordered) * share)], 2) for name, share in SHARES.items()}
    keep(
        "latency",
        {
            "rate": RATE,
            "seconds": SECONDS,
            "sent": sent,
            "came": len(ordered),
            "milliseconds": {**figures, "most": round(ordered[-1], 1)},
            "processor_seconds_per_million": round(processor / len(ordered) * 1e6),
        },
    )
    assert len(ordered) == sent
    assert {name: figures[name] for name in BARS if figures[name] > BARS[name]} == {}
