"""The processes of a simulation: real controllers, and one process for all simulated agents."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sluice_ops.local.simulation.cluster import Size
from sluice_ops.local.simulation.losses import AssignedUnit, Board, Published
from sluice_ops.model.ids import HostName, UnitId

T = TypeVar("T")


class SimulationError(Exception):
    """The simulation has no result; the message names the failed step and quotes the logs."""


class Controllers:
    """The running controllers, and the peak memory of all controllers so far."""

    def __init__(self, site: Path, address: str, logs: Path) -> None:
        """Use this site file, this ZooKeeper address, and this folder for logs."""
        self._site, self._address, self._logs = site, address, logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._peak = 0

    def start(self) -> str:
        """Start another controller; return its name."""
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
        """Kill a controller with SIGKILL, as a crash would."""
        self.peak()
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def peak(self) -> int:
        """Return the largest resident memory of a controller so far, in bytes."""
        for process in self._running.values():
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self._peak = max(self._peak, int(line.split()[1]) * 1024)
        return self._peak

    def ended(self) -> list[str]:
        """Return the names of controllers that ended by themselves."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def stop(self) -> None:
        """Kill all controllers."""
        for process in self._running.values():
            process.kill()
            process.wait()


class Agents:
    """The process of the simulated agents, and the assignments that it received."""

    def __init__(self, size: Size, sessions: int, address: str, log: Path) -> None:
        """Start the process."""
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
            report = json.loads(line)
            if "registered" in report:
                self.registered = report["registered"]
                continue
            units = frozenset(
                AssignedUnit(UnitId(name), tenant, incarnation)
                for name, tenant, incarnation in report["units"]
            )
            with self._lock:
                self._board.add(Published(HostName(report["host"]), report["at"], units))

    def board(self, read: Callable[[Board], T]) -> T:
        """Return a value that `read` takes from the board, while the board does not change."""
        with self._lock:
            return read(self._board)

    def assigned(self, host: HostName) -> frozenset[AssignedUnit]:
        """Return the units that are assigned to a host."""
        return self.board(lambda board: board.now.get(host, frozenset()))

    @property
    def ended(self) -> bool:
        """Whether the process ended by itself."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
