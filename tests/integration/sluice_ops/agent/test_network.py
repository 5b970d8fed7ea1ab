"""Units on one link send by their weights, one unit alone uses all of it, and a quiet unit is not
delayed: measured.

The link is a pair of interfaces that the test makes, one in its own namespace. The machine's
interfaces are not touched.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder, UnitRecord
from sluice_ops.agent.limits import traffic_control
from sluice_ops.agent.limits.control_groups import Containers, open_containers, remove_groups
from sluice_ops.agent.limits.network import find_network, open_network
from sluice_ops.agent.limits.traffic_control import classes
from sluice_ops.model.assignment import Unit
from sluice_ops.model.resources import Capacity, Link
from tests.integration.sluice_ops.agent.conftest import REPOSITORY, limited, slot, until

tools = pytest.mark.skipif(
    shutil.which("tc") is None or shutil.which("ip") is None, reason="this test needs iproute2"
)
pytestmark = [limited, tools, pytest.mark.long, pytest.mark.timeout(300)]

MBIT = 200
SECONDS = 8.0
HERE, THERE = "10.213.77.1", "10.213.77.2"
WEIGHTS = {7001: 300, 7002: 100}
LARGE, SMALL = (
    slot(name).model_copy(update={"quantum": slot().quantum.model_copy(update={"network": weight})})
    for name, weight in zip(("outbound", "enrich"), WEIGHTS.values(), strict=True)
)
PORTS = dict(zip((LARGE.id, SMALL.id), WEIGHTS, strict=True))


@dataclass
class Lab:
    home: Path
    link: Link
    sink: subprocess.Popen[str]

    def opened(self) -> Containers:
        """Divide the link, as an agent does when it starts."""
        unit_containers = open_containers(self.home, "h1", Capacity(cpu=os.cpu_count() or 1, memory=4096))
        containers, description = open_network(self.home, "h1", self.link, unit_containers)
        assert description == f"{self.link.interface}, {MBIT} mbit, divided by quantum.network"
        return containers

    def received(self) -> dict[str, int]:
        """Return how many bytes have arrived at each port."""
        assert self.sink.stdin is not None
        assert self.sink.stdout is not None
        self.sink.stdin.write("\n")
        self.sink.stdin.flush()
        counts: dict[str, int] = json.loads(self.sink.stdout.readline())
        return counts

    def rates(self, *units: Unit) -> list[float]:
        """Wait until all units send; return their rates. Unit: 10⁶ bits per second."""
        ports = [str(PORTS[unit.id]) for unit in units]
        first = self.received()
        until("all units send", lambda: all(self.received()[port] > first[port] for port in ports), 30)
        time.sleep(2.0)
        before, began = self.received(), time.monotonic()
        time.sleep(SECONDS)
        after, seconds = self.received(), time.monotonic() - began
        return [(after[port] - before[port]) * 8e-6 / seconds for port in ports]

    @contextmanager
    def flooding(self, containers: Containers, unit: Unit) -> Iterator[None]:
        process = self.started(containers, unit, "flood", THERE, str(PORTS[unit.id]), out=subprocess.DEVNULL)
        try:
            yield
        finally:
            for pid in containers.processes(unit.id, None):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            until("no process of the unit is left", lambda: not containers.processes(unit.id, None), 20)

    def started(
        self, containers: Containers, unit: Unit, *words: str, out: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a process in a unit's control group, as the agent's script does."""
        HostFolder(self.home, "h1").unit(unit.id).path.mkdir(exist_ok=True)
        HostFolder(self.home, "h1").unit(unit.id).write_record(
            UnitRecord(unit=unit, boot="", started_at=time.time())
        )
        procs_files = " ".join(str(file) for file in containers.admit(unit))
        script = f'for procs in {procs_files}; do echo $$ > "$procs"; done; exec "$@"'
        command = ["sh", "-c", script, "sh", sys.executable, "-m", "tests.traffic", *words]
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=out, text=True, start_new_session=True)

    def round_trip(self, containers: Containers, unit: Unit) -> tuple[float, float]:
        """Return the median round trip and the 95th percentile. Unit: milliseconds."""
        out, _ = self.started(containers, unit, "ask", THERE, str(SECONDS)).communicate(timeout=60)
        round_trips = sorted(json.loads(out))
        return statistics.median(round_trips), round_trips[len(round_trips) * 19 // 20]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    number = os.getpid()
    here, there, space = f"sla{number}", f"slb{number}", f"sluice-{number}"
    ip("netns", "add", space)
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
        ip("addr", "add", f"{HERE}/30", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", space, "addr", "add", f"{THERE}/30", "dev", there)
        ip("-n", space, "link", "set", there, "up")
        command = [
            "nsenter",
            f"--net=/run/netns/{space}",
            sys.executable,
            "-m",
            "tests.traffic",
            "sink",
            *map(str, WEIGHTS),
        ]
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as sink:
            assert sink.stdout is not None
            assert sink.stdout.readline() == "{}\n"
            HostFolder(tmp_path, "h1").make()
            yield Lab(tmp_path, Link(interface=here, mbit=MBIT), sink)
            sink.kill()
        network = find_network(tmp_path, "h1", open_containers(tmp_path, "h1", Capacity(cpu=1, memory=100)))
        for unit in (LARGE, SMALL):
            network.remove(unit.id)
        network.close()
        assert classes(here) is None, "the interface has its original queue again"
        assert not (HostFolder(tmp_path, "h1").path / "network.json").exists()
        remove_groups(tmp_path)
    finally:
        subprocess.run(
            ["ip", "link", "del", here], check=False
        )  # its namespace would remove it too, but later
        ip("netns", "del", space)


def test_units_send_by_their_weights_and_one_alone_uses_all(lab: Lab) -> None:
    containers = lab.opened()
    with lab.flooding(containers, LARGE):
        with lab.flooding(containers, SMALL):
            much, little = lab.rates(LARGE, SMALL)
            lab.opened()
            much_again, little_again = lab.rates(LARGE, SMALL)
        (alone,) = lab.rates(LARGE)
    print(
        f"3:1 of {MBIT} mbit: {much:.1f} and {little:.1f}; "
        f"after a restart of the agent {much_again:.1f} and {little_again:.1f}; alone {alone:.1f}"
    )
    assert much / little == pytest.approx(3, rel=0.05)
    assert much_again / little_again == pytest.approx(3, rel=0.05)
    assert much + little > 0.9 * MBIT
    assert alone > 0.9 * MBIT


def test_a_quiet_unit_is_not_delayed_by_a_greedy_one(lab: Lab) -> None:
    containers = lab.opened()
    idle = lab.round_trip(containers, SMALL)
    with lab.flooding(containers, LARGE):
        lab.rates(LARGE)
        beside, behind = lab.round_trip(containers, SMALL), lab.round_trip(containers, LARGE)
    texts = (f"{median:.2f} ({slow:.2f})" for median, slow in (idle, beside, behind))
    print(
        "round trips in ms, median and 95 %: idle {}, beside a greedy unit {}, in its own queue {}".format(
            *texts
        )
    )
    assert beside[0] < traffic_control.TURN_SECONDS * 1000
    assert 2 * beside[0] < behind[0]


def test_running_units_are_included_when_the_link_is_divided(lab: Lab) -> None:
    containers = open_containers(lab.home, "h1", Capacity(cpu=os.cpu_count() or 1, memory=4096))
    with lab.flooding(containers, LARGE), lab.flooding(containers, SMALL):
        until("both units send", lambda: min(lab.received().values()) > 0, 30)
        lab.opened()
        much, little = lab.rates(LARGE, SMALL)
    print(f"3:1 of {MBIT} mbit, started before the link was divided: {much:.1f} and {little:.1f}")
    assert much / little == pytest.approx(3, rel=0.05)
