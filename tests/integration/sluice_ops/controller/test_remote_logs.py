"""`sluice logs` reads logs of an agent and a controller over a real ZooKeeper with access lists."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel, NotAllowedError, access_lists
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.logs import LogRequest

pytestmark = pytest.mark.timeout(120)
SITE = Path(__file__).parents[4] / "site.yaml"
SECONDS = 60
LINE = "a line with a record of a customer"


@pytest.fixture
def environment(site_endpoints, tmp_path):
    """Return the variables of a process with a home of its own."""
    file = tmp_path / "endpoints.json"
    file.write_text(site_endpoints.model_dump_json())

    def of(name):
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        settings = {"SLUICE_ENDPOINTS": str(file), "SLUICE_HOME": str(home), "SLUICE_SITE": str(SITE)}
        return {**os.environ, **settings}

    return of


@pytest.fixture
def start(environment, tmp_path):
    """Start a process; all are ended after the test."""
    started = []

    def begin(name, *words):
        with (tmp_path / f"{name}.log").open("w") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *words], env=environment(name), stdout=log, stderr=log
                )
            )
        return started[-1]

    yield begin
    for process in started:
        process.terminate()
        process.wait(20)


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_logs_of_other_machines_are_for_the_operator_only(
    site_endpoints, admin, environment, start, tmp_path
):
    def logs(*words):
        command = [str(Path(sys.executable).with_name("sluice")), "logs", *words]
        return subprocess.run(
            command, env=environment("operator"), capture_output=True, text=True, timeout=60, check=False
        )

    agent = start("h1", "sluice_ops.agent", "--host", "h1")
    start("c1", "sluice_ops.controller", "--site", str(SITE), "--name", "c1")
    until(lambda: admin.exists(paths.host_logs("h1")) and admin.exists(paths.CONTROLLER_STATUS))
    until(lambda: admin.exists(paths.CONTROLLER_LOGS))
    ended = HostFolder(tmp_path / "h1", "h1").path / "ended"
    ended.mkdir()
    (ended / "driver-entry-4.log").write_text(f"first\n{LINE}\n")

    begun = time.monotonic()
    done = logs("driver-entry-4", "--host", "h1", "--lines", "1", "--json")
    assert json.loads(done.stdout) == {"log": "h1/driver-entry-4", "lines": [LINE]}, done.stderr
    print(f"sluice logs took {time.monotonic() - begun:.2f} s")
    assert "host registered" in logs("h1").stdout
    controller = logs("controller")
    assert "leads" in controller.stdout, controller
    until(lambda: not admin.children(paths.host_logs("h1")))
    assert not admin.children(paths.CONTROLLER_LOGS)

    request, path = LogRequest(to="h1", key="x"), paths.host_log_request("h1", "r1")
    for role in (Role.DRIVER, Role.AGENT, Role.AUDIT, Role.PUBLISHER):
        with (
            Channel(site_endpoints.zookeeper, site_endpoints.required_credential(role)) as channel,
            pytest.raises(NotAllowedError),
        ):
            channel.create(path, request, ephemeral=True)
    other = HostFolder(tmp_path / "h2", "h2")
    other.make()
    stolen = replace(site_endpoints.required_credential(Role.AGENT), own=other.credential())
    operator = Channel(site_endpoints.zookeeper, site_endpoints.required_credential(Role.OPERATOR))
    with Channel(site_endpoints.zookeeper, stolen) as agent_of_h2, operator:
        with pytest.raises(NotAllowedError):
            agent_of_h2.create(path, request, ephemeral=True)
        operator.create(path, request, ephemeral=True)
        assert access_lists.find_wrong(admin.kazoo) == []
        assert access_lists.find_unlisted(admin.kazoo) == []
    assert not admin.exists(path), "the request ends with its session"

    agent.send_signal(signal.SIGKILL)
    until(lambda: not admin.exists(paths.live("h1")))
    lost = logs("driver-entry-4", "--host", "h1")
    assert (lost.returncode, lost.stdout) == (3, "")
    assert "host h1 is lost" in lost.stderr
