"""A driver that hangs as it should stop: its agent, the controller and the Workers are real, and so is its process, which sleeps."""

import time
from pathlib import Path

import pytest

from sluice_ops.agent.units.reconcile import GRACE_SECONDS
from sluice_ops.model.change import Step
from tests.integration.sluice_ops.agent.conftest import SECONDS, Lab
from tests.integration.sluice_ops.agent.driving import HANGS
from tests.integration.sluice_ops.agent.hosting import hosted

pytestmark = pytest.mark.timeout(600)

DEADLINE = 40.0
"""Of each step: after half of it the driver counts as hanging, and not only after the minute that it has otherwise."""


def test_an_old_driver_that_hangs_is_killed_and_the_drain_goes_on(lab: Lab, tmp_path: Path) -> None:
    with hosted(lab, tmp_path) as hosts:
        world, pid, hangs = hosts.world, hosts.units("h1")["driver-entry-1"], lab.home / f"{HANGS}-entry-1"
        hangs.touch()
        runbook = world.begin("d1", DEADLINE, kind="drain", host="h1")
        world.until_true(lambda: runbook.current is Step.VERIFY, SECONDS)
        handed = time.monotonic()
        assert world.owner("entry").owner == 2
        world.until_true(lambda: world.incarnation("entry", 1).retired, SECONDS)
        retired = time.monotonic()
        assert retired - handed > DEADLINE / 2 - 2
        assert hosts.units("h1")["driver-entry-1"] == pid, "it hangs"
        world.until_true(lambda: "driver-entry-1" not in hosts.units("h1"), SECONDS)
        assert time.monotonic() - retired > GRACE_SECONDS - 2, "asked to end, it hung on"
        world.until_true(lambda: runbook.ended, SECONDS)
        assert runbook.ok, runbook.results
        assert (
            "1 left no receipt (it did not end by itself); 2 went on from what was committed"
            in runbook.results[Step.VERIFY].sentence
        )
        assert "h1 is drained, nothing is left on it" in runbook.results[Step.RELEASE].sentence
        world.until_true(hosts.whole, SECONDS)
        assert hosts.units("h1") == {}
        assert hangs.exists(), "to the end it would have hung"
