"""Replays beside live records: how long these take, what is dropped, a kill in the middle, holes
that are filled, bad records mended.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Seen, Streams, topic_and_number
from sluice.replay.pace import p99
from tests.integration.sluice.again import BAD, CORRECTED
from tests.lab import DEADLINE_SECONDS, ROOT, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.again"
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
RATE, REPLAYED = 100, 300
"""Live records per second, and those that a replay may take besides."""
WARM_SECONDS, CALM_SECONDS = 25, 30
LEAST = {"numbers": 0.05, "stored": 2.5}
"""What is usual is at least this, in seconds: less is not told from the unrest of two cores that
others use too; a batch of a table begins every two seconds.
"""
BAD_PARTITION = 3
"""The first of the bad numbers is 7, and there are four partitions."""
TIERS = {"enter": "h1", "store": "h2", "tally": "h3"}


class Feed(threading.Thread):
    """Puts numbers into the pipeline at a steady rate."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all", "linger.ms": 0})
        self._over = threading.Event()
        self.fed = 0

    def run(self) -> None:
        begun = time.monotonic()
        while not self._over.wait(0.005):
            for number in range(self.fed, int((time.monotonic() - begun) * RATE)):
                self._producer.produce(
                    "raw", json.dumps({"n": number, "at": int(time.time() * 1000)}), partition=number % 4
                )
                self.fed = number + 1
            self._producer.poll(0)

    def end(self) -> int:
        self._over.set()
        self.join()
        assert self._producer.flush(60) == 0
        return self.fed


@dataclass
class World:
    lab: Lab
    streams: Streams
    feed: Feed
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextmanager
    def window(self, name: str) -> Iterator[None]:
        begun = time.time()
        yield
        self.windows[name] = begun, time.time()

    def begin(self, *words: str, mended: bool = False) -> "subprocess.Popen[str]":
        """Start a replay as `sluice replay` does."""
        command = ["nice", "-n", "10", sys.executable, "-m", "sluice.replay", *words, "--json"]
        env = self.lab.env | ({CORRECTED: "1"} if mended else {})
        return subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def replay(self, *words: str, mended: bool = False) -> dict[str, Any]:
        """Replay to the end."""
        with self.begin(*words, mended=mended) as process:
            out, err = process.communicate(timeout=1200)  # on a busy machine it gives way
        assert process.returncode == 0, err
        return dict(json.loads(out))

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.lab.endpoints.postgres) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def killed(self, *words: str, after: int) -> int:
        """Start a replay, kill it in the middle, and return its number."""
        with self.begin(*words) as process:
            begun = "select max(number) from replays where rows_in > 0 and ended_at is null"
            number = int(until("it has begun", lambda: self.lab.query(begun)[0][0]))
            taken = "select rows_in from replays where number = %s"
            until("it is in the middle", lambda: self.ask(taken, number)[0][0] >= after, seconds=600)
            os.kill(process.pid, signal.SIGKILL)
        ((left,),) = self.ask(
            "select count(*) from replays where number = %s and ended_at is null and done <> ends", number
        )
        assert left, "it was killed when it was done"
        return number

    def written(self) -> list[Seen]:
        """Read all of the stream between the tiers."""
        bounds = self.streams.bounds(["numbers"])
        return list(
            self.streams.read(
                {topic_and_number(place): offset for place, offset in bounds.oldest.items()}, bounds.ends
            )
        )

    def stored(self) -> tuple[int, int]:
        return self.lab.query("select count(*), count(distinct n) from stored")[0]

    def summed(self) -> tuple[int, int]:
        numbers, total = self.lab.query("select sum(numbers), sum(total) from sums")[0]
        return int(numbers), int(total)

    def stored_before(self, number: int) -> int:
        return int(self.ask("select count(*) from stored where n < %s", number)[0][0])

    def judged(self, ends: dict[str, int]) -> bool:
        """Tell whether the audit has found what came out of all that was put in before
        these ends.
        """
        found = dict(self.lab.query("select partition, judged from audit where tier = 'enter'"))
        return all(found.get(place, 0) >= end for place, end in ends.items())

    def audited(self) -> bool:
        """Tell whether the audit has looked at all that has come out, and at every batch; what it
        misses is among the losses then.
        """
        ends = self.streams.bounds(["numbers", "raw.quarantine"]).ends
        there = {("enter", *put) for put in ends.items()} | set(
            self.lab.query("select tier, 'ledger', max(batch) from ledger group by tier")
        )
        return there <= set(self.lab.query("select tier, source, position from audit_read"))

    def dropped(self, tier: str) -> int:
        return int(
            self.ask("select coalesce(sum(replays), 0) from ledger where tier = %s and replay is null", tier)[
                0
            ][0]
        )

    def p99(self, name: str) -> dict[str, float]:
        """Return what live records took that came in a window."""
        begun, over = self.windows[name]
        live = [
            seen
            for seen in self.written()
            if seen.out.by == "enter/1" and seen.arrived and begun <= seen.arrived / 1000 <= over
        ]
        took = (
            "select extract(epoch from written_at)::float8 - at / 1000.0::float8 from stored where at "
            "between %s and %s"
        )
        rows = self.ask(took, begun * 1000, over * 1000)
        waits = [(seen.out.at - (seen.arrived or 0)) / 1000 for seen in live]
        return {"numbers": p99(waits), "stored": p99([float(row[0]) for row in rows])}


@pytest.fixture(scope="module")
def world(lab: Lab) -> Iterator[World]:
    with subprocess.Popen(
        [sys.executable, "-m", "sluice.audit"], env=lab.env, cwd=ROOT, stderr=subprocess.DEVNULL
    ) as audit:
        until("the audit looks", lambda: lab.query("select count(*) from audit_read")[0][0])
        for tier, host in TIERS.items():
            lab.start_owner(tier, 1, host)
        for tier in TIERS:
            lab.wait_caught_up(tier, 1)
        made = World(lab, Streams(lab.endpoints.kafka), Feed(lab))
        made.feed.start()
        yield made
        made.feed.end()
        made.streams.close()
        audit.terminate()


def good(fed: int) -> list[int]:
    return [number for number in range(fed) if number % BAD != 7]


def test_a_replay_at_most_doubles_live_latency_and_survives_a_kill(world: World) -> None:
    until("there is something to replay", lambda: world.feed.fed > RATE * WARM_SECONDS)
    warm, there = datetime.fromtimestamp(time.time(), UTC).isoformat(), world.streams.bounds(["raw"]).ends
    with world.window("before"):
        time.sleep(CALM_SECONDS)
    until("the audit comes after", lambda: world.judged(there))
    words = ("enter", "--to", warm, "--rate", str(REPLAYED))
    with world.window("replay"):
        number = world.killed(*words, after=300)
        said = world.replay("--resume", str(number))
    assert said["left"] == 0
    assert said["put"] >= RATE * WARM_SECONDS * 0.9
    with world.window("after"):
        time.sleep(CALM_SECONDS)
    fed = world.feed.fed
    until("what came last is in the table", lambda: world.stored_before(fed) == len(good(fed)))
    before, beside, after = (world.p99(name) for name in ("before", "replay", "after"))
    calm = {
        place: max(before[place], after[place]) for place in before
    }  # others use the machine too, now more and now less
    print(f"p99 of live records: before {before}, beside a replay {beside}, after {after}; {said}")
    put = sum(seen.out.tier == f"enter.replay-{number}" for seen in world.written())
    assert put >= said["put"], "what was in the middle when it was killed was put twice"
    for tier in ("store", "tally"):
        until(f"{tier} has dropped all of it", lambda tier=tier: world.dropped(tier) == put)
    assert world.stored()[0] == world.stored()[1]
    assert {
        place: beside[place] for place in calm if beside[place] > 2 * max(LEAST[place], calm[place])
    } == {}, (calm, beside)


def test_holes_of_a_table_are_filled_by_a_replay_of_its_own_tier(world: World) -> None:
    until("enough is stored", lambda: world.stored()[0] > 8000)
    before, sums = int(world.lab.query("select max(n) from stored")[0][0]), world.dropped("store")
    holes = good(before)[
        4000:6000:10
    ]  # none of what was put twice just now: the audit would look for it, and find it lost
    with psycopg.connect(world.lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("delete from stored where n = any(%s)", (holes,))
    number = world.killed("store", "--rate", "2000", after=300)
    said = world.replay("--resume", str(number))
    assert (said["left"], said["put"]) == (0, len(holes))
    ((rows_in, rows_out, replays),) = world.ask(
        "select sum(rows_in), sum(rows_out), sum(replays) from ledger where tier = 'store' and replay = %s",
        number,
    )
    assert (rows_out, replays) == (said["put"], said["dropped"])
    assert rows_in == rows_out + replays
    assert world.ask("select count(*) from stored where n = any(%s)", holes) == [(len(holes),)]
    assert world.stored()[0] == world.stored()[1]
    assert world.dropped("store") == sums, "nothing of it went through the live tier"


def test_what_was_bad_is_taken_up_once_however_often_it_is_asked_for(world: World) -> None:
    until("some are bad", lambda: world.feed.fed > 20 * BAD)
    fed = world.feed.end()
    until("all good ones are stored", lambda: world.stored() == (len(good(fed)), len(good(fed))))
    until("the audit comes after", lambda: world.judged({f"raw/{BAD_PARTITION}": fed // 8}))
    said = world.replay("enter", "--to", f"{BAD_PARTITION}:{fed // 8}", "--rate", "2000", mended=True)
    assert said["quarantined"] > 0, "what is in quarantine is left out of a replay of the stream"
    said = world.replay("enter", "--quarantine", "--rate", "500", mended=True)
    assert said["put"] == fed - len(good(fed))
    until("all are stored", lambda: world.stored() == (fed, fed))
    until("and summed", lambda: world.summed() == (fed, sum(range(fed))))
    assert world.replay("enter", "--quarantine", "--dry-run")["left"] == 0
    again = world.replay("enter", "--quarantine", "--from", "2020-01-01", "--rate", "500", mended=True)
    assert again["put"] == said["put"]
    put = sum(seen.out.tier.startswith("enter.replay-") for seen in world.written())
    until("all of it is seen", lambda: world.dropped("tally") == put - said["put"])
    assert world.stored() == (fed, fed)
    assert world.summed() == (fed, sum(range(fed)))
    assert (
        world.lab.query(
            "select tier, batch from ledger where rows_in <> rows_out + filtered + quarantined + replays + "
            "late + lost"
        )
        == []
    )
    until("the audit has seen all of it", world.audited)
    assert world.lab.query("select sentence from losses") == []


def test_what_can_do_nothing_is_refused_and_what_is_cancelled_stays_so(world: World) -> None:
    with world.begin("tally") as process:
        assert "sluice replay tally --quarantine" in process.communicate()[1]
    assert process.returncode == 1
    with world.begin("store", "--rate", "1") as process:
        number = until(
            "it has begun",
            lambda: world.lab.query("select max(number) from replays where ended_at is null")[0][0],
        )
        world.replay("--cancel", str(number))
        assert "was cancelled" in process.communicate(timeout=DEADLINE_SECONDS)[1]
    with world.begin("--resume", str(number)) as process:
        assert f"replay {number} was cancelled" in process.communicate()[1]
