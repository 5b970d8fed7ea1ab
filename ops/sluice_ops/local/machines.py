"""Which burst hosts this machine plays: one for each instance, with an address that stays its own. Pure but for its one file."""

from collections.abc import Iterable
from pathlib import Path

from sluice_ops.cloud.ec2 import host_of
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Frozen
from sluice_ops.site.files import write_private

NETWORK = "127.0.2"
LAST = 254


class Machine(Frozen):
    """One instance as it is played here."""

    instance: str
    address: str

    @property
    def host(self) -> HostName:
        """The host that its agent registers."""
        return host_of(self.instance)


class Machines(Frozen):
    """All of them."""

    machines: tuple[Machine, ...] = ()

    def following(self, running: Iterable[str]) -> tuple["Machines", tuple[Machine, ...]]:
        """Return what is to be played while these instances run, and the machines that are to end."""
        wanted = set(running)
        kept = [machine for machine in self.machines if machine.instance in wanted]
        ended = tuple(machine for machine in self.machines if machine.instance not in wanted)
        used = {machine.address for machine in self.machines}
        free = (address for number in range(1, LAST + 1) if (address := f"{NETWORK}.{number}") not in used)
        known = {machine.instance for machine in kept}
        new = [Machine(instance=instance, address=next(free)) for instance in sorted(wanted - known)]
        return Machines(machines=(*kept, *new)), ended

    @classmethod
    def read(cls, path: Path) -> "Machines":
        """Read what was played last."""
        return cls.model_validate_json(path.read_text()) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Remember it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, self.model_dump_json(indent=1))
