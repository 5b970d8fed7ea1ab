"""A driver that hangs when it should stop.

Agent, controller and Workers are real; the driver is a process without records.
"""

import time
from pathlib import Path

import pytest

from sluice_ops.agent.units.reconcile import GRACE_SECONDS
from sluice_ops.model.change import Step
from tests.integration.sluice_ops.agent.conftest import DEADLINE_SECONDS, Lab
from tests.integration.sluice_ops.agent.stand_in_drivers import HANGS
from tests.integration.sluice_ops.agent.three_hosts import three_hosts

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

DEADLINE = 40.0
"""A step's deadline in seconds.

The driver counts as hung after half of the deadline, instead of after a minute.
"""


def test_an_old_driver_that_hangs_is_killed_and_the_drain_goes_on(lab: Lab, tmp_path: Path) -> None:
    with three_hosts(lab, tmp_path) as hosts:
        world, pid, hangs = hosts.world, hosts.units("h1")["driver-entry-1"], lab.home / f"{HANGS}-entry-1"
        hangs.touch()
        runbook = world.begin("d1", DEADLINE, kind="drain", host="h1")
        world.until_true(lambda: runbook.current is Step.VERIFY, DEADLINE_SECONDS)
        handed_over_at = time.monotonic()
        assert world.owner("entry").owner == 2
        world.until_true(lambda: world.incarnation("entry", 1).retired, DEADLINE_SECONDS)
        retired_at = time.monotonic()
        assert retired_at - handed_over_at > DEADLINE / 2 - 2
        assert hosts.units("h1")["driver-entry-1"] == pid, "the old driver still hangs"
        world.until_true(lambda: "driver-entry-1" not in hosts.units("h1"), DEADLINE_SECONDS)
        assert time.monotonic() - retired_at > GRACE_SECONDS - 2, "the old driver hung until it was killed"
        world.until_true(lambda: runbook.ended, DEADLINE_SECONDS)
        assert runbook.ok, runbook.results
        assert (
            "1 left no receipt (it did not end by itself); 2 went on from the last commit"
            in runbook.results[Step.VERIFY].sentence
        )
        assert "h1 is drained and empty" in runbook.results[Step.RELEASE].sentence
        world.until_true(hosts.as_wanted, DEADLINE_SECONDS)
        assert hosts.units("h1") == {}
        assert hangs.exists(), "the old driver would never have ended by itself"
