"""How long a tier takes from its launch to its output, cold after kill -9, part by part; and what an idle realtime tier costs."""

import os
import re
import signal
import time
from typing import Any

import psutil
import pytest

from tests.bench.conftest import keep
from tests.bench.figures import widest
from tests.bench.test_handovers import COMMITS, HOSTS, figures, put_out
from tests.lab import TAKEOVER_SECONDS, Lab, until

pytestmark = pytest.mark.timeout(3600)

STARTS = int(os.environ.get("SLUICE_BENCH_STARTS", "5"))
RATE = 200
COLD_SECONDS = 10.0
IDLE_SECONDS = 60.0
IDLE_CORES = 0.04
PARTS = {"session": r"\] session +.*seconds=([\d.]+)", "executors": r"\] executors +.*seconds=([\d.]+)"}
"""What a driver's log says of its start, in seconds since it knew what it is."""


def cold(lab: Lab, tier: str, number: int) -> tuple[float, float]:
    """Kill the owner, start the next incarnation cold on the other host; return when it was killed and when the window is over."""
    begun = time.time()
    lab.driver(tier, number).send_signal(signal.SIGKILL)
    time.sleep(TAKEOVER_SECONDS)
    lab.start_owner(tier, number + 1, HOSTS[number % 2])
    lab.stop(tier, number)
    lab.wait_caught_up(tier, number + 1)
    time.sleep(5.0)
    return begun, time.time()


def parts(lab: Lab, tier: str, number: int) -> dict[str, float]:
    """Return when each part of a start was through, since the launch of the process."""
    log, report = lab.log(tier, number), lab.report(tier, number)
    assert report is not None
    launched = psutil.Process(lab.driver(tier, number).pid).create_time()
    known = report.history[0][1] - launched
    found = {
        name: round(known + float(said[1]), 2)
        for name, said in ((name, re.search(form, log)) for name, form in PARTS.items())
        if said
    }
    running = next(at for state, at in report.history if state == "running")
    return {"knows what it is": round(known, 2), **found, "runs": round(running - launched, 2)}


def seconds_of(lab: Lab, tier: str, number: int) -> float:
    """Return the processor time that an incarnation has taken."""
    taken = 0.0
    for identity in (f"driver-{tier}-{number}", f"slot-{tier}-{number}-0"):
        process = psutil.Process(lab.processes[identity].pid)
        for each in (process, *process.children(recursive=True)):
            times = each.cpu_times()
            taken += times.user + times.system
    return taken


def test_cold_starts_and_idleness(flowing: Lab) -> None:
    lab = flowing
    lab.start_feed(RATE)
    until("records are delivered", lambda: lab.delivered()[0] > RATE)
    windows: dict[str, list[tuple[float, float]]] = {"entry": [], "outbound": []}
    told: dict[str, list[dict[str, float]]] = {"entry": [], "outbound": []}
    for number in range(1, STARTS + 1):
        for tier, killed in windows.items():
            killed.append(cold(lab, tier, number))
            told[tier].append(parts(lab, tier, number + 1))
    fed = lab.stop_feed()
    until("everything is delivered", lambda: lab.delivered()[0] >= fed)
    assert lab.delivered() == (fed, fed)
    time.sleep(20.0)
    before, begun = seconds_of(lab, "entry", STARTS + 1), time.monotonic()
    time.sleep(IDLE_SECONDS)
    idle = (seconds_of(lab, "entry", STARTS + 1) - before) / (time.monotonic() - begun)
    times, commits = put_out(lab, "hits"), [at for at, _ in lab.query(COMMITS)]
    results: dict[str, Any] = {
        "starts": STARTS,
        "rate": RATE,
        "entry": {
            "kill to output": figures([widest(times, *window) for window in windows["entry"]]),
            "parts": told["entry"],
        },
        "outbound": {
            "kill to output": figures([widest(commits, *window) for window in windows["outbound"]]),
            "parts": told["outbound"],
        },
        "idle realtime tier, cores": round(idle, 3),
    }
    keep("start", results)
    assert results["entry"]["kill to output"]["most"] <= COLD_SECONDS
    assert results["outbound"]["kill to output"]["most"] <= COLD_SECONDS
    assert idle <= IDLE_CORES
