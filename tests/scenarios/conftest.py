"""One platform for all scenarios, with a home and ports of its own, so that a running one is not disturbed."""

import os
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
        print(platform.sluice("up", seconds=600).stdout)  # noqa: T201 — where the time went
        platform.endpoints = platform.ask("endpoints")
        yield platform
    finally:
        platform.sluice("down", check=False)


@pytest.fixture(autouse=True)
def whole(live: Live) -> None:
    """Each scenario starts on a whole pipeline and on hosts that are up."""
    for host in live.hosts().values():
        if host["state"] in {"cordoned", "drained"}:
            live.sluice("return", host["name"])
    until("the pipeline is whole before the scenario", 60, live.whole, every=1.0)
