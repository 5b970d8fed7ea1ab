"""A driver with a warm standby is killed, with a real controller and agents: how soon its tier has
output again.
"""

import time
from contextlib import closing
from statistics import median

import pytest

from sluice.driver.engine.settings import INTERVAL
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
KILLS = 3
"""Kills of each tier; each but the first kills a standby that has just taken over."""
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


def kill_with_standby(lab: Lab, tier: str) -> float:
    """Kill the driver of a tier with a ready standby, and wait until the standby has taken over;
    return the time of the kill.
    """
    standby = until(f"{tier} has a ready standby", lambda: ready_standby(lab, tier))
    time.sleep(READY_SECONDS)
    driver, killed_at = python_of(lab, tier), time.time()
    driver.kill()
    until(
        f"the standby of {tier} has caught up",
        lambda: (report := lab.report(tier, standby)) is not None and report.caught_up,
    )
    time.sleep(TAKEOVER_SECONDS)
    return killed_at


def test_a_standby_takes_over_in_two_seconds(lab: Lab) -> None:
    lab.write_class_data()  # the next standby starts beside the one that takes over
    with operated(lab):
        with feeding(lab) as fed:
            for tier in TIERS:
                sluice(lab, "start", tier)
            kill_times = {tier: [kill_with_standby(lab, tier) for _ in range(KILLS)] for tier in TIERS}
        until(
            "every number is stored", lambda: lab.query("select count(*) from stored") == [(len(fed),)], 120
        )
    with closing(Streams(lab.endpoints.kafka)) as streams:
        seen = read_output(streams)
    commits = [committed_at for (committed_at,) in lab.query(COMMITS)]
    output_gaps = gaps(seen, kill_times["enter"])
    commit_gaps = [
        min(later for later in commits if later > killed_at) - killed_at for killed_at in kill_times["store"]
    ]
    print(f"without output after each kill: enter {output_gaps}, to the next commit of store {commit_gaps}")
    assert len({(record.out.partition, record.out.offset) for record in seen}) == len(fed)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert median(output_gaps) < TAKEOVER_SECONDS
    assert max(output_gaps) < 2 * TAKEOVER_SECONDS
    assert median(commit_gaps) < TAKEOVER_SECONDS + INTERVAL
    assert max(commit_gaps) < 2 * TAKEOVER_SECONDS + INTERVAL
