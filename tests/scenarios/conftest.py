"""One platform for all scenarios, with a home and ports of its own, so that a running one is not disturbed."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.live import ROOT, Live, child_environment, until

HOME = Path(os.environ.get("SLUICE_TEST_HOME", ROOT / ".sluice" / "test"))
PORT_BASE = int(os.environ.get("SLUICE_TEST_PORT_BASE", "29000"))


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """Bring the platform up; take it down at the end, whatever happened."""
    platform = Live(home=HOME, env=child_environment(HOME, PORT_BASE))
    try:
        platform.sluice("up", seconds=600)
        platform.endpoints = platform.ask("endpoints")
        yield platform
    finally:
        subprocess.run(["sluice", "down"], env=platform.env, cwd=ROOT, timeout=120, check=False)


@pytest.fixture(autouse=True)
def whole(live: Live) -> None:
    """Each scenario starts on a whole pipeline and on hosts that are up."""
    for host in live.hosts().values():
        if host["state"] in {"cordoned", "drained"}:
            live.sluice("return", host["name"])
    until("the pipeline is whole before the scenario", 60, live.whole, every=1.0)
