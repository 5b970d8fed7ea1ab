"""A sink that gets twice the records that it can store: the records inside the pipeline stay
bounded, and each is stored once.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import psycopg
import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Streams
from sluice_ops.model.assignment import driver_id, slot_id
from tests.integration.sluice.slow_sink_pipeline import BATCH, MARKS, PIPELINE
from tests.lab import Lab, until
from tests.throttling import Throttle

PIPELINE_MODULE = "tests.integration.sluice.slow_sink_pipeline"
SLEEP, RATE = 0.003, 340
"""How long each row of the slowed sink takes (seconds), and the records fed per second; the sink
stores about 170.
"""
BOUND = MARKS.high.records + 3 * BATCH
"""The most records inside the pipeline: those above the high watermark came in before the throttle.
"""
SETTLE_SECONDS = 60.0
"""The time from the throttle until the lag stays below its high watermark."""
pytestmark = pytest.mark.long
TIERS = {spec.name: spec for spec in PIPELINE.specs()}


class Feed(threading.Thread):
    """Writes numbers into the pipeline at a steady rate; three of four have the same key."""

    def __init__(self, lab: Lab, first: int) -> None:
        super().__init__(daemon=True)
        self._first = first
        self._producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
        self._stopped = threading.Event()
        self.fed = 0

    def run(self) -> None:
        started = time.monotonic()
        while not self._stopped.wait(0.05):
            for number in range(self.fed, int((time.monotonic() - started) * RATE)):
                who = "hot" if number % 4 else f"user-{number % 97}"
                self._producer.produce(
                    "raw", json.dumps({"n": self._first + number, "who": who}), partition=number % 4
                )
                self.fed = number + 1
            self._producer.poll(0)

    def end(self) -> None:
        self._stopped.set()
        self.join()
        assert self._producer.flush(60) == 0


@contextmanager
def slow_sink(lab: Lab) -> Iterator[None]:
    """Slow down each insert into the table."""
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute(
            "create or replace function slowly() returns trigger language plpgsql as"
            f" $$ begin perform pg_sleep({SLEEP}); return new; end $$".encode()
        )
        connection.execute(
            "create trigger slowly before insert on stored for each row execute function slowly()"
        )
        try:
            yield
        finally:
            connection.execute("drop trigger slowly on stored")


def memory(lab: Lab) -> int:
    """Return the memory of the tiers' processes. Unit: MiB."""
    total = 0
    for tier in TIERS:
        for identity in (driver_id(tier, 1), slot_id(tier, 1, 0)):
            process = psutil.Process(lab.processes[identity].pid)
            total += sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))
    return total >> 20


def waiting_records(lab: Lab, streams: Streams) -> int:
    """Return the records in the stream between the tiers that are not stored."""
    stored_ends = dict(
        lab.query("select distinct on (tier) tier, ends from ledger order by tier, batch desc")
    ).get("store", {})
    return sum(end - stored_ends.get(place, 0) for place, end in streams.bounds(["numbers"]).ends.items())


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(180, marks=[pytest.mark.timeout(900)], id="3 minutes"),
        pytest.param(1800, marks=[pytest.mark.timeout(5400), pytest.mark.endurance], id="30 minutes"),
    ],
)
def test_entry_is_held_at_twice_the_sinks_rate_and_nothing_is_lost(lab: Lab, seconds: int) -> None:
    before = int(lab.query("select count(*) from stored")[0][0])
    streams, feed = Streams(lab.endpoints.kafka), Feed(lab, before)
    throttle = Throttle(lab, TIERS, "enter")
    throttle.register_as_leader()
    for tier, host in (("store", "h2"), ("enter", "h1")):
        if driver_id(tier, 1) not in lab.processes:
            lab.start_owner(tier, 1, host)
        lab.wait_caught_up(tier, 1)
    inside: list[int] = []
    settled: list[int] = []
    used: list[int] = []
    with slow_sink(lab):
        feed.start()
        end = time.monotonic() + seconds
        begun = end
        while time.monotonic() < end:
            throttle.step()
            begun = min(begun, time.monotonic()) if throttle.begun else end
            inside.append(waiting_records(lab, streams))
            settled += inside[-1:] if time.monotonic() > begun + SETTLE_SECONDS else []
            used.append(memory(lab))
            time.sleep(0.5)
        feed.end()
        stored = int(lab.query("select count(*) from stored")[0][0]) - before
        begun_times, orders = throttle.begun, throttle.written
    early, late = used[len(used) // 4 : len(used) // 2], used[-len(used) // 4 :]
    figures = (
        f"fed {feed.fed}, stored {stored} while the sink was slow, throttled {begun_times} times, "
        f"{orders} orders, most inside {max(inside)}, then {min(settled)} to {max(settled)}, "
        f"MiB {sum(early) // len(early)} then {sum(late) // len(late)}"
    )
    print(figures, *{pressure.sentence for pressure in throttle.pressures}, sep="\n")
    recovered = time.monotonic()

    def all_stored() -> bool:
        throttle.step()
        return bool(lab.query("select count(*) from stored")[0][0] >= before + feed.fed)

    until("every number is stored", all_stored, seconds=300 + seconds)
    print(f"every number is stored {time.monotonic() - recovered:.0f} s after the sink was fast again")
    streams.close()
    total = before + feed.fed
    assert lab.query("select count(*), count(distinct n), min(n), max(n) from stored")[0] == (
        total,
        total,
        0,
        total - 1,
    )
    assert begun_times == 1, f"the entry swings: {figures}"
    assert max(inside) <= BOUND, figures
    assert min(settled) > 0, f"the sink waits for records: {figures}"
    assert max(settled) < MARKS.high.records + BATCH, figures
    assert orders < seconds / 3, f"the channel is written too often: {figures}"
    assert stored < feed.fed * 0.7, f"the sink was not slow: {figures}"
    assert sum(late) / len(late) < 1.15 * sum(early) / len(early), figures
    assert {pressure.stream for pressure in throttle.pressures} == {"numbers"}, {
        pressure.sentence for pressure in throttle.pressures
    }
    assert any(
        "key 'hot' has" in pressure.hot and "is in partition" in pressure.hot
        for pressure in throttle.pressures
    ), throttle.pressures[-1].sentence

    def entry_flows() -> bool:
        throttle.step()
        return not getattr(lab.report("enter", 1), "metered", True)

    until("the entry flows again", entry_flows, seconds=120)
