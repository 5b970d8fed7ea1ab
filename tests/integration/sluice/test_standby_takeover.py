"""A driver with a warm standby is killed or frozen, with a real controller and agents: how soon its
tier has output again.
"""

import time
from collections.abc import Callable
from contextlib import closing
from statistics import median

import psutil
import pytest

from sluice.api.declarations import LONGEST_INTERVAL
from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State
from tests.integration.sluice.operated_lab import operated, site_of, sluice
from tests.integration.sluice.test_hung_processes import python_of
from tests.integration.sluice.test_workers import feeding, read_output
from tests.integration.sluice.worker_pauses import gaps
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.standby_pipeline"
TIERS = ("enter", "store")
FAULTS = (psutil.Process.kill, psutil.Process.suspend)
ROUNDS = 3
"""Faults of each kind and tier; each but the first meets a standby that has just taken over."""
TAKEOVER_SECONDS = 2.0
"""The limit of the median gap. A single gap may be twice as long, as the machine's load has it."""
READY_SECONDS = 5.0
"""How long the standby is ready before its driver is killed: the start of its JVMs is over by then.
"""
COMMITS = "select extract(epoch from at)::float8 from ledger where tier = 'store' order by batch"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))


def ready_standby(lab: Lab, tier: str) -> int | None:
    """Return the tier's standby if it is ready."""
    record = lab.channel.read(paths.owner(tier), OwnerRecord)
    if record is None or record.value.standby is None:
        return None
    report = lab.channel.read(paths.report(tier, record.value.standby), IncarnationReport)
    return record.value.standby if report is not None and report.value.state is State.READY else None


def lose_driver(lab: Lab, tier: str, fault: Callable[[psutil.Process], None]) -> float:
    """Kill or freeze the driver of a tier with a ready standby, and wait until the standby has
    taken over; return the time of the fault.
    """
    standby = until(f"{tier} has a ready standby", lambda: ready_standby(lab, tier))
    time.sleep(READY_SECONDS)
    driver, lost_at = python_of(lab, tier), time.time()
    fault(driver)
    until(
        f"the standby of {tier} has caught up",
        lambda: (report := lab.report(tier, standby)) is not None and report.caught_up,
    )
    time.sleep(TAKEOVER_SECONDS)
    return lost_at


def test_a_standby_takes_over_in_two_seconds(lab: Lab) -> None:
    lab.write_class_data()  # the next standby starts beside the one that takes over
    with operated(lab):
        with feeding(lab) as fed:
            for tier in TIERS:
                sluice(lab, "start", tier)
            times = {
                tier: [lose_driver(lab, tier, fault) for fault in FAULTS for _ in range(ROUNDS)]
                for tier in TIERS
            }
        until(
            "every number is stored", lambda: lab.query("select count(*) from stored") == [(len(fed),)], 120
        )
    with closing(Streams(lab.endpoints.kafka)) as streams:
        seen = read_output(streams)
    commits = [committed_at for (committed_at,) in lab.query(COMMITS)]
    output_gaps = gaps(seen, times["enter"])
    commit_gaps = [min(later for later in commits if later > lost) - lost for lost in times["store"]]
    print(
        f"without output after {ROUNDS} kills and {ROUNDS} freezes: enter {output_gaps}, "
        f"to the next commit of store {commit_gaps}"
    )
    assert len({(record.out.partition, record.out.offset) for record in seen}) == len(fed)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    for found, interval in ((output_gaps, 0.0), (commit_gaps, LONGEST_INTERVAL)):
        assert max(found) < 2 * TAKEOVER_SECONDS + interval
        for kind in range(len(FAULTS)):
            assert median(found[kind * ROUNDS :][:ROUNDS]) < TAKEOVER_SECONDS + interval
