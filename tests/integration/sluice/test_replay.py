"""Replays beside live records: live latency, dropped replays, a kill in the middle, filled gaps,
and reprocessed bad records.
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
from tests.integration.sluice.replay_pipeline import BAD, CORRECTED
from tests.lab import DEADLINE_SECONDS, ROOT, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.replay_pipeline"
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
RATE, REPLAYED = 100, 300
"""Live records per second, and the largest rate of a replay."""
WARM_SECONDS, CALM_SECONDS = 25, 30
USUAL_SECONDS = {"numbers": 0.05, "stored": 2.5}
"""Smaller latencies count as this many seconds.

Two shared cores cause as much variation, and a batch of the table begins every two seconds.
"""
BAD_PARTITION = 3
"""The partition of the bad numbers: the first is 7, and there are four partitions."""
TIERS = {"enter": "h1", "store": "h2", "tally": "h3"}


class Feed(threading.Thread):
    """Writes numbers into the pipeline at a steady rate."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all", "linger.ms": 0})
        self._stopped = threading.Event()
        self.fed = 0

    def run(self) -> None:
        started = time.monotonic()
        while not self._stopped.wait(0.005):
            for number in range(self.fed, int((time.monotonic() - started) * RATE)):
                self._producer.produce(
                    "raw", json.dumps({"n": number, "at": int(time.time() * 1000)}), partition=number % 4
                )
                self.fed = number + 1
            self._producer.poll(0)

    def end(self) -> int:
        self._stopped.set()
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
        started = time.time()
        yield
        self.windows[name] = started, time.time()

    def start_replay(self, *words: str, corrected: bool = False) -> "subprocess.Popen[str]":
        """Start a replay as `sluice replay` does; with `corrected`, with code that accepts all
        numbers.
        """
        command = ["nice", "-n", "10", sys.executable, "-m", "sluice.replay", *words, "--json"]
        env = self.lab.env | ({CORRECTED: "1"} if corrected else {})
        return subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def replay(self, *words: str, corrected: bool = False) -> dict[str, Any]:
        """Replay until the end; return the result."""
        with self.start_replay(*words, corrected=corrected) as process:
            out, err = process.communicate(timeout=1200)  # on a busy machine the replay slows down
        assert process.returncode == 0, err
        return dict(json.loads(out))

    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.lab.endpoints.postgres) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def replay_killed(self, *words: str, after: int) -> int:
        """Start a replay, kill it in the middle, and return its number."""
        with self.start_replay(*words) as process:
            newest = "select max(number) from replays where rows_in > 0 and ended_at is null"
            number = int(until("the replay has begun", lambda: self.lab.query(newest)[0][0]))
            rows_read = "select rows_in from replays where number = %s"
            until(
                "the replay is in the middle",
                lambda: self.query(rows_read, number)[0][0] >= after,
                seconds=600,
            )
            os.kill(process.pid, signal.SIGKILL)
        ((unfinished,),) = self.query(
            "select count(*) from replays where number = %s and ended_at is null and done <> ends", number
        )
        assert unfinished, "the replay was not done when it was killed"
        return number

    def written(self) -> list[Seen]:
        """Return all records of the stream between the tiers."""
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
        return int(self.query("select count(*) from stored where n < %s", number)[0][0])

    def is_judged(self, ends: dict[str, int]) -> bool:
        """Tell whether the audit has judged the output of all input before these ends."""
        judged_ends = dict(self.lab.query("select partition, judged from audit where tier = 'enter'"))
        return all(judged_ends.get(place, 0) >= end for place, end in ends.items())

    def all_audited(self) -> bool:
        """Tell whether the audit has read all output and every batch; missing records are among the
        losses then.
        """
        ends = self.streams.bounds(["numbers", "raw.quarantine"]).ends
        positions = {("enter", *put) for put in ends.items()} | set(
            self.lab.query("select tier, 'ledger', max(batch) from ledger group by tier")
        )
        return positions <= set(self.lab.query("select tier, source, position from audit_read"))

    def dropped(self, tier: str) -> int:
        return int(
            self.query(
                "select coalesce(sum(replays), 0) from ledger where tier = %s and replay is null", tier
            )[0][0]
        )

    def p99(self, name: str) -> dict[str, float]:
        """Return the 99th percentile of live latency in a window, in seconds."""
        window_start, window_end = self.windows[name]
        live = [
            seen
            for seen in self.written()
            if seen.out.by == "enter/1" and seen.arrived and window_start <= seen.arrived / 1000 <= window_end
        ]
        latency_query = (
            "select extract(epoch from written_at)::float8 - at / 1000.0::float8 from stored where at "
            "between %s and %s"
        )
        rows = self.query(latency_query, window_start * 1000, window_end * 1000)
        waits = [(seen.out.at - (seen.arrived or 0)) / 1000 for seen in live]
        return {"numbers": p99(waits), "stored": p99([float(row[0]) for row in rows])}


@pytest.fixture(scope="module")
def world(lab: Lab) -> Iterator[World]:
    with subprocess.Popen(
        [sys.executable, "-m", "sluice.audit"], env=lab.env, cwd=ROOT, stderr=subprocess.DEVNULL
    ) as audit:
        until("the audit has started", lambda: lab.query("select count(*) from audit_read")[0][0])
        for tier, host in TIERS.items():
            lab.start_owner(tier, 1, host)
        for tier in TIERS:
            lab.wait_caught_up(tier, 1)
        running_world = World(lab, Streams(lab.endpoints.kafka), Feed(lab))
        running_world.feed.start()
        yield running_world
        running_world.feed.end()
        running_world.streams.close()
        audit.terminate()


def good_numbers(fed: int) -> list[int]:
    return [number for number in range(fed) if number % BAD != 7]


def test_a_replay_at_most_doubles_live_latency_and_survives_a_kill(world: World) -> None:
    until("there is something to replay", lambda: world.feed.fed > RATE * WARM_SECONDS)
    warm, raw_ends = datetime.fromtimestamp(time.time(), UTC).isoformat(), world.streams.bounds(["raw"]).ends
    with world.window("before"):
        time.sleep(CALM_SECONDS)
    until("the audit has judged the input", lambda: world.is_judged(raw_ends))
    words = ("enter", "--to", warm, "--rate", str(REPLAYED), "--name", "patch")
    with world.window("replay"):
        number = world.replay_killed(*words, after=300)
        result = world.replay(*words)
    assert (result["number"], result["left"]) == (number, 0), "the name's second call continues"
    assert result["put"] >= RATE * WARM_SECONDS * 0.9
    with world.window("after"):
        time.sleep(CALM_SECONDS)
    fed = world.feed.fed
    until("the last good number is in the table", lambda: world.stored_before(fed) == len(good_numbers(fed)))
    before, beside, after = (world.p99(name) for name in ("before", "replay", "after"))
    calm = {
        place: max(before[place], after[place]) for place in before
    }  # the load of a shared machine varies
    print(f"p99 of live records: before {before}, beside a replay {beside}, after {after}; {result}")
    put = sum(seen.out.tier == f"enter.replay-{number}" for seen in world.written())
    assert put >= result["put"], "the batch of the killed replay was written twice"
    for tier in ("store", "tally"):
        until(f"{tier} has dropped every replay", lambda tier=tier: world.dropped(tier) == put)
    assert world.stored()[0] == world.stored()[1]
    assert {
        place: beside[place] for place in calm if beside[place] > 2 * max(USUAL_SECONDS[place], calm[place])
    } == {}, (calm, beside)


def test_a_replay_of_its_tier_fills_the_gaps_of_a_table(world: World) -> None:
    until("enough is stored", lambda: world.stored()[0] > 8000)
    before, dropped_before = int(world.lab.query("select max(n) from stored")[0][0]), world.dropped("store")
    gaps = good_numbers(before)[
        4000:6000:10
    ]  # no record of the replay before: the audit would report it as lost
    with psycopg.connect(world.lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("delete from stored where n = any(%s)", (gaps,))
    number = world.replay_killed("store", "--rate", "2000", after=300)
    result = world.replay("--resume", str(number))
    assert (result["left"], result["put"]) == (0, len(gaps))
    ((rows_in, rows_out, replays),) = world.query(
        "select sum(rows_in), sum(rows_out), sum(replays) from ledger where tier = 'store' and replay = %s",
        number,
    )
    assert (rows_out, replays) == (result["put"], result["dropped"])
    assert rows_in == rows_out + replays
    assert world.query("select count(*) from stored where n = any(%s)", gaps) == [(len(gaps),)]
    assert world.stored()[0] == world.stored()[1]
    assert world.dropped("store") == dropped_before, "no replayed record went through the live tier"


def test_bad_records_are_reprocessed_once_however_often_requested(world: World) -> None:
    until("some numbers are bad", lambda: world.feed.fed > 20 * BAD)
    fed = world.feed.end()
    until(
        "all good numbers are stored",
        lambda: world.stored() == (len(good_numbers(fed)), len(good_numbers(fed))),
    )
    until("the audit has judged the input", lambda: world.is_judged({f"raw/{BAD_PARTITION}": fed // 8}))
    result = world.replay("enter", "--to", f"{BAD_PARTITION}:{fed // 8}", "--rate", "2000", corrected=True)
    assert result["quarantined"] > 0, "a replay of the stream leaves quarantined records out"
    result = world.replay("enter", "--quarantine", "--rate", "500", corrected=True)
    assert result["put"] == fed - len(good_numbers(fed))
    until("all numbers are stored", lambda: world.stored() == (fed, fed))
    until("all numbers are summed", lambda: world.summed() == (fed, sum(range(fed))))
    assert world.replay("enter", "--quarantine", "--dry-run")["left"] == 0
    second = world.replay("enter", "--quarantine", "--from", "2020-01-01", "--rate", "500", corrected=True)
    assert second["put"] == result["put"]
    put = sum(seen.out.tier.startswith("enter.replay-") for seen in world.written())
    until("tally has dropped every replay", lambda: world.dropped("tally") == put - result["put"])
    assert world.stored() == (fed, fed)
    assert world.summed() == (fed, sum(range(fed)))
    assert (
        world.lab.query(
            "select tier, batch from ledger where rows_in <> rows_out + filtered + quarantined + replays + "
            "late + lost"
        )
        == []
    )
    until("the audit has read all output", world.all_audited)
    assert world.lab.query("select sentence from losses") == []


def test_a_useless_replay_is_refused_and_a_cancelled_one_stays_so(world: World) -> None:
    with world.start_replay("tally") as process:
        assert "sluice replay tally --quarantine" in process.communicate()[1]
    assert process.returncode == 1
    with world.start_replay("store", "--rate", "1") as process:
        number = until(
            "the replay has begun",
            lambda: world.lab.query("select max(number) from replays where ended_at is null")[0][0],
        )
        world.replay("--cancel", str(number))
        assert "was cancelled" in process.communicate(timeout=DEADLINE_SECONDS)[1]
    with world.start_replay("--resume", str(number)) as process:
        assert f"replay {number} was cancelled" in process.communicate()[1]
