"""One platform for all scenarios, with a home and ports of its own, so that a running one is not disturbed."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.scenarios.live import PATIENCE, ROOT, Live, child_environment, until

HOME = Path(os.environ.get("SLUICE_TEST_HOME", ROOT / ".sluice" / "test"))
PORT_BASE = int(os.environ.get("SLUICE_TEST_PORT_BASE", "29000"))


def by_day() -> Path:
    """Write a site file whose shifts are half a day away: a platform that is brought up soon after one's hour begins with it."""
    site = yaml.safe_load((ROOT / "site.yaml").read_text())
    for hours, shift in enumerate(site["shifts"].values(), start=11):
        shift |= {"schedule": f"0 {(datetime.now(UTC).hour + hours) % 24} * * *", "timezone": "UTC"}
    HOME.mkdir(parents=True, exist_ok=True)
    path = HOME / "site.yaml"
    path.write_text(yaml.safe_dump(site))
    return path


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """Bring the platform up; take it down at the end, whatever happened."""
    platform = Live(home=HOME, env=child_environment(HOME, PORT_BASE) | {"SLUICE_SITE": str(by_day())})
    try:
        print(platform.sluice("up", seconds=900).stdout)
        platform.endpoints = platform.ask("endpoints")
        yield platform
    finally:
        platform.sluice("down", seconds=600, check=False)


@pytest.fixture(autouse=True)
def whole(live: Live) -> None:
    """Each scenario starts on a whole pipeline and on hosts that are up."""
    for host in live.hosts().values():
        if host["state"] in {"cordoned", "drained"}:
            live.sluice("return", host["name"])
    until("the pipeline is whole before the scenario", PATIENCE, live.whole, every=1.0)
