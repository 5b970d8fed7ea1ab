"""Executors whose wall clock steps by seconds and by an hour, and that are killed: no record is
lost, duplicated or out of order.

On real Kafka, PostgreSQL, ZooKeeper and Spark. Only the executors' JVMs have the stepped clock;
brokers and drivers have the true time.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sluice.api import declarations
from sluice_ops.model.incarnation import State
from sluice_ops.site.java import home_for_spark
from tests.integration.sluice.audit_writers import lines, losses, started_audit
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_streams import Record, records
from tests.integration.sluice.test_workers import feeding
from tests.lab import Lab, until
from tests.stepped_clock import Clock, stepped

PIPELINE_MODULE = "tests.integration.sluice.wall_clock_pipeline"
PIPELINE = declarations.load(PIPELINE_MODULE)
TIERS = ("enter", "store")
STEPS = (15, -15, 3700, -3700)
"""The steps of the clock from the true time, in seconds.

A broker that uses timestamps refuses one that is an hour ahead.
"""
CLOSE_SECONDS = 7
"""The longest time until a record is stored, if the tiers have no lag."""
NEW_RECORDS = 300
"""More records than are under way at one time."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def clock(lab: Lab, tmp_path: Path) -> Iterator[Clock]:
    with stepped(tmp_path, home_for_spark(lab.home) / "bin" / "java") as stepped_clock:
        lab.slot_env["JAVA_HOME"] = str(
            stepped_clock.home
        )  # a Worker starts its executor from this JAVA_HOME, but is not itself started from it
        yield stepped_clock
        lab.stop_all()


def test_killed_executors_with_stepped_clocks_lose_and_repeat_nothing(lab: Lab, clock: Clock) -> None:
    with closing(started_audit(lab, *(PIPELINE.tier(tier) for tier in TIERS))) as auditor:
        for tier, host in zip(TIERS, ("h1", "h2"), strict=True):
            lab.start_owner(tier, 1, host)
        with feeding(lab) as fed:
            for step in (0, *STEPS):
                if step:
                    clock.step(step)
                    _assert_flows(lab, fed, step)
                    for tier in TIERS:
                        lab.kill_executor(tier, 1)
                _assert_flows(lab, fed, step)
                assert auditor.check() == []
            before = len(fed)
            until(
                "records of all clock steps are audited",
                lambda: not auditor.check() and _audited(lab) >= before,
                120,
            )
        until("every number is stored", lambda: lab.query("select count(*) from stored") == [(len(fed),)], 60)
        assert auditor.check() == []
    for tier in TIERS:
        assert lab.driver(tier, 1).poll() is None
        report = lab.report(tier, 1)
        assert report is not None
        assert report.state is State.RUNNING
        assert losses(lab, tier) == []
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query(LEDGER_GAPS) == []
    out = records(lab, "numbers")
    assert {record.value["n"] for record in out} == set(fed)
    assert all(numbers == sorted(numbers) for numbers in _in_order_of_keys(out))


def _assert_flows(lab: Lab, fed: list[int], step: int) -> None:
    """Wait until new records have gone through both tiers with the clock stepped by `step`
    seconds.
    """
    first = len(fed)
    query = f"select count(*) from stored where n >= {first}"  # noqa: S608
    query += f" and abs(entered - {step}) < {CLOSE_SECONDS}"
    query += f" and abs(stored - {step}) < {CLOSE_SECONDS}"
    until(f"records go through both tiers at {step:+d} s", lambda: lab.query(query)[0][0] > NEW_RECORDS)


def _audited(lab: Lab) -> int:
    """Return how many records the audit has seen in the output of every tier."""
    return min(sum(once for once, _ in lines(lab, tier).values()) for tier in TIERS)


def _in_order_of_keys(out: list[Record]) -> list[list[int]]:
    """Return the numbers of each key and input partition, in the order of their first copies."""
    numbers_by_key = defaultdict[tuple[str, int], dict[int, None]](dict)
    for record in out:
        numbers_by_key[record.value["who"], record.value["n"] % 4].setdefault(record.value["n"])
    return [list(numbers) for numbers in numbers_by_key.values()]
