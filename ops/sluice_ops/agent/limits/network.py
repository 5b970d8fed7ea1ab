"""Sending on the host's link, divided among its units by `Quantum.network`: where the site file says so, and the agent is root.

The kernel's controller net_prio gives each packet of a group's processes a priority. Version 2 of control groups has no such controller, so
its groups are beside those of `control_groups`, with either version. Groups and classes outlive the agent, as the units do; the next agent
reads from them which unit is which. An error here keeps no agent and no unit from starting; it is logged.
"""

import errno
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
from pydantic import ValidationError

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits import traffic_control
from sluice_ops.agent.limits.control_groups import QUIET, Containers, ContainersWrapper, installation_group
from sluice_ops.agent.limits.traffic_control import NotDividedError
from sluice_ops.model.assignment import Unit
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Link
from sluice_ops.site.files import write_private

log = structlog.get_logger()

CONTROLLER = "net_prio"
PRIORITIES = "net_prio.ifpriomap"
OURS = Path("/run/sluice/net_prio")
"""Where the controller is mounted if it is mounted nowhere: not below /sys/fs/cgroup, which with version 2 is a tree of groups itself."""
KEPT = "network.json"
"""What is divided, in the host's folder: for who ends its units without the site file, and for an agent that is told otherwise."""
NOT_ASKED = "not divided: the site file gives this host no `network`"


class Network:
    """One host's part of net_prio, and the classes of its link."""

    def __init__(self, tree: Path, folder: HostFolder, home: Path, link: Link) -> None:
        """Divide `link`, by groups below `tree`; find the classes of units that run."""
        self.link = link
        self._file = folder.path / KEPT
        self._tree, self._group = tree, tree / installation_group(home) / folder.host
        records = (unit.record() for unit in folder.units())
        self.units = tuple(record.unit for record in records if record is not None)
        self._weights = {unit.id: _weight(unit) for unit in self.units}
        found = (
            (group, traffic_control.number(_carried(group, link.interface)))
            for group in self._group.glob("*/")
        )
        self._numbers = {UnitId(group.name): number for group, number in found if number is not None}

    def open(self) -> None:
        """Make the host's group, which is also the sign that the interface is taken."""
        for other in self._tree.glob("sluice-*/*/"):
            if other != self._group and _carried(other, self.link.interface):
                message = (
                    f"{other.name} of {other.parent.name} divides {self.link.interface} on this machine already; if it is gone, "
                    f"remove the folders in {other}, and it, with rmdir"
                )
                raise NotDividedError(message)
        self._group.mkdir(parents=True, exist_ok=True)
        write_private(self._file, self.link.model_dump_json())
        self._carry(self._group, traffic_control.OTHERS)
        self.admit(*self.units)

    def admit(self, *units: Unit) -> None:
        """Give units their classes, and everyone their part."""
        for unit in units:
            (self._group / unit.id).mkdir(exist_ok=True)
            self._weights[unit.id] = _weight(unit)
            self._numbers.setdefault(unit.id, traffic_control.free(self._numbers.values()))
        self._divide()
        for unit in units:
            self._carry(self._group / unit.id, self._numbers[unit.id])

    def procs(self, unit: UnitId) -> Path:
        """Return the file that a process writes its pid to, to send as the unit."""
        return self._group / unit / "cgroup.procs"

    def remove(self, *units: UnitId) -> None:
        """Take units' classes away."""
        for unit in units:
            if (self._group / unit).exists():
                (self._group / unit).rmdir()
            self._weights.pop(unit, None)
            self._numbers.pop(unit, None)
        self._divide()

    def close(self) -> None:
        """Give the interface its own queue back, once no unit is left."""
        for group in self._group.glob("*/"):
            with suppress(OSError):
                group.rmdir()
        if any(self._group.glob("*/")):
            return
        if self._ours:
            traffic_control.undivide(self.link.interface)
        with suppress(FileNotFoundError):
            self._group.rmdir()
        with suppress(OSError):
            self._group.parent.rmdir()
        if self._tree == OURS and not any(self._tree.glob("*/")):
            subprocess.run(["umount", str(OURS)], capture_output=True, check=False)
            with suppress(OSError):
                OURS.rmdir()
        self._file.unlink(missing_ok=True)

    def withdraw(self) -> None:
        """Give the interface its own queue back, whatever runs; the groups of what runs say nothing any more, and go with it."""
        if self._ours:
            traffic_control.undivide(self.link.interface)
        for group in (self._group, *self._group.glob("*/")):
            with suppress(OSError):
                (group / PRIORITIES).write_text(f"{self.link.interface} 0")
        self.close()

    def has(self, unit: UnitId) -> bool:
        """Tell whether a unit has a class."""
        return unit in self._numbers

    @property
    def _ours(self) -> bool:
        """Whether this host divides the interface, and no other of the machine."""
        return _carried(self._group, self.link.interface) != 0

    def _divide(self) -> None:
        traffic_control.divide(
            self.link,
            {number: self._weights[unit] for unit, number in self._numbers.items() if unit in self._weights},
        )

    def _carry(self, group: Path, number: int) -> None:
        try:
            (group / PRIORITIES).write_text(f"{self.link.interface} {traffic_control.priority(number)}")
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            message = f"{CONTROLLER} knows no {self.link.interface}: it knows those of the machine itself, not of a network namespace"
            raise NotDividedError(message) from error


class ContainersWithNetwork(ContainersWrapper):
    """Containers whose units share the network, too."""

    def __init__(self, containers: Containers, network: Network) -> None:
        """Add the network to what containers divide."""
        super().__init__(containers)
        self._network = network
        self._said: str | None = None

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's container, and its class."""
        joins = super().admit(unit)
        return (
            (*joins, self._network.procs(unit.id)) if self._done(lambda: self._network.admit(unit)) else joins
        )

    def set_weights(self, unit: Unit) -> None:
        """Set the weights of a container that is there."""
        super().set_weights(unit)
        self._done(lambda: self._network.admit(unit))

    def remove(self, unit: UnitId) -> None:
        """Remove an empty container, and its class."""
        super().remove(unit)
        if self._network.has(unit):
            self._done(lambda: self._network.remove(unit))

    def close(self) -> None:
        """Remove the host's own container, and what divides the link, once they are empty."""
        super().close()
        self._done(self._network.close)

    def adopt_running_units(self, folder: HostFolder) -> None:
        """Have what runs already send as the units that it belongs to; twice, for what is started meanwhile."""
        for unit in 2 * self._network.units:
            session = folder.unit(unit.id).session()
            for pid in self._containers.processes(unit.id, session.pid if session else None):
                with suppress(ProcessLookupError):
                    self._network.procs(unit.id).write_text(str(pid))

    def _done(self, step: Callable[[], None]) -> bool:
        """Do it; what keeps it from being done is said once."""
        try:
            step()
        except (OSError, NotDividedError) as error:
            if str(error) != self._said:
                log.warning(
                    "the network is not divided as it should be",
                    interface=self._network.link.interface,
                    error=str(error),
                )
            self._said = str(error)
            return False
        self._said = None
        return True


def open_network(home: Path, host: str, link: Link | None, containers: Containers) -> tuple[Containers, str]:
    """Divide the host's link beside what its containers divide, if it has one to divide; say how it is."""
    folder = HostFolder(home, host)
    before = _kept(folder)
    try:
        if before is not None and (link is None or link.interface != before.interface):
            Network(_mounted(), folder, home, before).withdraw()
        if link is None:
            return containers, NOT_ASKED
        if (why := missing_requirement(link)) is not None:
            return containers, _undivided(link, why)
        network = Network(_mounted(), folder, home, link)
        try:
            network.open()
        except (OSError, NotDividedError):
            with suppress(OSError, NotDividedError):
                network.close()
            raise
        found = ContainersWithNetwork(containers, network)
        found.adopt_running_units(folder)
    except (OSError, NotDividedError) as error:
        return containers, _undivided(
            link, str(error)
        ) if link is not None else f"{NOT_ASKED}; but what was divided: {error}"
    return found, f"{link.interface}, {link.mbit} mbit, divided by quantum.network"


def find_network(home: Path, host: str, containers: Containers) -> Containers:
    """Return a host's containers with the link that its agent divides, for whoever ends its units."""
    folder = HostFolder(home, host)
    link = _kept(folder)
    if link is None or os.geteuid() != 0:
        return containers
    try:
        return ContainersWithNetwork(containers, Network(_mounted(), folder, home, link))
    except OSError as error:
        _undivided(link, str(error))
        return containers


def missing_requirement(link: Link, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> str | None:
    """Say what is missing to divide a link, and what to do; None where all is there. Changes nothing."""
    if os.geteuid() != 0:
        return f"user {os.geteuid()} may not: have the agent run as root (`systemctl edit sluice-agent@…`, User=root)"
    if not any(line.startswith(f"{CONTROLLER}\t") for line in (proc / "cgroups").read_text().splitlines()):
        return f"the kernel has no {CONTROLLER} (CONFIG_CGROUP_NET_PRIO)"
    if not (sys / "class/net" / link.interface).exists():
        there = ", ".join(sorted(path.name for path in (sys / "class/net").glob("*")))
        return (
            f"there is no interface {link.interface}, but {there}: correct network.interface in the site file"
        )
    try:
        traffic_control.classes(link.interface)
    except NotDividedError as error:
        return str(error)
    return None


def _mounted(mounts: Path = Path("/proc/mounts")) -> Path:
    """Return where the controller is mounted; mount it where it is not."""
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and CONTROLLER in options.split(","):
            return Path(where)
    OURS.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "cgroup", "-o", CONTROLLER, CONTROLLER, str(OURS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{CONTROLLER} cannot be mounted at {OURS}: {' '.join(done.stderr.split())}"
        raise OSError(message)
    return OURS


def _undivided(link: Link, why: str) -> str:
    log.warning("the network is not divided", interface=link.interface, why=why)
    return f"{link.interface} is not divided: {why}"


def _kept(folder: HostFolder) -> Link | None:
    try:
        return Link.model_validate_json((folder.path / KEPT).read_bytes(), extra="ignore")
    except (FileNotFoundError, ValidationError):
        return None


def _weight(unit: Unit) -> int:
    return max(1, int(unit.quantum.network * (QUIET if unit.quiet else 1)))


def _carried(group: Path, interface: str) -> int:
    """Return the priority that packets of a group's processes carry on an interface."""
    try:
        said = (group / PRIORITIES).read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in said if line.split()[0] == interface), 0)
