"""Transforms that never return, in realtime and in Python, and a slow one: hung tasks are reported
and their executors ended, on real Spark. With `hangs_after=None` they are only reported.
"""

import json
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Streams
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.model.ids import HostName, UnitId
from tests.integration.sluice.operated_lab import operated, site_of, sluice, tier_line
from tests.integration.sluice.stalling_pipeline import HANGS_AFTER, KEPT, SLOW, STALL
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_hung_processes import is_running, out, owner
from tests.integration.sluice.test_workers import feeding
from tests.lab import HOSTS, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.stalling_pipeline"
TIERS = ("enter", "keep", "store", "slow")
HELD_SECONDS = 2.2 * HANGS_AFTER
"""How long a record holds its task: its executor is ended once; the next attempt has twice the
time, and succeeds.
"""
BUSY_SECONDS = 40.0
"""Allowance for a busy machine. Unit: seconds."""
ENDS, HANGS = "its executor is ended, and the query restarts", "a task hangs"
ONLY_REPORTED = "nothing is done about it (hangs_after is None)"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))


def log_of(lab: Lab, tier: str) -> str:
    unit = UnitId(f"driver-{tier}-{owner(lab, tier).incarnation}")
    return "".join(
        log.read_text()
        for host in HOSTS
        if (log := HostFolder(lab.home, HostName(host)).unit(unit).log).exists()
    )


def hang(lab: Lab, until_ms: int) -> None:
    """Make a task of each tier hang: the realtime task of a partition, and a task that calls
    Python.
    """
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    producer.produce("raw", json.dumps({"n": -1, "who": "nobody", "until": until_ms}), partition=0)
    assert producer.flush(30) == 0
    (lab.home / STALL).touch()


def count(lab: Lab, table: str) -> int:
    return int(lab.query(f"select count(*) from {table}")[0][0])  # noqa: S608 - a name of the test


def kept(lab: Lab) -> int:
    """Return how many records the tier without a limit has written."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        return sum(streams.bounds([KEPT.name]).ends.values())


def test_a_hung_task_is_reported_and_ended_and_a_slow_task_is_not(lab: Lab) -> None:
    with operated(lab):
        with feeding(lab) as fed:
            for tier in ("enter", "keep", "store"):
                sluice(lab, "start", tier)
            until("the tier without a limit writes", lambda: kept(lab) > 1000)
            until("records are stored", lambda: count(lab, "stored") > 1000)
            until("one batch of the slow tier waits", lambda: out(lab, "enter") > 2 * SLOW)
            sluice(lab, "start", "slow")
            until("the slow tier runs", lambda: is_running(lab, "slow"))
            hung_at = time.monotonic()
            hang(lab, int((time.time() + HELD_SECONDS) * 1000))
            for tier in ("enter", "store"):
                warning = until(f"{tier} reports a hung task", lambda tier=tier: tier_line(lab, tier)["hung"])
                print(f"{tier} reported after {time.monotonic() - hung_at:.0f} s: {warning}")
                assert f"its executor is ended after {HANGS_AFTER:.0f} s" in warning
                assert "input waits, and nothing was processed by a task on " in warning
                assert ("which reads raw/0" in warning) is (tier == "enter")
                assert is_running(lab, tier)
            warning = until("keep reports a hung task", lambda: tier_line(lab, "keep")["hung"])
            assert ONLY_REPORTED in warning
            assert "which reads raw/0" in warning
            for tier in ("enter", "store"):
                until(f"the executor of {tier} is ended", lambda tier=tier: ENDS in log_of(lab, tier))
                ended = time.monotonic() - hung_at
                print(f"{tier} ended after {ended:.0f} s")
                assert HANGS_AFTER - 5 < ended < HANGS_AFTER + BUSY_SECONDS
            stored_before = count(lab, "stored")
            until("records are stored again", lambda: count(lab, "stored") > stored_before)
            until(
                "the record that held its task is out",
                lambda: lab.query("select count(*) from stored where n = -1") == [(1,)],
            )
            for tier in ("enter", "keep", "store"):
                until(f"{tier} reports no hung task", lambda tier=tier: tier_line(lab, tier)["hung"] is None)
                assert is_running(lab, tier)
        expected = (len(fed) + 1, len(fed) + 1, sum(fed) - 1)
        for table in ("stored", "slowed"):
            until(f"every number is {table}", lambda table=table: count(lab, table) == len(fed) + 1)
            query = f"select count(*), count(distinct n), sum(n) from {table}"  # noqa: S608
            assert lab.query(query) == [expected]
        until("every number is kept, once", lambda: kept(lab) == len(fed) + 1)
        assert lab.query(LEDGER_GAPS) == []
        assert [log_of(lab, tier).count(ENDS) for tier in TIERS] == [1, 0, 1, 0]
        assert HANGS not in log_of(lab, "slow")
        assert {owner(lab, tier).incarnation for tier in TIERS} == {1}, "no driver was replaced"
