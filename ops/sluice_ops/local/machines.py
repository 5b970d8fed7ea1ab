"""The hosts that share this machine, and the burst hosts among them: one for each EC2 instance.

Pure, except for the file that stores them.
"""

from collections.abc import Iterable
from pathlib import Path

from sluice_ops.cloud.instance import host_of
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Frozen
from sluice_ops.site.files import write_private
from sluice_ops.site.site_file import Site

NETWORK = "127.0.2"
LAST = 254


def cpu_share(site: Site, processors: int) -> float:
    """Return which part of each core the site's hosts can give, if they share these processors."""
    cores = sum(host.capacity.cpu for host in site.hosts)
    return min(1.0, processors / cores) if cores else 1.0


class Machine(Frozen):
    """A simulated instance."""

    instance: str
    address: str

    @property
    def host(self) -> HostName:
        """The name of the host that its agent registers."""
        return host_of(self.instance)


class Machines(Frozen):
    """All simulated instances."""

    machines: tuple[Machine, ...] = ()

    def following(self, running: Iterable[str]) -> tuple["Machines", tuple[Machine, ...]]:
        """Return the machines for the running instances, and the machines that must end.

        A machine keeps its address while its instance runs.
        """
        wanted = set(running)
        staying = [machine for machine in self.machines if machine.instance in wanted]
        ended = tuple(machine for machine in self.machines if machine.instance not in wanted)
        used = {machine.address for machine in self.machines}
        free = (address for number in range(1, LAST + 1) if (address := f"{NETWORK}.{number}") not in used)
        running_before = {machine.instance for machine in staying}
        new = [Machine(instance=instance, address=next(free)) for instance in sorted(wanted - running_before)]
        return Machines(machines=(*staying, *new)), ended

    @classmethod
    def read(cls, path: Path) -> "Machines":
        """Read the stored machines; none if there is no file."""
        return cls.model_validate_json(path.read_text()) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Store the machines, readable by their owner only."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, self.model_dump_json(indent=1))
