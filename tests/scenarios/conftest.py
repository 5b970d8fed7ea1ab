"""One platform for all scenarios, with its own home and ports, so that a running platform is not
disturbed.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, child_environment, runs_completely, until

HOME = Path(os.environ.get("SLUICE_TEST_HOME", ROOT / ".sluice" / "test"))
PORT_BASE = int(os.environ.get("SLUICE_TEST_PORT_BASE", "29000"))


def write_quiet_site() -> Path:
    """Write a site file whose shifts start half a day from now, and that repairs nothing by itself.

    A platform that is started soon after a shift's hour would start in that shift. A repair would
    hold the maintenance lock when a test needs it.
    """
    site = yaml.safe_load((ROOT / "site.yaml").read_text())
    site["repair"] = False
    for hours, shift in enumerate(site["shifts"].values(), start=11):
        shift |= {"schedule": f"0 {(datetime.now(UTC).hour + hours) % 24} * * *", "timezone": "UTC"}
    HOME.mkdir(parents=True, exist_ok=True)
    path = HOME / "site.yaml"
    path.write_text(yaml.safe_dump(site))
    return path


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("platform")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the faults come last: their limits of time hold once class data is written, which takes
    some minutes beside the first scenarios.
    """
    items.sort(key=lambda item: item.path.name == "test_faults.py")


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """Start the platform, and stop it at the end in any case."""
    platform = Live(
        home=HOME, env=child_environment(HOME, PORT_BASE) | {"SLUICE_SITE": str(write_quiet_site())}
    )
    try:
        print(platform.sluice("up", seconds=900).stdout)
        platform.endpoints = platform.sluice_json("endpoints")
        yield platform
    finally:
        platform.sluice("down", seconds=600, check=False)


@pytest.fixture(autouse=True)
def complete_pipeline(live: Live) -> None:
    """Before each scenario, wait until the complete pipeline runs on hosts that are up."""
    status = live.sluice_json("status")
    away = [host["name"] for host in status["hosts"] if host["state"] in {"cordoned", "drained"}]
    if not away and status["tiers"] and all(map(runs_completely, status["tiers"])):
        return
    for name in away:
        live.sluice("return", name)
    until("the complete pipeline runs before the scenario", WAIT_SECONDS, live.all_running, every=1.0)
