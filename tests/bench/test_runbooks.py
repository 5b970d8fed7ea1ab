"""Drains and moves by Airflow on a whole platform under load: their seconds step by step, and the
longest time without a record of `enriched`.
"""

import os
import statistics
import time
from itertools import cycle, islice
from typing import Any, NamedTuple

import pytest

from tests.bench.conftest import save
from tests.bench.figures import longest_gap
from tests.bench.test_handovers import summarized
from tests.scenarios.conftest import platform, quiet_site
from tests.scenarios.live import Live, until
from tests.scenarios.oracle import Load

pytestmark = pytest.mark.timeout(7200)

MOVES = int(os.environ.get("SLUICE_BENCH_MOVES", "20"))
DRAINS = max(3, MOVES // 4)
MOVE_RATE, DRAIN_RATE = 1_000, 500
MOVED = ("entry", "enrich")
HOSTS = ("h1", "h2", "h3")
AFTER_SECONDS = 2.0
"""The time after a run or a cut that still counts as a part of it."""
REST_SECONDS = 10.0
"""The time between two runs."""


class Watched(NamedTuple):
    """A run of a runbook, in seconds since 1970."""

    triggered: float
    ended: float
    line: dict[str, Any]
    cut: tuple[float, float] | None


def watched(live: Live, dag: str, **conf: Any) -> Watched:
    """Run a runbook; return its times."""
    triggered = time.time()
    run = live.run(dag, **conf)
    ended = time.time()
    change = f"{dag}.{run}"
    line = next(line for line in live.sluice_json("changes") if line["id"] == change)
    posted = {step["step"]: step["posted_at"] for step in live.sluice_json("operations", change)}
    cut = None
    if "cut" in line["steps"]:
        cut = (posted["cut"], posted["cut"] + line["steps"]["cut"] + AFTER_SECONDS)
    return Watched(triggered, ended, line, cut)


def gap(load: Load, start: float, end: float) -> float:
    """Return the longest time without a new record of `enriched`. Unit: seconds."""
    return round(longest_gap(list(load.enriched.first_seen.values()), start, end), 3)


def told(load: Load, run: Watched) -> dict[str, Any]:
    """Return the figures of a run."""
    return {
        "what": run.line["what"],
        "seconds": round(run.ended - run.triggered, 1),
        "steps": run.line["steps"],
        "gap told": run.line["gap_seconds"],
        "gap": gap(load, run.triggered, run.ended + AFTER_SECONDS),
        "gap over the cut": None if run.cut is None else gap(load, *run.cut),
    }


def drained(live: Live, load: Load, host: str) -> dict[str, Any]:
    """Drain a host, and return it; return the figures of the drain."""
    tiers = sorted(name for name in live.tiers() if host in live.hosts_of(name))
    run = watched(live, "drain_host", host=host)
    time.sleep(AFTER_SECONDS)
    figures = told(load, run)
    live.sluice("return", host)
    until("all tiers run", 120, live.all_running)
    time.sleep(REST_SECONDS)
    return {**figures, "tiers": tiers}


def moved(live: Live, load: Load, tier: str) -> dict[str, Any]:
    """Move a tier to the next host after the one of its driver; return the figures."""
    here = live.tiers()[tier]["driver"]["host"]
    run = watched(live, "migrate_tier", tier=tier, to=HOSTS[(HOSTS.index(here) + 1) % len(HOSTS)])
    time.sleep(AFTER_SECONDS)
    figures = told(load, run)
    time.sleep(REST_SECONDS)
    return figures


def test_drains_and_moves(tmp_path_factory: pytest.TempPathFactory) -> None:
    with platform(tmp_path_factory.mktemp("platform"), quiet_site()) as live:
        live.wait_for_class_data()
        with Load(live, DRAIN_RATE) as load:
            drains = [drained(live, load, host) for host in islice(cycle(HOSTS), DRAINS)]
        load.check()
        with Load(live, MOVE_RATE) as load:
            moves = [moved(live, load, tier) for tier in islice(cycle(MOVED), MOVES)]
            quiet = time.time()
            time.sleep(REST_SECONDS)
            undisturbed = gap(load, quiet, time.time())
        load.check()
    results: dict[str, Any] = {
        "drains": {
            "rate": DRAIN_RATE,
            "seconds": statistics.median(one["seconds"] for one in drains),
            "gap": summarized([one["gap"] for one in drains]),
            "runs": drains,
        },
        "moves": {
            "rate": MOVE_RATE,
            "seconds": statistics.median(one["seconds"] for one in moves),
            "gap": summarized([one["gap"] for one in moves]),
            "gap over the cut": summarized([one["gap over the cut"] for one in moves]),
            "gap without a run": undisturbed,
            "runs": moves,
        },
    }
    save("runbooks", results)
