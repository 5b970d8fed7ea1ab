"""One platform for all scenarios, with its own home and ports, so that a running platform is not
disturbed.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, sync_playwright

from tests.packages import program
from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, child_environment, runs_completely, until

HOME = Path(os.environ.get("SLUICE_TEST_HOME", ROOT / ".sluice" / "test"))
PORT_BASE = int(os.environ.get("SLUICE_TEST_PORT_BASE", "29000"))


def quiet_site() -> dict[str, Any]:
    """Return the shipped site with shifts that start half a day from now, and without repair.

    A platform that is started soon after a shift's hour would start in that shift. A repair would
    hold the maintenance lock when a test needs it. The hosts stand in two racks.
    """
    site: dict[str, Any] = yaml.safe_load((ROOT / "site.yaml").read_text())
    site["repair"] = False
    for host, rack in zip(site["hosts"], ("r1", "r1", "r2"), strict=True):
        host["rack"] = rack
    for hours, shift in enumerate(site["shifts"].values(), start=11):
        shift |= {"schedule": f"0 {(datetime.now(UTC).hour + hours) % 24} * * *", "timezone": "UTC"}
    return site


@contextmanager
def platform(home: Path, site: dict[str, Any], **variables: str) -> Iterator[Live]:
    """Start a platform with this home and site, and stop it at the end in any case."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "site.yaml"
    path.write_text(yaml.safe_dump(site))
    env = child_environment(home, PORT_BASE) | {"SLUICE_SITE": str(path)} | variables
    running = Live(home=home, env=env)
    try:
        print(running.sluice("up", seconds=900).stdout)
        running.endpoints = running.sluice_json("endpoints")
        yield running
    finally:
        running.sluice("down", seconds=600, check=False)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("platform")


ORDER = {"test_spike.py": -1, "test_reclaims.py": -1, "test_faults.py": 1}
"""Files out of turn: two have platforms of their own, which end before the shared one starts.

The limits of time of the faults hold once class data is written, which takes some minutes beside
the first scenarios.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files in `ORDER` come first or last."""
    items.sort(key=lambda item: ORDER.get(item.path.name, 0))


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    with platform(HOME, quiet_site()) as running:
        yield running


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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def publish(live: Live, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Publish the shipped pipeline with edits; at the end upgrade every tier to the shipped code
    again.
    """

    def publish_edited(*, refused: str | None = None, **files: dict[str, str]) -> str:
        checkout = tmp_path / "checkout"
        shutil.rmtree(checkout, ignore_errors=True)
        for name in ("ops", "pipeline"):
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "site.yaml", checkout)
        for name, edits in files.items():
            path = checkout / "pipeline" / "hits" / f"{name}.py"
            for before, after in edits.items():
                assert path.read_text().count(before) == 1, before
                path.write_text(path.read_text().replace(before, after))
        done = subprocess.run(
            [sys.executable, "-m", "sluice.commands.publish"],
            env={**live.env, "PYTHONPATH": f"{checkout}/ops:{checkout}/pipeline"},
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        if refused is not None:
            assert done.returncode == 1, done.stdout
            assert refused in done.stderr
            assert "nothing was published" in done.stderr
            return ""
        assert done.returncode == 0, done.stderr
        release = re.search(r"release (r\d+-[0-9a-f]+)", done.stdout)
        assert release is not None, done.stdout
        return release[1]

    yield publish_edited
    shipped = publish_edited()
    for name, tier in live.tiers().items():
        if tier["release"] != shipped:
            live.sluice("upgrade", name, seconds=600)
