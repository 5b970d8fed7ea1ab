"""Spare workers on real Spark: a killed executor is replaced by the spare, and comes back as one.

A tier in micro-batches and a realtime tier; no record is stored twice or lost.
"""

import time
from contextlib import closing

import psutil
import pytest

from sluice.kafka.reader import Streams
from sluice_ops.model.assignment import slot_id
from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import ends
from tests.integration.sluice.test_workers import feeding, read_output
from tests.integration.sluice.worker_pauses import BUSY_FACTOR, count_working
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.slow_sink_pipeline"
WOKEN_SECONDS = 2.0
IDLE_SECONDS, IDLE_CORES = 20.0, 0.05
"""How long an idle spare is watched, and the most cores that its executor uses meanwhile."""
WARM_SECONDS = 5.0
"""For so long, a JVM still compiles the code of its first task."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def spares_are(lab: Lab, tier: str, *numbers: int) -> float:
    """Wait until these slots of incarnation 1 are the spares; return how long it took."""
    expected, begun = tuple(slot_id(tier, 1, number) for number in numbers), time.monotonic()
    until(
        f"the spares of {tier} are {expected}",
        lambda: (report := lab.report(tier, 1)) is not None and report.spare_workers == expected,
    )
    return round(time.monotonic() - begun, 2)


def start_with_spare(lab: Lab, tier: str, host: str) -> None:
    """Start incarnation 1 of a tier with three workers, of which two work."""
    lab.set_owner(tier, 1, active=2)
    lab.start(tier, 1, host, slots=3)
    lab.wait_for(tier, 1, State.RUNNING)


def check_is_idle(lab: Lab, slot: str) -> None:
    """Assert that the executor of a spare uses hardly any processor time."""
    (executor,) = psutil.Process(lab.processes[slot].pid).children()
    time.sleep(WARM_SECONDS)
    before = executor.cpu_times()
    time.sleep(IDLE_SECONDS)
    after = executor.cpu_times()
    cores = (after.user + after.system - before.user - before.system) / IDLE_SECONDS
    print(f"{slot}: the executor of the idle spare uses {cores:.4f} cores")
    assert cores < IDLE_CORES


def kill_executor(lab: Lab, slot: str) -> None:
    for child in psutil.Process(lab.processes[slot].pid).children():
        child.kill()


def test_a_spare_takes_over_from_a_killed_realtime_worker(lab: Lab) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:

        def out() -> int:
            return sum(streams.bounds(["numbers"]).ends.values())

        def longest_silence(seconds: float) -> float:
            last, seen, longest, end = time.monotonic(), out(), 0.0, time.monotonic() + seconds
            while time.monotonic() < end:
                if (now := out()) != seen:
                    seen, last = now, time.monotonic()
                longest = max(longest, time.monotonic() - last)
                time.sleep(0.05)
            return round(longest, 2)

        start_with_spare(lab, "enter", "h1")
        with feeding(lab) as fed:
            spares_are(lab, "enter", 2)
            until("records come out", out)
            check_is_idle(lab, slot_id("enter", 1, 2))
            kill_executor(lab, slot_id("enter", 1, 0))
            silent_after_loss = longest_silence(30)
            spares_are(lab, "enter", 0)
            lab.set_owner("enter", 1, active=3)
            silent_after_wake = longest_silence(10)
            spares_are(lab, "enter")
        until(
            "every number is out",
            lambda: len({(seen.out.partition, seen.out.offset) for seen in read_output(streams)}) >= len(fed),
            60,
        )
    print(f"enter: no output for {silent_after_loss} s after a loss, {silent_after_wake} s after a wake")
    assert silent_after_loss < 5.0 * BUSY_FACTOR


def test_a_spare_takes_over_from_a_killed_micro_batch_worker(lab: Lab) -> None:
    def stored() -> int:
        return int(lab.query("select count(*) from stored")[0][0])

    def goes_on() -> bool:
        return stored() > before + 200

    with closing(Streams(lab.endpoints.kafka)) as streams:
        first = sum(streams.bounds(["raw"]).ends.values())
        if not first:
            lab.start_owner("enter", 1, "h1")
            lab.wait_for("enter", 1, State.RUNNING)
        start_with_spare(lab, "store", "h2")
        with feeding(lab, first=first) as fed:
            spares_are(lab, "store", 2)
            check_is_idle(lab, slot_id("store", 1, 2))
            before = stored()
            assert count_working(lab, "store", goes_on) == 2
            kill_executor(lab, slot_id("store", 1, 0))
            woken = spares_are(lab, "store")
            returned = spares_are(lab, "store", 0)
            before = stored()
            assert count_working(lab, "store", goes_on) == 2
            lab.set_owner("store", 1, active=3)
            raised = spares_are(lab, "store")
            before = stored()
            assert count_working(lab, "store", goes_on) == 3
        print(f"store: woken by a loss {woken} s, back as a spare {returned} s, by the number {raised} s")
        until("all is stored", lambda: stored() == first + len(fed))
        assert ends(lab, "store") == streams.bounds(["numbers"]).ends
    assert lab.query("select count(distinct n) from stored") == [(first + len(fed),)]
    assert max(woken, raised) < WOKEN_SECONDS * BUSY_FACTOR
    report = lab.report("store", 1)
    assert report is not None
    assert report.flowed is None or report.flowed.restarts == 0
