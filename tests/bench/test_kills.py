"""kill -9 of random drivers and executors at random moments under load: nothing lost, nothing twice, order kept per key."""

import os
import random
import signal
import time

import pyarrow.parquet as pq
import pytest

from tests.bench.conftest import keep
from tests.integration.sluice.delivery_checks import DISORDER
from tests.lab import HOSTS, Lab, until

pytestmark = pytest.mark.timeout(5400)

KILLS = int(os.environ.get("SLUICE_BENCH_KILLS", "50"))
RATE = int(os.environ.get("SLUICE_BENCH_RATE", "2000"))
WAIT_SECONDS = (0.0, 12.0)


class Tiers:
    """Which incarnation of each tier runs; starts the next one when a driver is dead, as the controller would."""

    def __init__(self, lab: Lab, dice: random.Random) -> None:
        self._lab = lab
        self._dice = dice
        self.now = dict.fromkeys(("entry", "enrich", "counts", "outbound"), 1)

    def mend(self) -> None:
        for tier, number in self.now.items():
            if self._lab.driver(tier, number).poll() is not None:
                self._lab.stop(tier, number)
                self.now[tier] = number + 1
                self._lab.start_owner(tier, number + 1, self._dice.choice(list(HOSTS)))

    def kill(self) -> str:
        tier, what = self._dice.choice(list(self.now)), self._dice.choice(("driver", "executor"))
        if what == "driver":
            self._lab.driver(tier, self.now[tier]).send_signal(signal.SIGKILL)
            self._lab.driver(tier, self.now[tier]).wait()
        else:
            self._lab.kill_executor(tier, self.now[tier])
        return f"{tier} {what}"


def archived(lab: Lab) -> tuple[int, int]:
    """Return how many rows the archive's files have, and how many different ones."""
    files = (lab.endpoints.home / "archive").rglob("*.parquet")
    found = [
        name for file in files for name in pq.ParquetFile(file).read(columns=["id"]).column("id").to_pylist()
    ]
    return len(found), len(set(found))


def test_random_kills(flowing: Lab) -> None:
    lab, seed = flowing, int(os.environ.get("SLUICE_BENCH_SEED", str(time.time_ns() % 100_000)))
    dice = random.Random(seed)  # noqa: S311 — test data
    tiers = Tiers(lab, dice)
    lab.start_feed(RATE)
    until("records are delivered", lambda: lab.delivered()[0] > RATE)
    begun = time.monotonic()
    killed = []
    for _ in range(KILLS):
        over = time.monotonic() + dice.uniform(*WAIT_SECONDS)
        while time.monotonic() < over:
            time.sleep(0.2)
            tiers.mend()
        killed.append(tiers.kill())
    seconds = time.monotonic() - begun
    fed = lab.stop_feed()

    def all_there() -> bool:
        tiers.mend()
        return lab.delivered()[0] >= fed

    until("everything is delivered", all_there, 1200)
    keep(
        "kills",
        {
            "seed": seed,
            "kills": len(killed),
            "rate": RATE,
            "fed": fed,
            "seconds": round(seconds),
            "incarnations": tiers.now,
        },
    )
    assert lab.delivered() == (fed, fed)
    assert lab.query(
        "select max(substring(id from 5)::bigint), min(substring(id from 5)::bigint) from delivered"
    ) == [(fed, 1)]
    until(
        "the counts agree",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(fed,)],
    )
    assert lab.query("select sum(rows_in - rows_out - filtered - quarantined - replays) from ledger") == [
        (0,)
    ]
    assert lab.query(DISORDER) == [(0,)]
    until("the archive has all of it", lambda: archived(lab)[0] >= fed, 300)
    assert archived(lab) == (fed, fed)
