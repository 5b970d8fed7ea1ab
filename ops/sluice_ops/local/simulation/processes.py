"""The processes of a simulation: the controllers, as in production, and the simulated agents. Called by `run`."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sluice_ops.local.simulation.cluster import Size
from sluice_ops.local.simulation.losses import Board, Held, Published
from sluice_ops.model.ids import HostName, UnitId

T = TypeVar("T")


class SimulationError(Exception):
    """The simulation came to no result; the message says where it stood still, and what its processes said."""


class Controllers:
    """Controllers by name, and the most memory that any of them has taken."""

    def __init__(self, site: Path, address: str, logs: Path) -> None:
        """Run them on a ZooKeeper."""
        self._site, self._address, self._logs = site, address, logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._peak = 0

    def start(self) -> str:
        """Start one more; return its name."""
        name = f"c{len(list(self._logs.glob('c*.log'))) + 1}"
        words = [
            sys.executable,
            "-m",
            "sluice_ops.controller",
            "--site",
            str(self._site),
            "--name",
            name,
            "--zookeeper",
            self._address,
        ]
        with (self._logs / f"{name}.log").open("w") as log:
            self._running[name] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        return name

    def kill(self, name: str) -> None:
        """Kill one, as a crash would."""
        self.peak()
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def peak(self) -> int:
        """Return the largest resident memory so far, in bytes."""
        for process in self._running.values():
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self._peak = max(self._peak, int(line.split()[1]) * 1024)
        return self._peak

    def ended(self) -> list[str]:
        """Name those that have ended by themselves."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def stop(self) -> None:
        """Kill all."""
        for process in self._running.values():
            process.kill()
            process.wait()


class Agents:
    """The process that plays the agents, and what it has received."""

    def __init__(self, size: Size, sessions: int, address: str, log: Path) -> None:
        """Start it."""
        words = [sys.executable, "-m", "sluice_ops.local.simulation.agents", "--zookeeper", address]
        words += ["--hosts", str(size.hosts), "--slots", str(size.slots), "--sessions", str(sessions)]
        with log.open("w") as out:
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=out, text=True, start_new_session=True
            )
        self.registered = 0
        self._board = Board()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            said = json.loads(line)
            if "registered" in said:
                self.registered = said["registered"]
                continue
            units = frozenset(
                Held(UnitId(name), tenant, incarnation) for name, tenant, incarnation in said["units"]
            )
            with self._lock:
                self._board.take(Published(HostName(said["host"]), said["at"], units))

    def board(self, ask: Callable[[Board], T]) -> T:
        """Ask the board something while nothing is being written on it."""
        with self._lock:
            return ask(self._board)

    def holds(self, host: HostName) -> frozenset[Held]:
        """Return what a host has been assigned."""
        return self.board(lambda board: board.now.get(host, frozenset()))

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
