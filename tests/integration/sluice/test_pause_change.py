"""An operator pauses workers and a tier, with a real controller and agents: one at a time, from the
end of the pipeline.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from sluice_ops.model.assignment import slot_id
from sluice_ops.model.incarnation import IncarnationReport, State
from tests.integration.sluice.operated_lab import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.test_workers import PIPELINE_MODULE, feeding
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of("enter: {minimum: 1, target: 2, maximum: 2}, store: {minimum: 1, target: 3, maximum: 3}")


@pytest.fixture(scope="module")
def running(lab: Lab) -> Iterator[Lab]:
    with operated(lab):
        for tier in ("enter", "store"):
            sluice(lab, "start", tier)
            until(f"{tier} runs", lambda tier=tier: tier_line(lab, tier)["state"] == "running")
        yield lab


def number(lab: Lab, tier: str) -> int:
    return int(tier_line(lab, tier)["incarnation"])


def current_report(lab: Lab, tier: str) -> IncarnationReport:
    report = lab.report(tier, number(lab, tier))
    assert report is not None
    return report


def states(lab: Lab, tier: str) -> list[str]:
    return sorted(worker["state"] for worker in tier_line(lab, tier)["workers"])


def requested_at(receipt: Any) -> float:
    """Return when a driver got the request that this receipt answers."""
    return float(receipt["at"] - receipt["seconds"])


def test_workers_and_a_tier_are_paused_in_order_and_resumed(running: Lab) -> None:
    with feeding(running) as fed:
        workers = [
            slot_id("enter", number(running, "enter"), 1),
            *(slot_id("store", number(running, "store"), index) for index in (2, 0)),
        ]
        change = sluice(running, "pause", *(word for worker in workers for word in ("--worker", worker)))
        assert change["ok"], change
        receipts = steps(change)["pause"]["details"]["receipts"]
        assert receipts.keys() == set(workers)
        entered, *stored = sorted(workers, key=lambda worker: receipts[worker]["at"], reverse=True)
        assert entered == workers[0], "the workers of store are nearer to the end of the pipeline"
        assert requested_at(receipts[entered]) > max(receipts[worker]["at"] for worker in stored)
        assert requested_at(receipts[stored[0]]) > receipts[stored[1]]["at"], "workers pause one at a time"
        assert states(running, "store") == ["active", "paused", "paused"]
        assert states(running, "enter") == ["active", "paused"]

        refused = sluice(running, "pause", "--worker", slot_id("store", number(running, "store"), 1))
        assert "would have no worker left" in steps(refused)["preflight"]["sentence"]
        assert sluice(running, "resume")["ok"]
        assert states(running, "store") == ["active"] * 3
        assert states(running, "enter") == ["active"] * 2

        # A complete tier, and a worker of a tier further from the end.
        change = sluice(running, "pause", "store", "--worker", workers[0])
        assert change["ok"], change
        assert current_report(running, "store").state is State.PAUSED
        assert (
            requested_at(steps(change)["pause"]["details"]["receipts"][workers[0]])
            > current_report(running, "store").since
        )
        assert sluice(running, "resume")["ok"]
    until(
        "every number is stored once",
        lambda: running.query("select count(*), count(distinct n) from stored") == [(len(fed), len(fed))],
    )
