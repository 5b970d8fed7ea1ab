"""Workers join tiers in place on real Spark: cold, and as spares that are woken.

A realtime tier warms them, and plans its query anew. In micro-batches, the next batch uses them. No
record is lost.
"""

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from sluice.kafka.reader import Seen, Streams
from sluice_ops.model.assignment import slot_id
from sluice_ops.model.incarnation import State, WorkerReceipt
from tests.integration.sluice.test_spare_workers import spares_are
from tests.integration.sluice.test_workers import feeding, read_output
from tests.integration.sluice.worker_pauses import BUSY_FACTOR, gaps
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.slow_sink_pipeline"
JOINS = 3
"""How many workers join cold; as many are woken spares."""
COLD_SECONDS, SPARE_SECONDS, GAP_SECONDS = 8.0, 2.0, 0.3
"""On an idle machine: from the request to a record of the new worker, in a realtime tier to one in
each partition of the new query; and the longest time without output of a partition.
"""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def joined(lab: Lab, number: int) -> WorkerReceipt | None:
    """Return the receipt of a worker of incarnation 1 once it tells the gap in the output."""
    report = lab.report("enter", 1)
    receipt = None if report is None else report.workers.get(slot_id("enter", 1, number))
    return receipt if receipt is not None and receipt.gap_seconds is not None else None


def seconds_to_new_query(seen: list[Seen], requested: float) -> float:
    """Return the time until the next query had written a record from each partition.

    So the new worker has written one, too.
    """
    outs = sorted((record.out for record in seen), key=lambda out: out.at)
    earlier = {out.by for out in outs if out.at <= requested * 1000}
    run = next(out.by for out in outs if out.by not in earlier)
    first: dict[str, int] = {}
    for out in outs:
        if out.by == run:
            first.setdefault(out.partition, out.at)
    assert len(first) == 4
    return max(first.values()) / 1000 - requested


def test_workers_join_a_realtime_tier_without_a_handover(lab: Lab) -> None:
    requests: list[tuple[str, float]] = []

    def request(kind: str, act: Callable[[], None]) -> None:
        requests.append((kind, time.time()))
        act()

    with closing(Streams(lab.endpoints.kafka)) as streams:
        with feeding(lab) as fed:
            lab.start_owner("enter", 1, "h1")
            lab.wait_caught_up("enter", 1)
            time.sleep(10)
            for number in range(1, JOINS + 1):
                request("cold", lambda number=number: lab.add_slot("enter", 1, "h1", number))
                until(f"worker {number} has joined", lambda number=number: joined(lab, number), 120)
            for number in range(JOINS + 1, 2 * JOINS + 1):
                lab.set_owner("enter", 1, active=number)
                lab.add_slot("enter", 1, "h1", number)
                until(f"worker {number} is a spare", lambda number=number: joined(lab, number), 120)
                time.sleep(5)
                request("spare", lambda number=number: lab.set_owner("enter", 1, active=number + 1))
                time.sleep(10)
            report = lab.report("enter", 1)
            assert report is not None
            assert report.state is State.RUNNING
            assert report.flowed is None or report.flowed.restarts == 0
        seen = read_output(streams)
        until(
            "every number is out",
            lambda: len({(each.out.partition, each.out.offset) for each in read_output(streams)}) == len(fed),
            60,
        )
    times = [at for _, at in requests]
    found = [
        (kind, round(seconds_to_new_query(seen, at), 2), gap)
        for (kind, at), gap in zip(requests, gaps(seen, times), strict=True)
    ]
    print(f"seconds from the request to the new query, and without output: {found}")
    print([receipt for number in range(1, 7) if (receipt := joined(lab, number)) is not None])
    for kind, seconds, gap in found:
        assert seconds < (COLD_SECONDS if kind == "cold" else SPARE_SECONDS) * BUSY_FACTOR
        assert gap < GAP_SECONDS * BUSY_FACTOR


def test_workers_join_a_tier_in_micro_batches(lab: Lab) -> None:
    """The stream has four partitions, so a batch has a task for each of at most four workers."""
    found: list[tuple[str, float]] = []

    def stored_by(number: int) -> int:
        by_slot = dict(lab.query("select slot, count(*) from stored group by slot"))
        return by_slot.get(slot_id("store", 1, number), 0)

    def join(kind: str, number: int, act: Callable[[], None]) -> None:
        """Request a worker, and note the seconds until a record that it then reads is stored."""
        before, begun = stored_by(number), time.monotonic()
        act()
        until(f"a record of worker {number} is stored", lambda: stored_by(number) > before, 120)
        found.append((kind, round(time.monotonic() - begun, 2)))
        time.sleep(5)

    with closing(Streams(lab.endpoints.kafka)) as streams:
        first = sum(streams.bounds(["raw"]).ends.values())
        lab.stop("enter", 1)
        lab.start_owner("enter", 2, "h1")
        lab.start_owner("store", 1, "h2")
        with feeding(lab, first=first) as fed:
            lab.wait_caught_up("enter", 2)
            lab.wait_caught_up("store", 1)
            time.sleep(10)
            for number in (1, 2):
                join("cold", number, lambda number=number: lab.add_slot("store", 1, "h2", number))
            lab.set_owner("store", 1, active=3)
            lab.add_slot("store", 1, "h2", 3)
            for _ in range(JOINS):
                spares_are(lab, "store", 3)
                time.sleep(5)
                join("spare", 3, lambda: lab.set_owner("store", 1, active=4))
                lab.set_owner("store", 1, active=3)
        total = first + len(fed)
        until("all is stored", lambda: lab.query("select count(*) from stored") == [(total,)])
    print(f"seconds from the request until a record of the new worker is stored: {found}")
    assert lab.query("select count(distinct n) from stored") == [(total,)]
    for kind, seconds in found:
        assert seconds < (COLD_SECONDS if kind == "cold" else SPARE_SECONDS) * BUSY_FACTOR
    report = lab.report("store", 1)
    assert report is not None
    assert report.flowed is None or report.flowed.restarts == 0
