"""Three hosts with real agents, real Workers and a real controller.

Their drivers are processes without records (`stand_in_drivers`).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simulation.live import LiveWorld
from simulation.world import tier

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, Placement, State
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import Mode
from tests.integration.sluice_ops.agent.conftest import DEADLINE_SECONDS, REPOSITORY, Lab
from tests.integration.sluice_ops.agent.stand_in_drivers import make_checkout

NAMES = ("h1", "h2", "h3")
PLACES = {"entry": "h1", "counts": "h2", "enrich": "h3"}
"""The host of each tier while no host is lost."""
SITE = f"""\
pipeline: hits
partitions: 4
hosts:
  - {{name: h1, address: 127.0.1.1, capacity: {{cpu: 8, memory: 16g}}}}
  - {{name: h2, address: 127.0.1.2, capacity: {{cpu: 8, memory: 16g}}}}
  - {{name: h3, address: 127.0.1.3, capacity: {{cpu: 8, memory: 16g}}}}
shares: {{{", ".join(f"{name}: {{minimum: 1, target: 1, maximum: 1}}" for name in PLACES)}}}
locality: {{{", ".join(f"{name}: {host}" for name, host in PLACES.items())}}}
"""


class RealWorld(LiveWorld):
    """Only the runbooks are simulated; the test steps them."""

    def report(self, name: str, number: int | None = None) -> IncarnationReport | None:
        number = self.owner(name).owner if number is None else number
        versioned = (
            None if number is None else self.channel.read(paths.report(name, number), IncarnationReport)
        )
        return None if versioned is None else versioned.value

    def state(self, name: str) -> State | None:
        report = self.report(name)
        return None if report is None else report.state


class Hosts:
    """The hosts, and the faults that a test causes."""

    def __init__(self, lab: Lab, world: RealWorld, code: Path) -> None:
        self.lab, self.world, self._code = lab, world, code
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    def start_agent(self, host: str) -> None:
        """Start the host's agent."""
        self._agents[host] = self.lab.start_agent(host, code=self._code)

    def lose_agent(self, host: str) -> None:
        """Kill the host's agent; its units run on."""
        self.lab.kill(self._agents.pop(host))

    def die(self, host: str) -> None:
        """Kill the host's agent and all its units, as a power loss does."""
        self.lose_agent(host)
        containers = find_containers(self.lab.home, host)
        for unit in HostFolder(self.lab.home, host).units():
            session = unit.session()
            for pid in containers.processes(unit.id, session.pid if session else None):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def units(self, host: str) -> dict[str, int]:
        """Return the main pid of each unit that runs on a host."""
        mains = {unit.id: unit.main() for unit in HostFolder(self.lab.home, host).units()}
        return {name: main.pid for name, main in mains.items() if main is not None and main.alive}

    def status(self) -> ControllerStatus:
        versioned = self.lab.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        assert versioned is not None
        return versioned.value

    def sluice(self, *words: str) -> str:
        """Run `sluice WORDS` as an operator; return its output."""
        command = [str(Path(sys.executable).with_name("sluice")), *words]
        environment = self.lab.environment | {"COLUMNS": "300"}
        done = subprocess.run(
            command,
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def owners(self) -> dict[str, tuple[int, Placement]]:
        """Return the owning incarnation of each tier, and its placement."""
        return {name: (self.world.owner(name).owner, self.world.placement(name)) for name in self.world.specs}

    def as_wanted(self) -> bool:
        """Tell whether every tier runs with its worker, and no other unit runs."""
        expected: dict[str, set[str]] = {name: set() for name in self._agents}
        for name, (number, place) in self.owners().items():
            expected.setdefault(place.driver, set()).add(f"driver-{name}-{number}")
            expected.setdefault(place.slots[0], set()).add(f"slot-{name}-{number}-0")
        return self.world.all_well() and all(
            self.units(host).keys() == units for host, units in expected.items()
        )


@contextmanager
def three_hosts(lab: Lab, folder: Path) -> Iterator[Hosts]:
    """Start an agent on each host and a controller, and wait until all tiers run."""
    tiers = [tier("entry", Mode.REALTIME, 1), tier("counts", Mode.BATCH, 0), tier("enrich", Mode.REALTIME, 0)]
    hosts = Hosts(
        lab, RealWorld(hosts=(), tiers=tiers, channel=lab.channel), make_checkout(REPOSITORY, folder / "code")
    )
    with lab.running_controller(SITE):
        for name in NAMES:
            hosts.start_agent(name)
        hosts.world.until_true(
            lambda: all(lab.channel.exists(paths.live(name)) for name in NAMES), DEADLINE_SECONDS
        )
        hosts.world.want()
        hosts.world.until_true(
            lambda: all(hosts.world.owner(name).owner for name in PLACES) and hosts.as_wanted(),
            DEADLINE_SECONDS,
        )
        assert {name: place for name, (_, place) in hosts.owners().items()} == {
            name: Placement(driver=host, slots=(host,)) for name, host in PLACES.items()
        }
        yield hosts
