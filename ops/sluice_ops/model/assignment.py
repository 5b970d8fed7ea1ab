"""The units that the controller wants on a host, and the units that its agent observes there."""

from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self

from pydantic import Field

from sluice_ops.model.ids import BATCH, HostName, Incarnation, Tenant, UnitId
from sluice_ops.model.resources import CoreCount, Frozen, Mebibytes, Quantum

HUNG_SINCE = "hung since"
"""The beginning of the exit text of a unit that hung."""

DECOMMISSIONED_EXIT = 3
"""The exit code of the agent of a decommissioned host. No supervisor starts the agent again."""


class UnitKind(StrEnum):
    """The content of a container."""

    SLOT = "slot"
    """A Spark Worker with a label, sized for one executor."""
    DRIVER = "driver"


class Unit(Frozen):
    """One container on a host. Agents need no more than this and know no tiers."""

    id: Annotated[UnitId, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    """Also the name of the folder with the unit's files."""
    kind: UnitKind
    tenant: Tenant
    incarnation: Incarnation
    quantum: Quantum
    label: str
    """The Spark resource that only this tenant's incarnation requests."""
    quiet: bool = False
    """Whether the unit prepares, and yields the processor to units that serve records."""


class FaultOrder(Frozen):
    """A fault of a game day that the host's agent injects once."""

    id: str
    """The id of the operation that requests the fault."""
    freezes: bool = False
    """Whether the process is stopped (SIGSTOP) for a while, instead of killed."""
    unit: UnitId | None = None
    """The unit whose main process gets the signal; None: the agent itself."""


class FaultDone(Frozen):
    """The last fault of a game day that the host's agent injected."""

    id: str
    """The id of the operation that requested the fault."""
    at: float
    """When the signal was sent. Wall clock of the host."""
    error: str = ""
    """Why no signal was sent; empty: it was sent."""


class Assignment(Frozen):
    """`assignments/<host>`: written by the controller, carried out by the host's agent."""

    epoch: int = 0
    units: tuple[Unit, ...] = ()
    reboot: str | None = None
    """The id of the operation that requests a reboot. The agent reboots once for each id."""
    fault: FaultOrder | None = None
    """The fault that the agent injects, once for each id."""

    def holding(self, units: tuple[Unit | dict[str, Any], ...]) -> Self:
        """Return the assignment with these units.

        New units may be given as dicts of their values, which is twice as fast as copies.
        """
        kept = {"epoch": self.epoch, "reboot": self.reboot, "fault": self.fault}
        values = {**(self.model_extra or {}), **kept, "units": units}
        return type(self).model_validate(values, extra="allow")

    @cached_property
    def parts(self) -> list[tuple[UnitId, bool]]:
        """Each unit's name and whether it is quiet, which the controller compares."""
        return [(unit.id, unit.quiet) for unit in self.units]

    @cached_property
    def batch(self) -> tuple[UnitId, ...]:
        """The slots of the tenant `batch`."""
        return tuple(unit.id for unit in self.units if unit.tenant == BATCH)


class UnitState(StrEnum):
    """The state of a unit as its agent sees it."""

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
    """How the unit ended: `exit code 1`, `killed by signal 9`, with the last line of its log."""
    since: float
    starved_since: float | None = None
    """Since when other processes keep the unit from the processor time of its quantum."""
    modest_since: float | None = None
    """Since when the unit needs little of the processor time of its quantum.

    Its work, if it has any, waits for something else.
    """


class Observed(Frozen):
    """`observed/<host>`: written by the host's agent when a value changes."""

    epoch: int = 0
    """The epoch of the assignment that the agent has seen."""
    units: tuple[UnitObserved, ...] = ()
    rebooted: str | None = None
    """The id of the last reboot that the host has completed."""
    fault: FaultDone | None = None
    """The last fault of a game day that the agent injected."""
    boot: str | None = None
    """An id that changes with each boot of the host; None: an older agent."""
    reboot_needed: bool = False
    """Whether the machine has the file that says that an update needs a reboot."""
    findings: tuple[str, ...] | None = None
    """What `sluice doctor --host` finds bad since the last requested reboot; None: not checked."""
    agent_started: float
    agent_hung_at: float | None = None
    """When an earlier agent of the host hung, and ended itself; None: none did."""
    limits: str
    """`cgroup v1`, `cgroup v2`, or why the host has no control groups."""
    ends_at: float | None = None
    """When EC2 ends the host (its spot notice). Epoch seconds; None: there is no notice."""
    at_risk_since: float | None = None
    """Since when EC2 recommends to leave the host (its rebalance recommendation)."""
    busy_since: float | None = None
    """Since when the processors that its units may use have had no time left."""
    busy_part: float | None = None
    """The part of the last minute in which these processors were busy, in tenths; None: an older
    agent, or not measured yet.
    """

    def ending(self, host: HostName) -> str | None:
        """Return what EC2 has announced for the host; None if nothing."""
        if self.ends_at is not None:
            return f"EC2 ends {host} at {datetime.fromtimestamp(self.ends_at, UTC):%H:%M:%S} UTC"
        if self.at_risk_since is not None:
            since = f"{datetime.fromtimestamp(self.at_risk_since, UTC):%H:%M} UTC"
            return f"EC2 may end {host} soon (rebalance recommendation of {since})"
        return None

    @cached_property
    def hurt(self) -> tuple[UnitObserved, ...]:
        """The units that died or could not be started, whether they run again or not."""
        return tuple(unit for unit in self.units if unit.restarts or unit.exit is not None)

    @cached_property
    def starved(self) -> dict[UnitId, float]:
        """The starved units, each with the time since which it is starved."""
        return {unit.id: unit.starved_since for unit in self.units if unit.starved_since is not None}

    @cached_property
    def modest(self) -> frozenset[UnitId]:
        """The units that need little processor time."""
        return frozenset(unit.id for unit in self.units if unit.modest_since is not None)

    @cached_property
    def batch(self) -> tuple[UnitId, ...]:
        """The slots of the tenant `batch`, including those that it is giving back."""
        return tuple(unit.id for unit in self.units if unit.id.startswith(f"{UnitKind.SLOT}-{BATCH}-"))


class HostFacts(Frozen):
    """`hosts/<h>`: the host's properties, which its agent registers."""

    name: HostName
    address: str
    zone: str
    rack: str | None = None
    labels: tuple[str, ...] = ()
    cpu: CoreCount
    memory: Mebibytes
    """MiB for slots and drivers."""
    known_as: str | None = None
    """The id of the host's agent in access lists. Each agent has its own credential."""


class HostState(StrEnum):
    """The state of a host as people see it.

    `lost` is never written: a host is lost if its agent's ephemeral node is missing, whatever state
    is written.
    """

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
    """The number of this death among the unit's deaths."""
    at: float
    """When a controller recorded the death."""

    @property
    def place(self) -> str:
        """`driver`, or `slot-<number>`: the unit's role, which is the same in each incarnation."""
        kind, _, rest = self.unit.partition("-")
        return kind if kind == UnitKind.DRIVER else f"{kind}-{rest.rsplit('-', 1)[-1]}"


class HostRecord(Frozen):
    """`hosts/<h>/record`: the controller's record of a host."""

    state: HostState = HostState.UP
    by: str = ""
    """The change or the person that set the state."""
    since: float = 0.0
    reason: str = ""
    """Why the host is in quarantine; empty: it is not."""
    until: float | None = None
    """When the quarantine ends by itself."""
    deaths: tuple[Death, ...] = ()
    """The last deaths of units there while the host was up."""
    written_off: bool = False
    """Whether a person wrote the host off. Cleared when the host comes back."""

    def quarantine(self, name: HostName) -> str | None:
        """Return why the host is in quarantine, for how long, and how to end it; None: it
        is not.
        """
        if not self.reason:
            return None
        until = "" if self.until is None else f" until {datetime.fromtimestamp(self.until, UTC):%H:%M} UTC"
        return f"{name} is in quarantine{until}: {self.reason}; `sluice return {name}` ends it"

    def seen(self, *, live: bool) -> HostState:
        """Return the state for people: a host without a live agent is lost, unless it reboots."""
        return self.state if live or self.state is HostState.REBOOTING else HostState.LOST


class Decommissioned(Frozen):
    """`decommissioned/<h>`: a host that was taken out of service for good.

    Its name is refused until a host joins under it with a new token.
    """

    change: str
    by: str
    at: float
    unchecked: str = ""
    """What could not be checked, because the agent was silent; empty: everything was checked."""

    def refusal(self, host: HostName, *, has_tokens: bool) -> str:
        """Return why an agent of this name may not serve, and how the name is used again."""
        again = (
            f"`sluice token {host}.token --host {host}`, then start the agent with that token"
            if has_tokens
            else f"`sluice access --forget {host}`"
        )
        return (
            f"host {host} was decommissioned at {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC by "
            f"{self.by}, so its agent ends. To use the name again: {again}"
        )


def slot_id(tenant: str, incarnation: int, number: int) -> UnitId:
    """Return the id of a slot; `number` tells the slots of one incarnation apart."""
    return UnitId(f"slot-{tenant}-{incarnation}-{number}")


def slot_number(slot: UnitId) -> int:
    """Return the number that tells a slot from the other slots of its incarnation."""
    return int(slot.rpartition("-")[2])


@lru_cache(maxsize=1024)
def slot_ids(tenant: str, incarnation: int, count: int) -> tuple[UnitId, ...]:
    """Return the ids of an incarnation's slots.

    The result is cached, because each pass needs it.
    """
    return tuple(slot_id(tenant, incarnation, number) for number in range(count))


def driver_id(tenant: str, incarnation: int) -> UnitId:
    """Return the id of a driver's container."""
    return UnitId(f"driver-{tenant}-{incarnation}")


def label_of(tenant: str, incarnation: int) -> str:
    """Return the Spark resource of an incarnation's workers.

    Each incarnation has its own resource, so that two incarnations never compete for a slot.
    """
    return f"sluice_{tenant}_{incarnation}".replace("-", "_")
