"""A person has workers and a tier paused, by a controller and agents that are real: one at a time, nearest the pipeline's end first."""

from collections.abc import Iterator
from typing import Any

import pytest

from sluice_ops.model.assignment import slot_id
from sluice_ops.model.incarnation import IncarnationReport, State
from tests.integration.sluice.asking import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.test_workers import PIPELINE_MODULE, giving
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


def said(lab: Lab, tier: str) -> IncarnationReport:
    found = lab.report(tier, number(lab, tier))
    assert found is not None
    return found


def states(lab: Lab, tier: str) -> list[str]:
    return sorted(worker["state"] for worker in tier_line(lab, tier)["workers"])


def begun(receipt: Any) -> float:
    """Return when a driver was told of what it has a receipt of."""
    return float(receipt["at"] - receipt["seconds"])


def test_a_set_of_workers_and_a_tier_rests_in_order_and_works_again(running: Lab) -> None:
    with giving(running) as given:
        workers = [
            slot_id("enter", number(running, "enter"), 1),
            *(slot_id("store", number(running, "store"), each) for each in (2, 0)),
        ]
        asked = sluice(running, "pause", *(word for worker in workers for word in ("--worker", worker)))
        assert asked["ok"], asked
        receipts = steps(asked)["pause"]["details"]["receipts"]
        assert receipts.keys() == set(workers)
        entered, *stored = sorted(workers, key=lambda worker: receipts[worker]["at"], reverse=True)
        assert entered == workers[0], "the end of the pipeline is nearer to the others"
        assert begun(receipts[entered]) > max(receipts[worker]["at"] for worker in stored)
        assert begun(receipts[stored[0]]) > receipts[stored[1]]["at"], "one at a time"
        assert states(running, "store") == ["active", "paused", "paused"]
        assert states(running, "enter") == ["active", "paused"]

        refused = sluice(running, "pause", "--worker", slot_id("store", number(running, "store"), 1))
        assert "would have no worker left" in steps(refused)["preflight"]["sentence"]
        assert sluice(running, "resume")["ok"]
        assert states(running, "store") == ["active"] * 3
        assert states(running, "enter") == ["active"] * 2

        # a tier as a whole, and a worker of another, which is further from the end
        asked = sluice(running, "pause", "store", "--worker", workers[0])
        assert asked["ok"], asked
        assert said(running, "store").state is State.PAUSED
        assert begun(steps(asked)["pause"]["details"]["receipts"][workers[0]]) > said(running, "store").since
        assert sluice(running, "resume")["ok"]
    until(
        "all is stored, once",
        lambda: running.query("select count(*), count(distinct n) from stored") == [(len(given), len(given))],
    )
