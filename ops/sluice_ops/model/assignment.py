"""What the controller wants on one host, and what its agent observes there."""

from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self

from pydantic import Field

from sluice_ops.model.ids import BATCH, HostName, Incarnation, Tenant, UnitId
from sluice_ops.model.resources import CoreCount, Frozen, Mebibytes, Quantum

HUNG_SINCE = "hung since"
"""With these words the end of a unit that hung begins, wherever it is told."""


class UnitKind(StrEnum):
    """What a container holds."""

    SLOT = "slot"
    """A Spark Worker with a label, sized for one executor."""
    DRIVER = "driver"


class Unit(Frozen):
    """One container on a host. Agents know nothing of tiers: this is all they need."""

    id: Annotated[UnitId, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    """The folder of its files is called so."""
    kind: UnitKind
    tenant: Tenant
    incarnation: Incarnation
    quantum: Quantum
    label: str
    """The Spark resource that only this tenant's incarnation asks for."""
    quiet: bool = False
    """Preparing: it yields the processor to everything that serves records."""


class Assignment(Frozen):
    """`assignments/<host>`: written by the controller; an agent makes it true and keeps it true."""

    epoch: int = 0
    units: tuple[Unit, ...] = ()
    reboot: str | None = None
    """The id of the operation that asks for a reboot; the agent does it once for each id."""

    def holding(self, units: tuple[Unit | dict[str, Any], ...]) -> Self:
        """Return it with these units; new ones may be told by their values, for copies take twice as long to make."""
        said = {**(self.model_extra or {}), "epoch": self.epoch, "units": units, "reboot": self.reboot}
        return type(self).model_validate(said, extra="allow")

    @cached_property
    def parts(self) -> list[tuple[UnitId, bool]]:
        """What the controller holds an assignment against, once for each: its units by name, and whether each is quiet."""
        return [(unit.id, unit.quiet) for unit in self.units]

    @cached_property
    def batch(self) -> tuple[UnitId, ...]:
        """The slots of the tenant `batch`."""
        return tuple(unit.id for unit in self.units if unit.tenant == BATCH)


class UnitState(StrEnum):
    """What an agent sees of a unit."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    STOPPING = "stopping"


class UnitObserved(Frozen):
    """One unit as the agent sees it."""

    id: UnitId
    state: UnitState
    pid: int | None = None
    restarts: int = 0
    exit: str | None = None
    """How it ended: `exit code 1`, `killed by signal 9`, with the last line of its log."""
    since: float
    starved_since: float | None = None
    """Since when other things on the host keep it from the processor time of its quantum."""


class Observed(Frozen):
    """`observed/<host>`: written by the host's agent when something changes."""

    epoch: int = 0
    """The assignment's epoch that this observation answers."""
    units: tuple[UnitObserved, ...] = ()
    rebooted: str | None = None
    """The id of the last reboot that the host has come back from."""
    agent_started: float
    limits: str
    """`cgroup v1`, `cgroup v2`, or why there are none."""

    @cached_property
    def hurt(self) -> tuple[UnitObserved, ...]:
        """What has died, or could not be started, whether it runs again or not."""
        return tuple(unit for unit in self.units if unit.restarts or unit.exit is not None)

    @cached_property
    def starved(self) -> dict[UnitId, float]:
        """Since when each starved unit is."""
        return {unit.id: unit.starved_since for unit in self.units if unit.starved_since is not None}

    @cached_property
    def batch(self) -> tuple[UnitId, ...]:
        """The slots of the tenant `batch`, with those that it gives back."""
        return tuple(unit.id for unit in self.units if unit.id.startswith(f"{UnitKind.SLOT}-{BATCH}-"))


class HostFacts(Frozen):
    """`hosts/<h>`: what an agent registers about its host."""

    name: HostName
    address: str
    zone: str
    rack: str | None = None
    labels: tuple[str, ...] = ()
    cpu: CoreCount
    memory: Mebibytes
    """MiB that may be given to slots and drivers."""
    known_as: str | None = None
    """How access lists know the host's agent, which has a credential of its own."""


class HostState(StrEnum):
    """A host's life as people see it. Lost is not written: it is derived from the missing ephemeral node, whatever the written state is."""

    UP = "up"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DRAINED = "drained"
    REBOOTING = "rebooting"
    LOST = "lost"


class Death(Frozen):
    """A unit that died on a host, or could not be started there."""

    unit: UnitId
    tenant: Tenant
    count: int
    """Which of the unit's deaths it is."""
    at: float
    """When a controller noted it."""

    @property
    def place(self) -> str:
        """What stands in the same place in every incarnation of its tenant: the driver, or the slot of a number."""
        kind, _, rest = self.unit.partition("-")
        return kind if kind == UnitKind.DRIVER else f"{kind}-{rest.rsplit('-', 1)[-1]}"


class HostRecord(Frozen):
    """`hosts/<h>/record`: the controller's word on a host."""

    state: HostState = HostState.UP
    by: str = ""
    """The change or the person that set it."""
    since: float = 0.0
    reason: str = ""
    """Why it is in quarantine; nothing when it is not."""
    until: float | None = None
    """When its quarantine ends by itself."""
    deaths: tuple[Death, ...] = ()
    """What has died there lately, while it was up."""
    written_off: bool = False
    """A person has said that it will not come back; forgotten when it does."""

    def quarantine(self, name: HostName) -> str | None:
        """Say why the host is in quarantine, for how long, and how it is ended; None when it is not."""
        if not self.reason:
            return None
        until = "" if self.until is None else f" until {datetime.fromtimestamp(self.until, UTC):%H:%M} UTC"
        return f"{name} is in quarantine{until}: {self.reason}; `sluice return {name}` ends it"

    def seen(self, *, live: bool) -> HostState:
        """Return how people see the host: without a living agent it is lost, unless it is being rebooted."""
        return self.state if live or self.state is HostState.REBOOTING else HostState.LOST


def slot_id(tenant: str, incarnation: int, number: int) -> UnitId:
    """Name a slot; the number tells the slots of one incarnation apart."""
    return UnitId(f"slot-{tenant}-{incarnation}-{number}")


@lru_cache(maxsize=1024)
def slot_ids(tenant: str, incarnation: int, count: int) -> tuple[UnitId, ...]:
    """Name the slots of an incarnation; passes ask again and again."""
    return tuple(slot_id(tenant, incarnation, number) for number in range(count))


def driver_id(tenant: str, incarnation: int) -> UnitId:
    """Name a driver's container."""
    return UnitId(f"driver-{tenant}-{incarnation}")


def label_of(tenant: str, incarnation: int) -> str:
    """Name the Spark resource of an incarnation's workers: two incarnations never compete for a slot."""
    return f"sluice_{tenant}_{incarnation}".replace("-", "_")
