"""Executors whose wall clock steps by seconds and by an hour, and who die under it: nothing is
lost, put twice or out of order.

On real Kafka, PostgreSQL, ZooKeeper and Spark. Only the executors' JVMs are under that clock:
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
from tests.integration.sluice.auditing import lines, losses, started_audit
from tests.integration.sluice.test_handover import HOLES
from tests.integration.sluice.test_streams import Record, records
from tests.integration.sluice.test_workers import giving
from tests.lab import Lab, until
from tests.stepped_clock import Clock, stepped

PIPELINE_MODULE = "tests.integration.sluice.stepping"
PIPELINE = declarations.load(PIPELINE_MODULE)
TIERS = ("enter", "store")
STEPS = (15, -15, 3700, -3700)
"""How far from the true time the clock steps.

A broker takes no stamp that is an hour ahead, where it goes by stamps. Unit: seconds.
"""
CLOSE_SECONDS = 7
"""A record is stored within less, once the tiers have caught up."""
ENOUGH = 300
"""So many records are more than what was under way."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def clock(lab: Lab, tmp_path: Path) -> Iterator[Clock]:
    with stepped(tmp_path, home_for_spark(lab.home) / "bin" / "java") as made:
        lab.slot_env["JAVA_HOME"] = str(
            made.home
        )  # a Worker starts its executor from there; it is not itself started from there
        yield made
        lab.stop_all()


def test_killed_executors_with_stepped_clocks_lose_and_repeat_nothing(lab: Lab, clock: Clock) -> None:
    with closing(started_audit(lab, *(PIPELINE.tier(tier) for tier in TIERS))) as auditor:
        for tier, host in zip(TIERS, ("h1", "h2"), strict=True):
            lab.start_owner(tier, 1, host)
        with giving(lab) as given:
            for step in (0, *STEPS):
                if step:
                    clock.step(step)
                    _goes_on(lab, given, step)
                    for tier in TIERS:
                        lab.kill_executor(tier, 1)
                _goes_on(lab, given, step)
                assert auditor.look() == []
            before = len(given)
            until(
                "what was given under all clocks is audited",
                lambda: not auditor.look() and _audited(lab) >= before,
                120,
            )
        until("all is stored", lambda: lab.query("select count(*) from stored") == [(len(given),)], 60)
        assert auditor.look() == []
    for tier in TIERS:
        assert lab.driver(tier, 1).poll() is None
        report = lab.report(tier, 1)
        assert report is not None
        assert report.state is State.RUNNING
        assert losses(lab, tier) == []
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(given), len(given), sum(given))
    ]
    assert lab.query(HOLES) == []
    out = records(lab, "numbers")
    assert {record.value["n"] for record in out} == set(given)
    assert all(way == sorted(way) for way in _in_order_of_keys(out))


def _goes_on(lab: Lab, given: list[int], step: int) -> None:
    """Wait until records that are given from now on have gone through both tiers under a clock that
    is stepped so far.
    """
    first = len(given)
    query = f"select count(*) from stored where n >= {first} and abs(entered - {step}) < {CLOSE_SECONDS}"  # noqa: S608 — numbers of this test's
    query += f" and abs(stored - {step}) < {CLOSE_SECONDS}"
    until(f"records go through both tiers at {step:+d} s", lambda: lab.query(query)[0][0] > ENOUGH)


def _audited(lab: Lab) -> int:
    """Return how many records the audit has seen come out of every tier."""
    return min(sum(once for once, _ in lines(lab, tier).values()) for tier in TIERS)


def _in_order_of_keys(out: list[Record]) -> list[list[int]]:
    """Return the numbers of each key and partition of the input, as they came first."""
    ways = defaultdict[tuple[str, int], dict[int, None]](dict)
    for record in out:
        ways[record.value["who"], record.value["n"] % 4].setdefault(record.value["n"])
    return [list(way) for way in ways.values()]
