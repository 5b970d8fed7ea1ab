"""How long live records take through three realtime tiers while old ones are replayed beside them, and how long without."""

import os
import signal
import subprocess
import sys

import pytest

from tests.bench.conftest import keep
from tests.bench.figures import first_of_each, milliseconds
from tests.bench.flow import Flow
from tests.bench.peers.ours import Ours
from tests.lab import ROOT, Lab

pytestmark = pytest.mark.timeout(3600)

RATE = 500
SECONDS = float(os.environ.get("SLUICE_BENCH_WINDOW", "120"))
WARM_SECONDS = 90
RATES = (100, 500)
"""At which records are replayed; the first is that of `sluice replay` when none is given."""
PERIODS = 3
"""Windows of each kind, in turn, so that neither has the better part of the machine."""


def window(chain: Lab) -> dict[str, float]:
    with Flow(chain.where.kafka, RATE, SECONDS) as flow:
        sent = flow.wait()
    first = first_of_each(flow.arrivals)
    assert len(first) == sent
    return milliseconds(first)


def beside(chain: Lab, rate: int) -> dict[str, float]:
    """Return how long live records take while old ones are put again."""
    words = [sys.executable, "-m", "pipeline.replay", "raw", "--rate", str(rate), "--json"]
    with subprocess.Popen(words, env=chain.env, cwd=ROOT) as replay:
        found = window(chain)
        assert replay.poll() is None, "it was going on all the time"
        replay.send_signal(signal.SIGINT)
    return found


def test_live_records_hardly_notice_a_replay(chain: Lab) -> None:
    Ours(chain).start()
    with Flow(chain.where.kafka, RATE, max(WARM_SECONDS, SECONDS * max(RATES) / RATE)) as flow:
        flow.wait()  # what the JVMs compile, they have compiled; and it is there to be replayed
    found: dict[str, list[dict[str, float]]] = {"alone": []} | {f"beside a replay at {rate}/s": [] for rate in RATES}
    for _ in range(PERIODS):
        found["alone"].append(window(chain))
        for rate in RATES:
            found[f"beside a replay at {rate}/s"].append(beside(chain, rate))
    keep("replay", {"rate": RATE, "seconds": SECONDS, "milliseconds": found})
    middle = {name: sorted(each["p99"] for each in windows)[PERIODS // 2] for name, windows in found.items()}
    assert middle[f"beside a replay at {RATES[0]}/s"] <= 2 * middle["alone"]
