"""The parts of a tier's start from launch to output, cold after kill -9, and the cost of an idle
realtime tier.
"""

import os
import re
import signal
import time
from typing import Any

import psutil
import pytest

from tests.bench.conftest import save
from tests.bench.figures import longest_gap
from tests.bench.test_handovers import COMMITS, HOSTS, first_output_times, summarized
from tests.lab import TAKEOVER_SECONDS, Lab, until

pytestmark = pytest.mark.timeout(3600)

STARTS = int(os.environ.get("SLUICE_BENCH_STARTS", "5"))
RATE = 200
COLD_SECONDS = 10.0
IDLE_SECONDS = 60.0
IDLE_CORES = 0.04
PARTS = {
    "session": r"the Spark session is open +.*seconds=([\d.]+)",
    "executors": r"all executors have come +.*seconds=([\d.]+)",
}
"""The driver's log of its start, in seconds since it knew its tier."""


def kill_and_start_cold(lab: Lab, tier: str, number: int) -> tuple[float, float]:
    """Kill the owner, and start the next incarnation cold on the other host; return the kill's time
    and the window's end.
    """
    killed_at = time.time()
    lab.driver(tier, number).send_signal(signal.SIGKILL)
    time.sleep(TAKEOVER_SECONDS)
    lab.start_owner(tier, number + 1, HOSTS[number % 2])
    lab.stop(tier, number)
    lab.wait_caught_up(tier, number + 1)
    time.sleep(5.0)
    return killed_at, time.time()


def parts(lab: Lab, tier: str, number: int) -> dict[str, float]:
    """Return when each part of a start was complete, in seconds since the process's launch."""
    log, report = lab.log(tier, number), lab.report(tier, number)
    assert report is not None
    launched = psutil.Process(lab.driver(tier, number).pid).create_time()
    known_after = report.history[0][1] - launched
    seconds_by_part = {
        name: round(known_after + float(match[1]), 2)
        for name, match in ((name, re.search(form, log)) for name, form in PARTS.items())
        if match
    }
    assert seconds_by_part.keys() == PARTS.keys(), "the driver's log has other texts"
    running = next(at for state, at in report.history if state == "running")
    return {
        "knows what it is": round(known_after, 2),
        **seconds_by_part,
        "runs": round(running - launched, 2),
    }


def processor_seconds_of(lab: Lab, tier: str, number: int) -> float:
    """Return the processor seconds that an incarnation has used."""
    seconds = 0.0
    for identity in (f"driver-{tier}-{number}", f"slot-{tier}-{number}-0"):
        process = psutil.Process(lab.processes[identity].pid)
        for member in (process, *process.children(recursive=True)):
            times = member.cpu_times()
            seconds += times.user + times.system
    return seconds


def test_cold_starts_and_idleness(flowing: Lab) -> None:
    lab = flowing
    lab.start_feed(RATE)
    until("records are delivered", lambda: lab.delivered()[0] > RATE)
    windows: dict[str, list[tuple[float, float]]] = {"entry": [], "outbound": []}
    parts_of_starts: dict[str, list[dict[str, float]]] = {"entry": [], "outbound": []}
    for number in range(1, STARTS + 1):
        for tier, killed in windows.items():
            killed.append(kill_and_start_cold(lab, tier, number))
            parts_of_starts[tier].append(parts(lab, tier, number + 1))
    fed = lab.stop_feed()
    until("every hit is delivered", lambda: lab.delivered()[0] >= fed)
    assert lab.delivered() == (fed, fed)
    time.sleep(20.0)
    before, started = processor_seconds_of(lab, "entry", STARTS + 1), time.monotonic()
    time.sleep(IDLE_SECONDS)
    idle = (processor_seconds_of(lab, "entry", STARTS + 1) - before) / (time.monotonic() - started)
    times, commits = first_output_times(lab, "hits"), [at for at, _ in lab.query(COMMITS)]
    results: dict[str, Any] = {
        "starts": STARTS,
        "rate": RATE,
        "entry": {
            "kill to output": summarized([longest_gap(times, *window) for window in windows["entry"]]),
            "parts": parts_of_starts["entry"],
        },
        "outbound": {
            "kill to output": summarized([longest_gap(commits, *window) for window in windows["outbound"]]),
            "parts": parts_of_starts["outbound"],
        },
        "idle realtime tier, cores": round(idle, 3),
    }
    save("start", results)
    assert results["entry"]["kill to output"]["most"] <= COLD_SECONDS
    assert results["outbound"]["kill to output"]["most"] <= COLD_SECONDS
    assert idle <= IDLE_CORES
