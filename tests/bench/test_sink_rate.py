"""The rows a second that the tier `outbound` writes into PostgreSQL exactly once, with one and with
two workers, while nothing but its backlog bounds it.
"""

import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from hits.feed import hit
from sluice.api.lineage_header import headers
from sluice_ops.model.incarnation import State
from tests.bench.conftest import save
from tests.bench.short.shares import bound, by_part
from tests.lab import Lab, opened, until

pytestmark = pytest.mark.timeout(1800)

TIER, STREAM, PARTITIONS = "outbound", "enriched", 4
ROWS = "select coalesce(sum(rows_out), 0)::bigint from ledger where tier = 'outbound'"
LAST_COMMIT = "select extract(epoch from max(at))::float8 from ledger where tier = 'outbound'"
WARM_RECORDS, RECORDS = 150_000, 500_000
ROUNDS = 2
"""How often each number of workers is measured."""
WORKERS = (1, 2)
POOL = [json.dumps({**hit(number, 0.0), "id": "hit-%d"}) for number in range(5_000)]


class Backlog:
    """Writes hits as `enrich` does."""

    def __init__(self, kafka: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "acks": "all"})
        self.written = 0

    def grow(self, records: int) -> None:
        """Write so many hits; return when Kafka has all of them."""
        arrived = int(time.time() * 1000)
        for number in range(self.written, self.written + records):
            offset, partition = divmod(number, PARTITIONS)
            value = POOL[number % len(POOL)] % number
            campaign = f'{value[:-1]}, "campaign": "campaign-{number % 100}"}}'
            lineage = {
                "origin": f"{partition}:{offset}",
                "path": f"{partition}/{partition}",
                "from": f"hits/{partition}:{offset}",
                "by": "enrich/1",
                "t0": str(arrived),
            }
            self._producer.produce(
                STREAM, value=campaign, partition=partition, headers=headers(lineage, packed=True)
            )
            if number % 10_000 == 0:
                self._producer.poll(0)
        assert self._producer.flush(60) == 0
        self.written += records


def rows(lab: Lab) -> int:
    return int(lab.query(ROWS)[0][0])


def processor_seconds(lab: Lab) -> Counter[str]:
    """Return the processor seconds of the tier and of the services until now, by part."""
    units = [psutil.Process(process.pid) for process in lab.processes.values()]
    services = psutil.Process(int((lab.home / "run" / "supervisord.pid").read_text()))
    trees = [unit for unit in units if unit.is_running()]
    trees += services.children()
    return by_part([one for tree in trees for one in (tree, *tree.children(recursive=True))])


def measured(lab: Lab, backlog: Backlog, number: int, workers: int) -> dict[str, Any]:
    """Let a new incarnation with so many workers write a backlog; return its rate."""
    lab.start_owner(TIER, number, "h1", workers)
    lab.wait_for(TIER, number, State.RUNNING)
    backlog.grow(WARM_RECORDS)
    until("the warm-up is written", lambda: rows(lab) == backlog.written)
    backlog.grow(RECORDS)
    start, begun, before = time.time(), rows(lab), processor_seconds(lab)
    until("the backlog is written", lambda: rows(lab) == backlog.written)
    spent = processor_seconds(lab)
    (last,) = lab.query(LAST_COMMIT)[0]
    seconds = last - start
    shares = {name: round((spent[name] - before.get(name, 0.0)) / seconds, 2) for name in spent}
    shares["all"] = round(sum(shares.values()), 2)
    lab.stop(TIER, number)
    return {
        "workers": workers,
        "rows": backlog.written - begun,
        "rows_a_second": round((backlog.written - begun) / seconds),
        "processors": shares,
        "bound": bound(shares, psutil.cpu_count() or 1),
    }


def test_the_rate_of_a_sink(tmp_path: Path) -> None:
    with opened(tmp_path, "hits", partitions=PARTITIONS) as lab:
        backlog = Backlog(lab.endpoints.kafka)
        results = [
            measured(lab, backlog, number, workers)
            for number, workers in enumerate(WORKERS * ROUNDS, start=1)
        ]
        assert lab.delivered() == (backlog.written, backlog.written)
    rates = {
        workers: statistics.median(one["rows_a_second"] for one in results if one["workers"] == workers)
        for workers in WORKERS
    }
    save("sink-rate", {"rates": rates, "two to one": round(rates[2] / rates[1], 2), "runs": results})
