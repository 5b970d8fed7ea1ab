"""The agent with a real ZooKeeper, a real Spark master and real Workers."""

import os
import time
from pathlib import Path

import pytest

from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.channel.client import SESSION_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.assignment import DECOMMISSIONED_EXIT, Decommissioned
from sluice_ops.process.metrics_server import exporters
from tests.integration.sluice_ops.agent.conftest import Lab, application, executors, slot, until
from tests.scrape import scrape

pytestmark = pytest.mark.timeout(400)


def test_a_slot_runs_the_executor_of_the_application_with_its_label(lab: Lab) -> None:
    lab.start_agent()
    lab.assign(slot())
    lab.wait_running(slot())
    work = application(lab, slot().label, 2)
    (executor,) = until("an executor in the slot's control group", lambda: executors(lab, slot()))
    environment = Path(f"/proc/{executor}/environ").read_text().split("\0")
    assert f"SLUICE_UNIT=h1/{slot().id}" in environment
    assert "SPARK_LOCAL_IP=127.0.1.1" in environment
    out, _ = work.communicate(timeout=120)
    assert out.strip() == "result [7]"
    (exporter,) = exporters(lab.channel)
    assert (exporter.host, exporter.address.partition(":")[0]) == ("h1", "127.0.1.1")
    metrics = scrape(exporter, unit=slot().id) | scrape(exporter, kind="slot", state="running")
    assert (metrics["sluice_agent_units"], metrics["sluice_unit_restarts_total"]) == (1, 0)
    if find_containers(lab.home, "h1").limits.startswith("cgroup") and os.geteuid() == 0:
        assert metrics["sluice_unit_cpu_seconds_total"] > 0.5, "a JVM has started"
        assert 50e6 < metrics["sluice_unit_memory_bytes"] < metrics["sluice_unit_memory_limit_bytes"]


def test_units_survive_their_agent_and_the_next_agent_adopts_them(
    lab: Lab,
) -> None:
    first = lab.start_agent()
    lab.assign(slot())
    before = lab.wait_running(slot())
    started = lab.observed().agent_started  # type: ignore[union-attr]
    gone: list[bytes | None] = []
    lab.channel.kazoo.DataWatch(
        paths.live("h1"), lambda data, _stat: gone.append(data) if data is None else None
    )
    killed = time.monotonic()
    lab.kill(first)
    lab.start_agent()
    until("the next agent reports", lambda: (seen := lab.observed()) and seen.agent_started > started)
    after = lab.wait_running(slot())
    assert (after.pid, after.restarts) == (before.pid, 0)
    assert lab.channel.exists(paths.live("h1"))
    if time.monotonic() - killed < SESSION_SECONDS:
        assert gone == [], "the ephemeral node was replaced in one step: the host was never lost"


def test_the_agent_of_a_decommissioned_host_ends_with_its_units(lab: Lab) -> None:
    agent = lab.start_agent()
    lab.assign(slot())
    running = lab.wait_running(slot())
    gone = Decommissioned(change="d1", by="cli:anna", at=0.0)
    lab.channel.create(paths.decommissioned("h1"), gone)
    assert agent.wait(60) == DECOMMISSIONED_EXIT
    assert not lab.channel.exists(paths.live("h1")), "its session ends at once"
    assert not Path(f"/proc/{running.pid}").exists()
    assert not {"credential", "assignment.json"} & {file.name for file in (lab.home / "hosts/h1").iterdir()}
    again = lab.start_agent()
    assert again.wait(60) == DECOMMISSIONED_EXIT
    assert "decommissioned at 1970-01-01 00:00 UTC by cli:anna" in (lab.home / "agent-h1.log").read_text()
