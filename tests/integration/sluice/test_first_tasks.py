"""First tasks on real Spark: an empty task where no record comes, and records once they flow.

A realtime tier, and a tier in micro-batches with a slot in which nothing is left to do.
"""

import time

import pytest

from sluice_ops.model.assignment import slot_id
from tests.integration.sluice.test_spare_workers import kill_executor
from tests.integration.sluice.test_workers import feeding
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.slow_sink_pipeline"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def first_tasks(lab: Lab, tier: str, *numbers: int) -> dict[int, int]:
    """Wait until these workers of incarnation 1 have run their first tasks; return the records."""
    names = {slot_id(tier, 1, number): number for number in numbers}

    def reported() -> dict[int, int] | None:
        report = lab.report(tier, 1)
        if report is None or report.first_tasks is None or not report.first_tasks.keys() >= names.keys():
            return None
        return {number: report.first_tasks[worker] for worker, number in names.items()}

    begun = time.monotonic()
    result = until(f"workers {numbers} of {tier} have run tasks", reported, 240)
    print(f"{tier}: first tasks {result} after {time.monotonic() - begun:.1f} s")
    assert result is not None
    return result


def test_new_workers_run_empty_tasks_until_records_flow(lab: Lab) -> None:
    lab.start_owner("enter", 1, "h1", slots=2)
    lab.start_owner("store", 1, "h2", slots=2)
    for tier in ("enter", "store"):
        assert first_tasks(lab, tier, 0, 1) == {0: 0, 1: 0}
    with feeding(lab):
        for tier in ("enter", "store"):
            kill_executor(lab, slot_id(tier, 1, 1))
            until(
                f"the first task of the lost worker of {tier} is forgotten",
                lambda tier=tier: slot_id(tier, 1, 1) not in (lab.report(tier, 1).first_tasks or {}),
            )
            assert first_tasks(lab, tier, 1)[1] > 0
