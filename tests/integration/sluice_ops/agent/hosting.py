"""Three hosts with real agents and Workers, and a real controller. Their drivers are processes too, which carry no records (`driving`)."""

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
from tests.integration.sluice_ops.agent.conftest import REPOSITORY, SECONDS, Lab
from tests.integration.sluice_ops.agent.driving import stand_in

NAMES = ("h1", "h2", "h3")
PLACES = {"entry": "h1", "counts": "h2", "enrich": "h3"}
"""Where each tier is as long as its host is there."""
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
    """Nothing of it is simulated but who posts the steps of a change."""

    def report(self, name: str, number: int | None = None) -> IncarnationReport | None:
        number = self.owner(name).owner if number is None else number
        found = None if number is None else self.channel.read(paths.report(name, number), IncarnationReport)
        return None if found is None else found.value

    def state(self, name: str) -> State | None:
        said = self.report(name)
        return None if said is None else said.state


class Hosts:
    """The hosts, with what a fault does to them."""

    def __init__(self, lab: Lab, world: RealWorld, code: Path) -> None:
        self.lab, self.world, self._code = lab, world, code
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, host: str) -> None:
        """Start its agent."""
        self._agents[host] = self.lab.agent(host, code=self._code)

    def lose_agent(self, host: str) -> None:
        """Kill its agent; what that has started runs on."""
        self.lab.kill(self._agents.pop(host))

    def die(self, host: str) -> None:
        """Kill its agent and all that it has started, as a loss of power does."""
        self.lose_agent(host)
        containers = find_containers(self.lab.home, host)
        for unit in HostFolder(self.lab.home, host).units():
            session = unit.session()
            for pid in containers.processes(unit.id, session.pid if session else None):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def units(self, host: str) -> dict[str, int]:
        """Return the main process of each unit that runs there."""
        mains = {unit.id: unit.main() for unit in HostFolder(self.lab.home, host).units()}
        return {name: main.pid for name, main in mains.items() if main is not None and main.alive}

    def status(self) -> ControllerStatus:
        found = self.lab.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        assert found is not None
        return found.value

    def sluice(self, *words: str) -> str:
        """Return what a person is told."""
        command = [str(Path(sys.executable).with_name("sluice")), *words]
        environment = self.lab.environment | {"COLUMNS": "300"}
        done = subprocess.run(
            command,
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def placed(self) -> dict[str, tuple[int, Placement]]:
        """Return which incarnation owns each tier, and where it is."""
        return {name: (self.world.owner(name).owner, self.world.placement(name)) for name in self.world.specs}

    def whole(self) -> bool:
        """Tell whether every tier runs with its worker, and nothing else runs anywhere."""
        wanted: dict[str, set[str]] = {name: set() for name in self._agents}
        for name, (number, place) in self.placed().items():
            wanted.setdefault(place.driver, set()).add(f"driver-{name}-{number}")
            wanted.setdefault(place.slots[0], set()).add(f"slot-{name}-{number}-0")
        return self.world.all_well() and all(
            self.units(host).keys() == units for host, units in wanted.items()
        )


@contextmanager
def hosted(lab: Lab, folder: Path) -> Iterator[Hosts]:
    """Serve the hosts, and have the tiers run, each on its own."""
    file = folder / "site.yaml"
    file.write_text(SITE)
    lab.environment["SLUICE_SITE"] = str(file)
    tiers = [tier("entry", Mode.REALTIME, 1), tier("counts", Mode.BATCH, 0), tier("enrich", Mode.REALTIME, 0)]
    made = Hosts(
        lab, RealWorld(hosts=(), tiers=tiers, channel=lab.channel), stand_in(REPOSITORY, folder / "code")
    )
    with (lab.home / "controller.log").open("wb") as log:
        words = [
            sys.executable,
            "-m",
            "sluice_ops.controller",
            "--site",
            str(file),
            "--name",
            "c1",
            "--zookeeper",
            lab.channel.hosts,
        ]
        controller = subprocess.Popen(words, env=lab.environment, cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        for name in NAMES:
            made.serve(name)
        made.world.until_true(lambda: all(lab.channel.exists(paths.live(name)) for name in NAMES), SECONDS)
        made.world.want()
        made.world.until_true(
            lambda: all(made.world.owner(name).owner for name in PLACES) and made.whole(), SECONDS
        )
        assert {name: place for name, (_, place) in made.placed().items()} == {
            name: Placement(driver=host, slots=(host,)) for name, host in PLACES.items()
        }
        yield made
    finally:
        controller.terminate()
        controller.wait(20)
        sys.stdout.writelines(
            f"--- {log.name}\n{log.read_text()[-6000:]}\n" for log in lab.home.glob("*.log")
        )
