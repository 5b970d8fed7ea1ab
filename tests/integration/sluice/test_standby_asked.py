"""A driver is killed beside its warm standby, under a real controller and agents: how soon its tier
puts records out again.
"""

import time
from contextlib import closing

import pytest

from sluice.driver.engine.settings import INTERVAL
from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State
from tests.integration.sluice.asking import operated, site_of, sluice
from tests.integration.sluice.resting import gaps
from tests.integration.sluice.test_hung import python_of
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.relieving"
TIERS = ("enter", "store")
KILLS = 2
"""Of each tier: the second one of a standby that has just taken over."""
RELIEVED_SECONDS = 2.0
READY_SECONDS = 5.0
"""So long its standby is ready before a driver is killed: the start of its JVMs is over by then, as
on most days.
"""
COMMITS = "select extract(epoch from at)::float8 from ledger where tier = 'store' order by batch"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))


def relief(lab: Lab, tier: str) -> int | None:
    """Return the tier's standby once it is ready."""
    record = lab.channel.read(paths.owner(tier), OwnerRecord)
    if record is None or record.value.standby is None:
        return None
    report = lab.channel.read(paths.report(tier, record.value.standby), IncarnationReport)
    return record.value.standby if report is not None and report.value.state is State.READY else None


def killed(lab: Lab, tier: str) -> float:
    """Kill the driver of a tier whose standby is ready; return when, once that one has
    taken over.
    """
    standby = until(f"{tier} has a standby that is ready", lambda: relief(lab, tier))
    time.sleep(READY_SECONDS)
    driver, at = python_of(lab, tier), time.time()
    driver.kill()
    until(
        f"the standby of {tier} has caught up",
        lambda: (said := lab.report(tier, standby)) is not None and said.caught_up,
    )
    time.sleep(RELIEVED_SECONDS)
    return at


def test_a_killed_driver_is_relieved_in_two_seconds(lab: Lab) -> None:
    lab.write_class_data()  # the next standby is started beside the one that takes over
    with operated(lab):
        with feeding(lab) as fed:
            for tier in TIERS:
                sluice(lab, "start", tier)
            at = {tier: [killed(lab, tier) for _ in range(KILLS)] for tier in TIERS}
        until("all is stored", lambda: lab.query("select count(*) from stored") == [(len(fed),)], 120)
    with closing(Streams(lab.endpoints.kafka)) as streams:
        seen = read_output(streams)
    commits = [found for (found,) in lab.query(COMMITS)]
    without = gaps(seen, at["enter"])
    between = [min(later for later in commits if later > killed_at) - killed_at for killed_at in at["store"]]
    print(f"without output after each kill: enter {without}, to the next commit of store {between}")
    assert len({(each.out.partition, each.out.offset) for each in seen}) == len(fed)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert max(without) < RELIEVED_SECONDS
    assert max(between) < RELIEVED_SECONDS + INTERVAL
