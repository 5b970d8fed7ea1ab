"""Handovers in a row under load, with driver and worker on another host each time, and kills of
tiers with a standby.

Measures the gap in the output; no record is lost or duplicated.
"""

import json
import os
import signal
import statistics
import time
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, TopicPartition

from sluice.api.declarations import LONGEST_INTERVAL
from sluice_ops.model.incarnation import Phase, State
from tests.bench.conftest import save
from tests.bench.figures import PERCENTS, longest_gap, percentile
from tests.lab import TAKEOVER_SECONDS, Lab, until

pytestmark = pytest.mark.timeout(3600)

MOVES = int(os.environ.get("SLUICE_BENCH_MOVES", "20"))
KILLS = max(1, MOVES // 4)
RATE = 1_000
HOSTS = ("h1", "h2")
STREAM_P95 = 0.1
SINK_P95 = 0.5
KILLED_HOT = 0.3
KILLED_WARM = 2.0
COMMITS = (
    "select extract(epoch from at)::float8, incarnation from ledger where tier = 'outbound' order by batch"
)


def move(lab: Lab, tier: str, number: int) -> tuple[float, float]:
    """Hand a tier over to the next incarnation on the other host; return the beginning and end of
    the window.
    """
    following = number + 1
    lab.prepare(tier, number, following, HOSTS[number % 2])
    time.sleep(3.0)
    start = time.time()
    lab.set_owner(tier, number, following, Phase.CUT)
    lab.wait_caught_up(tier, following)
    lab.set_owner(tier, following)
    lab.wait_for(tier, number, State.STOPPED)
    time.sleep(3.0)
    end = time.time()
    lab.stop(tier, number)
    return start, end


def kill(lab: Lab, tier: str, owner: int, *, hot: bool) -> tuple[float, float]:
    """Kill the driver of a tier whose next incarnation is its standby, and let the standby own the
    tier.
    """
    standby = owner + 1
    lab.start_standby(tier, owner, standby, HOSTS[owner % 2], hot=hot)
    time.sleep(3.0)
    start = time.time()
    lab.driver(tier, owner).send_signal(signal.SIGKILL)
    time.sleep(TAKEOVER_SECONDS)
    lab.set_owner(tier, standby)
    lab.wait_caught_up(tier, standby)
    time.sleep(3.0)
    end = time.time()
    lab.stop(tier, owner)
    return start, end


def first_output_times(lab: Lab, stream: str) -> list[float]:
    """Return when each record first appeared in a stream."""
    consumer = Consumer({"bootstrap.servers": lab.endpoints.kafka, "group.id": "bench"})
    ends = {number: consumer.get_watermark_offsets(TopicPartition(stream, number))[1] for number in range(4)}
    consumer.assign([TopicPartition(stream, number, 0) for number in ends])
    first: dict[str, float] = {}
    unread = {number for number, end in ends.items() if end}
    while unread:
        for message in consumer.consume(5_000, 1.0):
            name = json.loads(message.value())["id"]
            first[name] = min(message.timestamp()[1] / 1000, first.get(name, 1e12))
            if message.offset() + 1 >= ends[message.partition()]:
                unread.discard(message.partition())
    consumer.close()
    return sorted(first.values())


def summarized(gaps: list[float]) -> dict[str, float]:
    ordered = sorted(gaps)
    values_by_name = {
        "p50": statistics.median(ordered),
        "p95": percentile(ordered, PERCENTS["p95"]),
        "most": ordered[-1],
    }
    return {name: round(value, 3) for name, value in values_by_name.items()}


def test_handovers_and_kills_in_a_row(flowing: Lab) -> None:
    lab = flowing
    lab.start_feed(RATE)
    until("records are delivered", lambda: lab.delivered()[0] > RATE)
    windows = [move(lab, "entry", number) for number in range(1, MOVES + 1)]
    for number in range(1, MOVES + 1):
        move(lab, "outbound", number)
    start = time.time()
    time.sleep(20.0)
    quiet = [(start + second, start + second + 5.0) for second in range(0, 15, 5)]
    hot, warm = range(MOVES + 1, MOVES + 1 + KILLS), range(MOVES + 1 + KILLS, MOVES + 1 + 2 * KILLS)
    killed_hot = [kill(lab, "entry", number, hot=True) for number in hot]
    killed_warm = [kill(lab, "entry", number, hot=False) for number in warm]
    killed_sink = [kill(lab, "outbound", number, hot=False) for number in hot]
    fed = lab.stop_feed()
    until("every hit is delivered", lambda: lab.delivered()[0] >= fed)
    assert lab.delivered() == (fed, fed)

    times, commits = first_output_times(lab, "hits"), lab.query(COMMITS)
    committed = [committed_at for committed_at, _ in commits]
    pairs = [
        (after - before, other != number)
        for (before, number), (after, other) in pairwise(commits)
        if other <= MOVES + 1
    ]
    results = {
        "moves": MOVES,
        "rate": RATE,
        "fed": fed,
        "entry": {
            "gap": summarized([longest_gap(times, *window) for window in windows]),
            "steady": summarized([longest_gap(times, *at) for at in quiet]),
        },
        "entry, hot, killed": {
            "kills": KILLS,
            "gap": summarized([longest_gap(times, *window) for window in killed_hot]),
        },
        "entry, warm, killed": {
            "kills": KILLS,
            "gap": summarized([longest_gap(times, *window) for window in killed_warm]),
        },
        "outbound": {
            "gap": summarized([gap for gap, handed in pairs if handed]),
            "between_batches": summarized([gap for gap, handed in pairs if not handed]),
        },
        "outbound, warm, killed": {
            "kills": KILLS,
            "gap": summarized([longest_gap(committed, *window) for window in killed_sink]),
        },
    }
    save("handovers", results)
    assert results["outbound"]["gap"]["p95"] <= SINK_P95
    assert results["entry"]["gap"]["p95"] <= STREAM_P95
    assert results["entry, hot, killed"]["gap"]["most"] <= KILLED_HOT
    assert results["entry, warm, killed"]["gap"]["most"] <= KILLED_WARM
    assert results["outbound, warm, killed"]["gap"]["most"] <= KILLED_WARM + LONGEST_INTERVAL
