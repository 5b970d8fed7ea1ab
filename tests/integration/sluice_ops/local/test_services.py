"""The embedded services start, restart when killed, stop twice, and leave no process behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest

from sluice_ops.channel.client import Channel
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.processes import processes
from sluice_ops.local.start.supervisord import Supervisor
from sluice_ops.site import endpoints
from tests.lab import ROOT

BASE = 27400
SERVICES = "zookeeper,postgres"
pytestmark = pytest.mark.timeout(240)


@dataclass
class Installation:
    """A home with its own ports, and the commands that work on it."""

    layout: Layout

    @property
    def environment(self) -> dict[str, str]:
        other_variables = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        return other_variables | {"SLUICE_HOME": str(self.layout.home), "SLUICE_PORT_BASE": str(BASE)}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sluice_ops.local.parts", *words]
        return subprocess.run(
            command,
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    def endpoints(self) -> endpoints.Endpoints:
        return endpoints.Endpoints.model_validate_json(self.layout.endpoints.read_text())


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    new_installation = Installation(
        Layout(home=tmp_path / "home", ports=Ports.above(BASE), site=ROOT / "site.yaml")
    )
    yield new_installation
    new_installation.run("down")


def until(check: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.2)


def answers(installation: Installation) -> bool:
    try:
        with psycopg.connect(installation.endpoints().postgres, connect_timeout=2) as link:
            return link.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def test_services_start_answer_restart_when_killed_and_stop_without_trace(installation: Installation) -> None:
    done = installation.run("up", "--only", SERVICES)
    assert done.returncode == 0, done.stderr
    assert answers(installation)
    with Channel(installation.endpoints().zookeeper) as channel:
        assert channel.children("/tiers") == []

    second_start = installation.run("up", "--only", SERVICES)
    assert second_start.stdout.count("already running") == 2

    pid = Supervisor(installation.layout).states()["postgres"]["pid"]
    psutil.Process(pid).kill()
    until(
        lambda: (
            Supervisor(installation.layout).states()["postgres"]["pid"] not in {0, pid}
            and answers(installation)
        )
    )

    assert installation.run("down").returncode == 0
    assert installation.run("down").returncode == 0
    assert not processes(installation.layout)
    assert (installation.layout.data / "postgres" / "PG_VERSION").exists()


def test_a_taken_port_is_refused_before_any_start_and_names_its_holder(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", installation.layout.ports.postgres)):
        done = installation.run("up", "--only", SERVICES)
    assert done.returncode != 0
    assert f"port {installation.layout.ports.postgres} (postgres) is taken by" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert "SLUICE_PORT_BASE" in done.stderr
    assert not Supervisor(installation.layout).alive()


def test_a_service_that_cannot_start_is_named_with_the_end_of_its_log(installation: Installation) -> None:
    installation.layout.make_folders()
    (installation.layout.data / "zookeeper").write_text("a file where a folder is expected")
    done = installation.run("up", "--only", "zookeeper")
    assert done.returncode != 0
    assert "zookeeper ended during its start" in done.stderr
    assert "zookeeper.log" in done.stderr
    assert "Exception" in done.stderr


def test_ctrl_c_on_a_half_started_platform_leaves_nothing_running(installation: Installation) -> None:
    command = [str(Path(sys.executable).with_name("sluice")), "up"]
    with subprocess.Popen(
        command,
        env=installation.environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as starting:
        assert starting.stdout is not None
        try:
            for line in starting.stdout:
                if " postgres " in line:
                    break
            starting.send_signal(signal.SIGINT)
            output = starting.communicate(timeout=120)[0]
        finally:
            starting.kill()
        assert starting.returncode == 130, output
    assert not processes(installation.layout)
    assert "Traceback" not in output
