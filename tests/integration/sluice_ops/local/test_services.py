"""The parts themselves: they start, come back when killed, stop twice, and leave nothing behind, on ports of their own."""

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
from sluice_ops.site.installation import CHECKOUT

BASE = 27400
PARTS = "zookeeper,postgres"
pytestmark = pytest.mark.timeout(240)


@dataclass
class Installation:
    """A home of its own and the commands that work on it."""

    where: Layout

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        return kept | {"SLUICE_HOME": str(self.where.home), "SLUICE_PORT_BASE": str(BASE)}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sluice_ops.local.parts", *words]
        return subprocess.run(
            command,
            env=self.environment,
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    def endpoints(self) -> endpoints.Endpoints:
        return endpoints.Endpoints.model_validate_json(self.where.endpoints.read_text())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Installation]:
    found = Installation(Layout(home=tmp_path / "home", ports=Ports.above(BASE), site=CHECKOUT / "site.yaml"))
    yield found
    found.run("down")


def until(check: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.2)


def answers(place: Installation) -> bool:
    try:
        with psycopg.connect(place.endpoints().postgres, connect_timeout=2) as link:
            return link.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def test_parts_start_answer_come_back_when_killed_and_stop_without_a_trace(place: Installation) -> None:
    done = place.run("up", "--only", PARTS)
    assert done.returncode == 0, done.stderr
    assert answers(place)
    with Channel(place.endpoints().zookeeper) as channel:
        assert channel.children("/tiers") == []

    again = place.run("up", "--only", PARTS)
    assert again.stdout.count("already running") == 2

    pid = Supervisor(place.where).states()["postgres"]["pid"]
    psutil.Process(pid).kill()
    until(lambda: Supervisor(place.where).states()["postgres"]["pid"] not in {0, pid} and answers(place))

    assert place.run("down").returncode == 0
    assert place.run("down").returncode == 0
    assert not processes(place.where)
    assert (place.where.data / "postgres" / "PG_VERSION").exists()


def test_a_taken_port_is_refused_before_any_start_and_names_its_holder(place: Installation) -> None:
    with socket.create_server(("127.0.0.1", place.where.ports.postgres)):
        done = place.run("up", "--only", PARTS)
    assert done.returncode != 0
    assert f"port {place.where.ports.postgres} (postgres) is taken by" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert "SLUICE_PORT_BASE" in done.stderr
    assert not Supervisor(place.where).alive()


def test_a_service_that_cannot_start_is_named_with_the_end_of_its_log(place: Installation) -> None:
    place.where.make_folders()
    (place.where.data / "zookeeper").write_text("where a folder is expected")
    done = place.run("up", "--only", "zookeeper")
    assert done.returncode != 0
    assert "zookeeper has ended" in done.stderr
    assert "zookeeper.log" in done.stderr
    assert "Exception" in done.stderr


def test_ctrl_c_on_a_half_started_platform_leaves_nothing_running(place: Installation) -> None:
    command = [str(Path(sys.executable).with_name("sluice")), "up"]
    with subprocess.Popen(
        command,
        env=place.environment,
        cwd=CHECKOUT,
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
            said = starting.communicate(timeout=120)[0]
        finally:
            starting.kill()
        assert starting.returncode == 130, said
    assert not processes(place.where)
    assert "Traceback" not in said
