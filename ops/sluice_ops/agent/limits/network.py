"""Divide sending on the host's link among its units by `quantum.network`.

This needs `network` in the site file, and an agent that runs as root. The kernel's controller
net_prio gives each packet of a group's processes a priority, and `traffic_control` has a class for
each priority. Version 2 of control groups has no such controller, so these groups are always extra
groups. Groups and classes outlive the agent, as units do, and the next agent reads them. An error
is logged, and stops no agent and no unit.
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
"""Where the agent mounts net_prio if it is mounted nowhere.

Not below /sys/fs/cgroup, which is itself a tree of groups in version 2.
"""
LINK_FILE = "network.json"
"""The divided link, in the host's folder: for processes that end units without the site file, and
for an agent with another link.
"""
NOT_ASKED = "not divided: the site file gives this host no `network`"


class Network:
    """The net_prio groups of one host, and the classes of its link."""

    def __init__(self, tree: Path, folder: HostFolder, home: Path, link: Link) -> None:
        """Use groups below `tree`, and read the classes of running units from them."""
        self.link = link
        self._file = folder.path / LINK_FILE
        self._tree, self._group = tree, tree / installation_group(home) / folder.host
        records = (unit.record() for unit in folder.units())
        self.units = tuple(record.unit for record in records if record is not None)
        self._weights = {unit.id: _weight(unit) for unit in self.units}
        classes = (
            (group, traffic_control.class_of(_priority(group, link.interface)))
            for group in self._group.glob("*/")
        )
        self._classes = {UnitId(group.name): number for group, number in classes if number is not None}

    def open(self) -> None:
        """Make the host's group, and divide the link among the running units.

        The group also shows that this host divides the interface. Raise NotDividedError if another
        host does.
        """
        for other in self._tree.glob("sluice-*/*/"):
            if other != self._group and _priority(other, self.link.interface):
                message = (
                    f"host {other.name} of {other.parent.name} divides {self.link.interface} on this machine "
                    f"already; if that host is gone, remove its groups: rmdir {other}/*/ {other}"
                )
                raise NotDividedError(message)
        self._group.mkdir(parents=True, exist_ok=True)
        write_private(self._file, self.link.model_dump_json())
        self._set_priority(self._group, traffic_control.OTHERS)
        self.admit(*self.units)

    def admit(self, *units: Unit) -> None:
        """Give units classes, and divide the link among all units."""
        for unit in units:
            (self._group / unit.id).mkdir(exist_ok=True)
            self._weights[unit.id] = _weight(unit)
            self._classes.setdefault(unit.id, traffic_control.free_class(self._classes.values()))
        self._divide()
        for unit in units:
            self._set_priority(self._group / unit.id, self._classes[unit.id])

    def procs(self, unit: UnitId) -> Path:
        """Return the file to which a process writes its pid to send as the unit."""
        return self._group / unit / "cgroup.procs"

    def remove(self, *units: UnitId) -> None:
        """Remove the units' groups and classes."""
        for unit in units:
            if (self._group / unit).exists():
                (self._group / unit).rmdir()
            self._weights.pop(unit, None)
            self._classes.pop(unit, None)
        self._divide()

    def close(self) -> None:
        """Restore the interface's own queue, if no unit is left."""
        for group in self._group.glob("*/"):
            with suppress(OSError):
                group.rmdir()
        if any(self._group.glob("*/")):
            return
        if self._divides:
            traffic_control.restore_queue(self.link.interface)
        with suppress(FileNotFoundError):
            self._group.rmdir()
        with suppress(OSError):
            self._group.parent.rmdir()
        if self._tree == OURS and not any(self._tree.glob("*/")):
            subprocess.run(["umount", str(OURS)], capture_output=True, check=False)
            with suppress(OSError):
                OURS.rmdir()
        self._file.unlink(missing_ok=True)

    def undo(self) -> None:
        """Restore the interface's own queue, even if units run.

        The groups of running units lose their priority, and disappear with the units.
        """
        if self._divides:
            traffic_control.restore_queue(self.link.interface)
        for group in (self._group, *self._group.glob("*/")):
            with suppress(OSError):
                (group / PRIORITIES).write_text(f"{self.link.interface} 0")
        self.close()

    def has(self, unit: UnitId) -> bool:
        """Tell whether a unit has a class."""
        return unit in self._classes

    @property
    def _divides(self) -> bool:
        """Whether this host divides the interface, and no other host of the machine."""
        return _priority(self._group, self.link.interface) != 0

    def _divide(self) -> None:
        traffic_control.divide(
            self.link,
            {number: self._weights[unit] for unit, number in self._classes.items() if unit in self._weights},
        )

    def _set_priority(self, group: Path, number: int) -> None:
        """Give the packets of a group's processes the priority of a class."""
        try:
            (group / PRIORITIES).write_text(f"{self.link.interface} {traffic_control.priority(number)}")
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            message = (
                f"{CONTROLLER} does not know {self.link.interface}: "
                "it knows interfaces of the machine, not those of a network namespace"
            )
            raise NotDividedError(message) from error


class ContainersWithNetwork(ContainersWrapper):
    """Containers whose units also share the link."""

    def __init__(self, containers: Containers, network: Network) -> None:
        """Add the network to `containers`."""
        super().__init__(containers)
        self._network = network
        self._logged_error: str | None = None

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's container and class."""
        joins = super().admit(unit)
        return (
            (*joins, self._network.procs(unit.id)) if self._try(lambda: self._network.admit(unit)) else joins
        )

    def set_weights(self, unit: Unit) -> None:
        """Set the weights of an existing container and class."""
        super().set_weights(unit)
        self._try(lambda: self._network.admit(unit))

    def remove(self, unit: UnitId) -> None:
        """Remove an empty container and its class."""
        super().remove(unit)
        if self._network.has(unit):
            self._try(lambda: self._network.remove(unit))

    def close(self) -> None:
        """Remove the host's own container and queue, if no unit is left."""
        super().close()
        self._try(self._network.close)

    def adopt_running_units(self, folder: HostFolder) -> None:
        """Move the processes of running units into their groups.

        This happens twice, because the processes may start more processes meanwhile.
        """
        for unit in 2 * self._network.units:
            session = folder.unit(unit.id).session()
            for pid in self._containers.processes(unit.id, session.pid if session else None):
                with suppress(ProcessLookupError):
                    self._network.procs(unit.id).write_text(str(pid))

    def _try(self, step: Callable[[], None]) -> bool:
        """Do a step, and return whether it worked; log the same error once."""
        try:
            step()
        except (OSError, NotDividedError) as error:
            if str(error) != self._logged_error:
                log.warning(
                    "dividing the link failed: units may send more or less than their share",
                    interface=self._network.link.interface,
                    error=str(error),
                )
            self._logged_error = str(error)
            return False
        self._logged_error = None
        return True


def open_network(home: Path, host: str, link: Link | None, containers: Containers) -> tuple[Containers, str]:
    """Divide the host's link, if the site file gives it one.

    Return the containers, and the state of the link for the log.
    """
    folder = HostFolder(home, host)
    before = _divided_link(folder)
    try:
        if before is not None and (link is None or link.interface != before.interface):
            Network(_mounted(), folder, home, before).undo()
        if link is None:
            return containers, NOT_ASKED
        if (problem := missing_requirement(link)) is not None:
            return containers, _undivided(link, problem)
        network = Network(_mounted(), folder, home, link)
        try:
            network.open()
        except (OSError, NotDividedError):
            with suppress(OSError, NotDividedError):
                network.close()
            raise
        with_network = ContainersWithNetwork(containers, network)
        with_network.adopt_running_units(folder)
    except (OSError, NotDividedError) as error:
        if link is None:
            return containers, f"{NOT_ASKED}; the earlier division could not be removed: {error}"
        return containers, _undivided(link, str(error))
    return with_network, f"{link.interface}, {link.mbit} mbit, divided by quantum.network"


def find_network(home: Path, host: str, containers: Containers) -> Containers:
    """Return the containers with the link that the host's agent divides.

    For processes that only end the host's units.
    """
    folder = HostFolder(home, host)
    link = _divided_link(folder)
    if link is None or os.geteuid() != 0:
        return containers
    try:
        return ContainersWithNetwork(containers, Network(_mounted(), folder, home, link))
    except OSError as error:
        _undivided(link, str(error))
        return containers


def missing_requirement(link: Link, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> str | None:
    """Return the missing requirement for dividing a link and its remedy; None if none is missing.

    Changes nothing.
    """
    if os.geteuid() != 0:
        return (
            f"user {os.geteuid()} may not divide the network: "
            "run the agent as root (`systemctl edit sluice-agent@…`, User=root)"
        )
    if not any(line.startswith(f"{CONTROLLER}\t") for line in (proc / "cgroups").read_text().splitlines()):
        return f"the kernel has no {CONTROLLER} (CONFIG_CGROUP_NET_PRIO)"
    if not (sys / "class/net" / link.interface).exists():
        interfaces = ", ".join(sorted(path.name for path in (sys / "class/net").glob("*")))
        return (
            f"this machine has no interface {link.interface}, but {interfaces}: "
            "correct network.interface in the site file"
        )
    try:
        traffic_control.classes(link.interface)
    except NotDividedError as error:
        return str(error)
    return None


def _mounted(mounts: Path = Path("/proc/mounts")) -> Path:
    """Return the folder where net_prio is mounted; mount it below /run/sluice if necessary."""
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


def _undivided(link: Link, reason: str) -> str:
    log.warning(
        "the link is not divided; all units send as they can", interface=link.interface, reason=reason
    )
    return f"{link.interface} is not divided: {reason}"


def _divided_link(folder: HostFolder) -> Link | None:
    """Return the link that an earlier agent of the host divided."""
    try:
        return Link.model_validate_json((folder.path / LINK_FILE).read_bytes(), extra="ignore")
    except (FileNotFoundError, ValidationError):
        return None


def _weight(unit: Unit) -> int:
    return max(1, int(unit.quantum.network * (QUIET if unit.quiet else 1)))


def _priority(group: Path, interface: str) -> int:
    """Return the priority of the packets of a group's processes on an interface; 0 without one."""
    try:
        lines = (group / PRIORITIES).read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == interface), 0)
