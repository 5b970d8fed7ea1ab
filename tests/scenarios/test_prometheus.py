"""Prometheus with the shipped configuration, beside the platform: it finds and reads everything."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from sluice_ops.planning.alerts.catalogue import ALERTS
from tests.packages import program
from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(900)]

SHIPPED_PORT = 27009
"""The port of the metrics of the embedded controller, in the shipped configuration."""
PORT_OFFSET = 91
"""The port of Prometheus, above the platform's port base."""


class Prometheus:
    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str) -> Any:
        with urlopen(f"http://{self._address}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        try:
            return bool(self.ask("status/buildinfo"))
        except OSError:
            return False

    def targets(self) -> list[dict[str, Any]]:
        active: list[dict[str, Any]] = self.ask("targets?state=active")["activeTargets"]
        return active


@pytest.fixture
def prometheus(live: Live, tmp_path: Path) -> Iterator[Prometheus]:
    base = int(live.env["SLUICE_PORT_BASE"])
    shutil.copytree(ROOT / "docs" / "metrics", tmp_path / "metrics")
    config = tmp_path / "metrics" / "prometheus.yml"
    assert config.read_text().count(f":{SHIPPED_PORT}/") == 1
    config.write_text(
        config.read_text().replace(f":{SHIPPED_PORT}/", f":{base + 9}/").replace(": 15s", ": 5s")
    )
    address = f"127.0.0.1:{base + PORT_OFFSET}"
    arguments = (f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [program("prometheus"), *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        server = Prometheus(address)
        until("Prometheus answers", WAIT_SECONDS, server.is_ready)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_prometheus_reads_every_process_and_evaluates_every_rule(live: Live, prometheus: Prometheus) -> None:
    roles = {"agent": 3, "driver": 4, "controller": 1, "audit": 1}

    def all_up() -> bool:
        up = [target["labels"]["role"] for target in prometheus.targets() if target["health"] == "up"]
        return all(up.count(role) >= count for role, count in roles.items())

    until("every process is read", WAIT_SECONDS, all_up)
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {kind.rule[0] for kind in ALERTS if kind.rule is not None}
    until(
        "every rule is evaluated",
        WAIT_SECONDS,
        lambda: all(
            rule["health"] == "ok" for group in prometheus.ask("rules")["groups"] for rule in group["rules"]
        ),
    )
    flows = quote("sum by (tier) (rate(sluice_tier_records_out_total[1m])) > 0")
    until(
        "the rate of every tier is known",
        WAIT_SECONDS,
        lambda: (
            {series["metric"]["tier"] for series in prometheus.ask(f"query?query={flows}")["result"]}
            == live.tiers().keys()
        ),
    )
