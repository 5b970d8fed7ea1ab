"""kill -9 of random drivers and executors at random moments under load: no record is lost or
duplicated, and each key's order is kept.
"""

import os
import random
import signal
import time

import pyarrow.parquet as pq
import pytest

from tests.bench.conftest import save
from tests.integration.sluice.delivery_checks import DISORDER
from tests.lab import HOSTS, Lab, until

pytestmark = pytest.mark.timeout(5400)

KILLS = int(os.environ.get("SLUICE_BENCH_KILLS", "50"))
RATE = int(os.environ.get("SLUICE_BENCH_RATE", "2000"))
WAIT_SECONDS = (0.0, 12.0)


class Tiers:
    """The current incarnation of each tier; restarts dead drivers, as the controller would."""

    def __init__(self, lab: Lab, dice: random.Random) -> None:
        self._lab = lab
        self._dice = dice
        self.incarnations = dict.fromkeys(("entry", "enrich", "counts", "outbound"), 1)

    def restart_dead(self) -> None:
        for tier, number in self.incarnations.items():
            if self._lab.driver(tier, number).poll() is not None:
                self._lab.stop(tier, number)
                self.incarnations[tier] = number + 1
                self._lab.start_owner(tier, number + 1, self._dice.choice(list(HOSTS)))

    def kill(self) -> str:
        tier, part = self._dice.choice(list(self.incarnations)), self._dice.choice(("driver", "executor"))
        if part == "driver":
            self._lab.driver(tier, self.incarnations[tier]).send_signal(signal.SIGKILL)
            self._lab.driver(tier, self.incarnations[tier]).wait()
        else:
            self._lab.kill_executor(tier, self.incarnations[tier])
        return f"{tier} {part}"


def archived(lab: Lab) -> tuple[int, int]:
    """Return the number of rows in the archive's files, and of different rows."""
    files = (lab.endpoints.home / "archive").rglob("*.parquet")
    ids = [
        name for file in files for name in pq.ParquetFile(file).read(columns=["id"]).column("id").to_pylist()
    ]
    return len(ids), len(set(ids))


def test_random_kills(flowing: Lab) -> None:
    lab, seed = flowing, int(os.environ.get("SLUICE_BENCH_SEED", str(time.time_ns() % 100_000)))
    dice = random.Random(seed)  # noqa: S311 - test data
    tiers = Tiers(lab, dice)
    lab.start_feed(RATE)
    until("records are delivered", lambda: lab.delivered()[0] > RATE)
    started = time.monotonic()
    killed = []
    for _ in range(KILLS):
        next_kill = time.monotonic() + dice.uniform(*WAIT_SECONDS)
        while time.monotonic() < next_kill:
            time.sleep(0.2)
            tiers.restart_dead()
        killed.append(tiers.kill())
    seconds = time.monotonic() - started
    fed = lab.stop_feed()

    def all_delivered() -> bool:
        tiers.restart_dead()
        return lab.delivered()[0] >= fed

    until("every hit is delivered", all_delivered, 1200)
    save(
        "kills",
        {
            "seed": seed,
            "kills": len(killed),
            "rate": RATE,
            "fed": fed,
            "seconds": round(seconds),
            "incarnations": tiers.incarnations,
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
    until("the archive has every row", lambda: archived(lab)[0] >= fed, 300)
    assert archived(lab) == (fed, fed)
