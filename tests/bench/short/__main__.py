"""`python -m tests.bench.short`: compare Sluice with Flink 2.2 on four workloads, on one broker.

Progress goes to stderr, and all figures as JSON below .sluice/bench. The last line of stdout is
JSON: for each workload the ratios `rate`, `processor`, `p50` and `p99`, Sluice's figure divided by
Flink's. A rate above 1 is good for Sluice, and the others below 1.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from tests.bench.conftest import RESULTS
from tests.bench.flow import PARTITIONS
from tests.bench.short.measure import Measurement
from tests.bench.short.ratios import ratios
from tests.bench.short.workloads import WORKLOADS, Workload, make_tables
from tests.lab import Lab, opened, until

SYSTEMS = ("sluice", "flink")
NOTHING = {"latency": {}, "rate": {"highest": None}}
"""The figures of a system that failed."""
BEGAN = time.monotonic()


def tell(text: str) -> None:
    sys.stderr.write(f"{time.monotonic() - BEGAN:6.0f} s  {text}\n")
    sys.stderr.flush()


def end_once(number: int, _frame: FrameType | None) -> NoReturn:
    """End with everything that was started; a second signal does not interrupt that."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def measured(lab: Lab, workload: Workload, name: str, folder: Path) -> dict[str, Any]:
    """Run a workload on a system; return the figures."""
    folder.mkdir()
    side = workload.sides[name](lab, folder)
    try:
        # the check of a million records may keep this process from answering ZooKeeper in time
        until("ZooKeeper is connected", lambda: lab.channel.connected)
        tell("  starts")
        side.system.start()
        feed = workload.feed(side.stream, folder)
        measurement = Measurement(side, lab.endpoints.kafka, lab.home, feed)
        fault = side.before()
        tell("  warms up")
        measurement.warm()
        rate = measurement.rate(workload.first_rate)
        tell(f"  highest sustained rate: {rate['highest']}/s; bound by {rate['bound']}")
        # after the search, the JVMs have compiled what they use often
        latency = measurement.latencies()
        for each, figures in latency.items():
            tell(f"  {each}/s: {figures['milliseconds'] or figures['reason']}")
        fault = fault or side.check()
        tell(f"  results: {fault or 'as expected'}")
    finally:
        side.system.stop()
    return {"latency": latency, "rate": rate, "guarantee": workload.guarantees[name], "fault": fault}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.short",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        default="".join(WORKLOADS),
        metavar="LETTERS",
        help=f"the workloads: {'; '.join(f'{name} {each.title}' for name, each in WORKLOADS.items())}",
    )
    chosen = [name for name in WORKLOADS if name in parser.parse_args().only]
    signal.signal(signal.SIGINT, end_once)
    signal.signal(signal.SIGTERM, end_once)
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        tell("services start")
        with opened(home, "tests.bench.short.tiers", partitions=len(PARTITIONS)) as lab:
            tell("class data are written")
            lab.write_class_data("tests.bench.short.few_tiers")
            make_tables(lab)
            for name in chosen:
                figures[name] = {}
                for system in SYSTEMS:
                    tell(f"({name}) {WORKLOADS[name].title}: {system}")
                    try:
                        figures[name][system] = measured(
                            lab, WORKLOADS[name], system, Path(folder) / f"{name}-{system}"
                        )
                    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 — others go on
                        tell(f"  failed: {error}")
                        figures[name][system] = {**NOTHING, "fault": repr(error)}
    found = ratios(figures)
    result = {
        "seconds": round(time.monotonic() - BEGAN),
        "ratios": found,
        "workloads": {
            name: {"title": WORKLOADS[name].title, "visible": WORKLOADS[name].visible, **sides}
            for name, sides in figures.items()
        },
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "short.json"
    path.write_text(json.dumps(result, indent=1))
    tell(f"all figures: {path}")
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if any(side["fault"] for sides in figures.values() for side in sides.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
