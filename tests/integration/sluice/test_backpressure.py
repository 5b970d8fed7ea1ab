"""A sink that is too slow, at twice the rate that it bears: what waits inside stays bounded, and each record is stored once."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import psycopg
import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Streams
from sluice_ops.controller.policies.backpressure import culprits_of
from sluice_ops.model import paths
from sluice_ops.model.assignment import driver_id, slot_id
from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord
from tests.integration.sluice.slow import BATCH, MARKS, PIPELINE
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.slow"
SLEEP, RATE = 0.003, 340
"""What each row of the slowed sink waits (seconds), which so bears some 170 a second, and how many come in each second."""
BOUND = MARKS.high.records + 6 * BATCH
"""What may wait inside: what is above the high watermark came in while nobody knew yet, in rounds that are a batch larger each time."""
pytestmark = pytest.mark.long
TIERS = {spec.name: spec for spec in PIPELINE.specs()}


class Feed(threading.Thread):
    """Puts numbers into the pipeline at a steady rate; three of four have one key."""

    def __init__(self, lab: Lab, first: int) -> None:
        super().__init__(daemon=True)
        self._first = first
        self._producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
        self._over = threading.Event()
        self.fed = 0

    def run(self) -> None:
        begun = time.monotonic()
        while not self._over.wait(0.05):
            for number in range(self.fed, int((time.monotonic() - begun) * RATE)):
                who = "hot" if number % 4 else f"user-{number % 97}"
                self._producer.produce(
                    "raw", json.dumps({"n": self._first + number, "who": who}), partition=number % 4
                )
                self.fed = number + 1
            self._producer.poll(0)

    def end(self) -> None:
        self._over.set()
        self.join()
        assert self._producer.flush(60) == 0


@dataclass
class Decider:
    """Plays the controller's part: holds gates back for whoever its drivers say is behind."""

    lab: Lab
    said: list[Pressure] = field(default_factory=list)
    held: int = 0
    """How often the gate was held back."""
    _there: str = ""

    def stand(self) -> None:
        """Be there, as far as drivers can see."""
        self._there = self.lab.channel.kazoo.create(
            f"{paths.LEADER}/test", ephemeral=True, makepath=True, sequence=True
        )

    def step(self) -> None:
        pressing = {}
        for tier in TIERS:
            read = self.lab.channel.read(paths.report(tier, 1), IncarnationReport)
            if read is not None and read.value.pressure is not None:
                pressing[tier] = read.value.pressure
                self.said.append(read.value.pressure)
        culprit = culprits_of(TIERS, pressing).get(TierName("enter"))
        read = self.lab.channel.read(paths.owner("enter"), OwnerRecord)
        assert read is not None
        if read.value.held_for != culprit:
            self.held += culprit is not None
            self.lab.set_owner("enter", 1, held_for=culprit)


@contextmanager
def slowed(lab: Lab) -> Iterator[None]:
    """Have the table take its time over each row."""
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
    """Return what the tiers' processes use. Unit: MiB."""
    found = 0
    for tier in TIERS:
        for identity in (driver_id(tier, 1), slot_id(tier, 1, 0)):
            process = psutil.Process(lab.processes[identity].pid)
            found += sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
    return found >> 20


def waits(lab: Lab, streams: Streams) -> int:
    """Return how many records are in the stream between the tiers, and not stored."""
    done = dict(lab.query("select distinct on (tier) tier, ends from ledger order by tier, batch desc")).get(
        "store", {}
    )
    return sum(end - done.get(place, 0) for place, end in streams.bounds(["numbers"]).ends.items())


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(180, marks=[pytest.mark.timeout(900)], id="3 minutes"),
        pytest.param(1800, marks=[pytest.mark.timeout(5400), pytest.mark.endurance], id="30 minutes"),
    ],
)
def test_entry_is_held_at_twice_the_sinks_rate_and_nothing_is_lost(lab: Lab, seconds: int) -> None:
    before = int(lab.query("select count(*) from stored")[0][0])
    streams, decider, feed = Streams(lab.endpoints.kafka), Decider(lab), Feed(lab, before)
    decider.stand()
    for tier, host in (("store", "h2"), ("enter", "h1")):
        if driver_id(tier, 1) not in lab.processes:
            lab.start_owner(tier, 1, host)
        lab.wait_caught_up(tier, 1)
    inside: list[int] = []
    used: list[int] = []
    with slowed(lab):
        feed.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            decider.step()
            inside.append(waits(lab, streams))
            used.append(memory(lab))
            time.sleep(0.5)
        feed.end()
        stored = int(lab.query("select count(*) from stored")[0][0]) - before
    half, last = used[len(used) // 4 : len(used) // 2], used[-len(used) // 4 :]
    figures = (
        f"fed {feed.fed}, stored {stored} while it was slow, held back {decider.held} times, most inside {max(inside)}, "
        f"MiB {sum(half) // len(half)} then {sum(last) // len(last)}"
    )
    print(figures, *{said.sentence for said in decider.said}, sep="\n")
    begun = time.monotonic()

    def everything() -> bool:
        decider.step()
        return bool(lab.query("select count(*) from stored")[0][0] >= before + feed.fed)

    until("all of it is stored", everything, seconds=300 + seconds)
    print(f"all is stored {time.monotonic() - begun:.0f} s after the sink was quick again")
    streams.close()
    total = before + feed.fed
    assert lab.query("select count(*), count(distinct n), min(n), max(n) from stored")[0] == (
        total,
        total,
        0,
        total - 1,
    )
    assert decider.held >= 1
    assert max(inside) <= BOUND, figures
    assert stored < feed.fed * 0.7, f"the sink was not slow: {figures}"
    assert sum(last) / len(last) < 1.15 * sum(half) / len(half), figures
    assert {said.stream for said in decider.said} == {"numbers"}, {said.sentence for said in decider.said}
    assert any("key 'hot' has" in said.hot and "is in partition" in said.hot for said in decider.said), (
        decider.said[-1].sentence
    )
    until("the entry flows again", lambda: not getattr(lab.report("enter", 1), "metered", True), seconds=60)
