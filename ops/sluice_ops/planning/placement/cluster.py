"""The snapshot that planning works on: hosts with their use, tiers with their places, the site's
rules.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

from sluice_ops.model.alert import AlertSettings
from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.assignment import HostState
from sluice_ops.model.batch import DEFAULT_TENANT, BatchTenant
from sluice_ops.model.ids import BATCH, HostName, TierName, UnitId
from sluice_ops.model.incarnation import STATE_PARTITIONS, Placement
from sluice_ops.model.release import Release, TierShape
from sluice_ops.model.repair import Repair, Window
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.scaler import ScalerSettings
from sluice_ops.model.share import Layers, Numbers, PipelineShare, Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import TierSpec, awaits_upgrade
from sluice_ops.planning.placement.pace import Pace

BURST_ZONE = "ec2"
"""The zone of burst hosts, which come and go.

They take only units that request them by name, zone, rack or label.
"""

TOLERANCE = 1e-6
"""The slack for comparing sums of cores, which are floats. Unit: cores."""
_DEFAULT_SHARE = Share()
"""The share of a tenant that the site file does not name."""


class RefusedError(Exception):
    """A refusal of the planner. The message names the object, the reason and the next step."""


def whole_quanta(cpu: float, memory: int, quantum: Quantum) -> int:
    """Return how many whole quanta fit into so many cores and MiB."""
    return max(0, min(int((cpu + TOLERANCE) / quantum.cpu), memory // quantum.memory))


@dataclass(slots=True)
class Host:
    """One host: its capacity, the used part, and whether new units may be placed there.

    A host is never changed after it was made. The class is not frozen, because a decision makes ten
    thousands of hosts, and frozen ones take three times as long to make.
    """

    name: HostName
    zone: str
    labels: tuple[str, ...]
    capacity: Capacity
    state: HostState = HostState.UP
    used_cpu: float = 0.0
    used_memory: int = 0
    rack: str = ""
    """Hosts of one rack may be lost together. A host without a rack counts as a rack of its own."""
    tiers: tuple[TierName, ...] = ()
    """The tier of each unit on the host, once for each unit."""
    only: frozenset[str] | None = None
    """The only tenants that may be here; None: all tenants."""
    starves: frozenset[TierName] = frozenset()
    """The tiers whose units here get less processor time than their quantum promises."""
    free_cpu: float = field(init=False)
    """Free cores."""
    free_memory: int = field(init=False)
    """Free MiB."""
    load: float = field(init=False)
    """The used part of cpu or memory, whichever is larger."""

    def __post_init__(self) -> None:
        """Compute once the values that placement reads on ten thousand hosts for each tier."""
        self.free_cpu = self.capacity.cpu - self.used_cpu
        self.free_memory = self.capacity.memory - self.used_memory
        self.load = self.load_with(self.used_cpu, self.used_memory)

    @property
    def usable(self) -> bool:
        """Whether new units may be placed here."""
        return self.state is HostState.UP

    @property
    def overfull(self) -> bool:
        """Whether the units hold more than the capacity, for example after the capacity was
        lowered.
        """
        return self.free_cpu < -TOLERANCE or self.free_memory < 0

    def load_with(self, cpu: float, memory: int) -> float:
        """Return the load with so many cores and MiB used."""
        return max(cpu / self.capacity.cpu, memory / self.capacity.memory)

    def takes(self, quantum: Quantum) -> bool:
        """Return whether one quantum of this size may be placed here."""
        return (
            self.state is HostState.UP
            and self.free_memory >= quantum.memory
            and self.free_cpu + TOLERANCE >= quantum.cpu
        )

    def fits(self, quantum: Quantum) -> int:
        """Return how many more quanta of this size fit."""
        return whole_quanta(self.free_cpu, self.free_memory, quantum)

    def holding(self, quantum: Quantum, count: int = 1, tier: TierName | None = None) -> "Host":
        """Return this host with `count` more quanta, or fewer if negative, of this tier or of
        batch.
        """
        cpu, memory = self.used_cpu + quantum.cpu * count, self.used_memory + quantum.memory * count
        tiers = self.tiers if tier is None else _counted(self.tiers, tier, count)
        return Host(
            self.name,
            self.zone,
            self.labels,
            self.capacity,
            self.state,
            cpu,
            memory,
            self.rack,
            tiers,
            self.only,
            self.starves,
        )

    def admits(self, tenant: str, separate: frozenset[str] = frozenset()) -> bool:
        """Return whether this tenant may be here, given the tiers that it has to be
        separate from.
        """
        return (self.only is None or tenant in self.only) and separate.isdisjoint(self.tiers)

    def within(self, kind: str) -> str:
        """Return the name of this host, or of its rack or zone; `kind` is `host`, `rack`
        or `zone`.
        """
        if kind == "rack":
            return f"{self.zone}/{self.rack or self.name}"
        return self.name if kind == "host" else self.zone

    def matches(self, to: str | None) -> bool:
        """Return whether this host is at a place."""
        return at(to)(self)


class Located(Protocol):
    """A host's name and place."""

    @property
    def name(self) -> HostName:
        """The host's name."""

    @property
    def zone(self) -> str:
        """The host's zone."""

    @property
    def rack(self) -> str | None:
        """The host's rack."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The host's labels."""


def at(to: str | None) -> Callable[[Located], bool]:
    """Return a function that tells whether a host is at a place.

    A place is `zone:z`, `rack:r`, `label:l` or a host's name. None stands for all hosts except
    burst hosts.
    """
    if to is None:
        return lambda host: host.zone != BURST_ZONE
    kind, _, value = to.partition(":")
    if kind == "zone" and value:
        return lambda host: host.zone == value
    if kind == "rack" and value:
        return lambda host: host.rack == value
    if kind == "label" and value:
        return lambda host: value in host.labels
    return lambda host: host.name == to


def _counted(tiers: tuple[TierName, ...], tier: TierName, count: int) -> tuple[TierName, ...]:
    if count == 1:
        return (*tiers, tier)
    if count >= 0:
        return (*tiers, *[tier] * count)
    left = list(tiers)
    for _ in range(min(-count, left.count(tier))):
        left.remove(tier)
    return tuple(left)


@dataclass(frozen=True)
class TierNow:
    """A tier and the placement of its owner."""

    spec: TierSpec
    placement: Placement | None = None
    """None: the tier does not run."""
    last: Placement | None = None
    """The placement of the owner, or of the last owner if the tier does not run."""
    wanted: bool = True
    """Whether the tier should run.

    If so, room is kept for the slots that it lacks of its minimum.
    """
    release: str | None = None
    """The release that the tier runs, or will be started with."""
    partitions: int = STATE_PARTITIONS
    """The number of partitions of its state, if it holds any."""
    paused: bool = False
    failed: bool = False
    """Whether the tier was given up after several failures in a row."""
    fault: str = ""
    """The last failure of a tier that was given up."""
    workers: tuple[UnitId, ...] = ()
    """The slots of its owner."""
    paused_workers: tuple[UnitId, ...] = ()
    """The slots of its owner that are paused alone."""
    takes_workers: bool = True
    """Whether its driver gives tasks to workers that are added later."""
    may_be_light: bool = False
    """Whether its newest declaration is light; `spec.light` tells how its next incarnation
    starts.
    """

    @property
    def awaits_upgrade(self) -> bool:
        """Whether the tier runs without workers although it is light no more.

        It keeps its number of workers until its next incarnation.
        """
        now = self.placement
        return now is not None and awaits_upgrade(self.spec, len(now.slots), self.release)


@dataclass(frozen=True)
class Rules:
    """The rules of the site file and of the layers above it."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    locality: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, Spread] = field(default_factory=dict)
    pinned: Mapping[str, Mapping[HostName, int]] = field(default_factory=dict)
    """By tier: how many of its workers are on a host whenever that host can take them."""
    separate: tuple[frozenset[str], ...] = ()
    dedicated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    budget: Mapping[str, int] = field(default_factory=dict)
    """By tier: how many slots of its share a change may leave the tier without."""
    layers: Layers = field(default_factory=Layers)
    shifts: Mapping[str, Mapping[str, Numbers]] = field(default_factory=dict)
    partitions: int = 4
    batch_quantum: Quantum = field(default_factory=Quantum)
    capacity_totals: Mapping[str, int] = field(default_factory=dict)
    """By tenant, for all tiers and batch: the slots that make 100%."""
    pipeline_share: PipelineShare | None = None
    """What the tiers have together; None: the sum of their shares."""
    fewest: Mapping[str, int] = field(default_factory=dict)
    """By tier: the workers without which a realtime tier lacks threads for its partitions."""
    batch_tenants: Mapping[str, BatchTenant] = field(default_factory=lambda: {DEFAULT_TENANT: BatchTenant()})
    reclaim_seconds: float = 60.0
    """Within which time a batch slot has to be given back. Unit: seconds."""
    repair: Repair | None = None
    """When the controller repairs drift; None: only a person does."""
    scaler: ScalerSettings = field(default_factory=ScalerSettings)
    instance: Capacity | None = None
    """The capacity of a host that a burst launches."""
    max_instances: int = 0
    """The most such hosts at once."""
    alerts: AlertSettings = field(default_factory=AlertSettings)
    approval: ApprovalRule | None = None
    """When a change waits for a second person; None: never."""
    approval_hours: Window | None = None
    """The hours in which every change of tiers waits; None: no hour does."""
    reboot_window: Window | None = None
    """When batches of rolling reboots may begin; None: at any time."""
    refused: str = ""
    """Why the site file as it is now cannot be used; empty if it can."""
    drivers: Fraction = Fraction(0)
    """The part of the cluster that one driver of each tier takes; only for the pipeline's share."""
    without_spares: frozenset[str] = frozenset()
    """The tenants that cannot have spares: batch, and tiers with state or a standby."""
    light: frozenset[str] = frozenset()
    """The tiers without workers, because their drivers do the work."""
    scaled: frozenset[str] = frozenset()
    """The tiers whose number the scaler sets."""
    resolved: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The target of each tenant so far (`shares.target`).

    One decision reads 80 targets 80 times.
    """
    divided: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The slots and the spares of each tier under the pipeline's share, once it is divided."""

    @property
    def tiers(self) -> list[str]:
        """The tiers that divide the pipeline's share: all that are published, also stopped ones."""
        return sorted(tenant for tenant in self.capacity_totals if tenant != BATCH)

    def share_of(self, tenant: str) -> Share:
        """Return the tenant's share in the site file, or the default share."""
        return self.shares.get(tenant, _DEFAULT_SHARE)

    def partitions_of(self, spec: TierSpec) -> int:
        """Return how many partitions a tier reads.

        The number is that of the published tier, or else the site file's number for new streams.
        """
        return spec.partitions or self.partitions * max(1, len(spec.inputs))

    def separate_from(self, tenant: str) -> frozenset[str]:
        """Return the tiers that may not be on a host with this tenant."""
        return frozenset[str]().union(*(group for group in self.separate if tenant in group)) - {tenant}

    def only_on(self, host: Host) -> frozenset[str] | None:
        """Return the only tenants that may be on a host; None: all tenants."""
        named = [tenants for place, tenants in self.dedicated.items() if host.matches(place)]
        return frozenset[str]().union(*named) if named else None


@dataclass(frozen=True)
class Cluster:
    """The input of a plan."""

    hosts: Mapping[HostName, Host]
    tiers: Mapping[TierName, TierNow]
    batch: tuple[HostName, ...]
    """The host of each batch slot."""
    rules: Rules
    pace: Pace = field(default_factory=Pace)
    returning: tuple[HostName, ...] = ()
    """The host of each slot that batch is giving back.

    The host holds the slot until its tasks end.
    """
    releases: Mapping[str, Release] = field(default_factory=dict)
    unread_releases: Mapping[str, str] = field(default_factory=dict)
    """Releases that exist but cannot be read, each with the message of the refusal."""
    braked: frozenset[HostName] = frozenset()
    """The lost hosts from which nothing is moved, because many hosts were lost at once."""
    busy: Mapping[TierName, float] = field(default_factory=dict)
    """The part of the time that a tier's workers are busy; without tiers of which it is unknown."""
    busy_hosts: frozenset[HostName] = frozenset()
    """The hosts whose processors have had no time left for a minute."""

    def end_first(self) -> list[TierNow]:
        """Return the tiers, nearest the pipeline's end first: the order of stops and cuts."""
        return sorted(self.tiers.values(), key=lambda tier: (tier.spec.distance, tier.spec.name))

    def shape(self, tier: TierName, release: str | None) -> TierShape | None:
        """Return the shape of a tier in a release, or None if it is unknown."""
        known_release = self.releases.get(release or "")
        return None if known_release is None else known_release.tiers.get(tier)

    def free_burst_slots(self, quantum: Quantum) -> int:
        """Return how many more slots of a quantum the running burst hosts hold."""
        return sum(
            host.fits(quantum) for host in self.hosts.values() if host.usable and host.zone == BURST_ZONE
        )

    def with_hosts(self, hosts: Mapping[HostName, Host]) -> "Cluster":
        return replace(self, hosts=hosts)

    def with_state(self, name: HostName, state: HostState) -> "Cluster":
        """Return the cluster with one host in another state."""
        return self.with_hosts({**self.hosts, name: replace(self.hosts[name], state=state)})

    def with_layers(self, layers: Layers) -> "Cluster":
        return replace(self, rules=replace(self.rules, layers=layers))


Hosts = Mapping[HostName, Host]


def holding(hosts: Hosts, spec: TierSpec, placement: Placement, count: int = 1) -> dict[HostName, Host]:
    """Return the hosts with an incarnation's units added, or removed if `count` is -1.

    Units on hosts that are gone are ignored.
    """
    held = dict(hosts)
    for name, quantum in units(spec, placement):
        if name in held:
            held[name] = held[name].holding(quantum, count, spec.name)
    return held


def moved(hosts: Hosts, spec: TierSpec, before: Placement, after: Placement) -> dict[HostName, Host]:
    """Return the hosts after an incarnation moved from one placement to another.

    Only hosts whose number of units changes are computed again.
    """
    held = dict(hosts)
    for quantum, old_hosts, new_hosts in (
        (spec.quantum, before.slots, after.slots),
        (spec.driver, (before.driver,), (after.driver,)),
    ):
        difference = Counter(new_hosts)
        difference.subtract(old_hosts)
        for name, count in difference.items():
            if count and name in held:
                held[name] = held[name].holding(quantum, count, spec.name)
    return held


def with_both(hosts: Hosts, spec: TierSpec, before: Placement, after: Placement) -> dict[HostName, Host]:
    """Return the hosts while an incarnation changes its workers in place, one after the other.

    A host holds the workers that it has before or after, whichever are more.
    """
    arriving = (Counter(after.slots) - Counter(before.slots)).elements()
    return moved(hosts, spec, before, before.model_copy(update={"slots": (*before.slots, *arriving)}))


def without_room(spec: TierSpec, placement: Placement, hosts: Hosts) -> dict[HostName, tuple[float, int]]:
    """Return the known hosts without room for an incarnation at a placement, beside all units.

    Each has the cores and MiB that the incarnation needs there.
    """
    needed: dict[HostName, tuple[float, int]] = {}
    for name, quantum in units(spec, placement):
        cpu, memory = needed.get(name, (0.0, 0))
        needed[name] = cpu + quantum.cpu, memory + quantum.memory
    return {
        name: (cpu, memory)
        for name, (cpu, memory) in sorted(needed.items())
        if name in hosts and (cpu > hosts[name].free_cpu + TOLERANCE or memory > hosts[name].free_memory)
    }


def units(spec: TierSpec, placement: Placement) -> Iterable[tuple[HostName, Quantum]]:
    """Yield the host and the quantum of each unit of an incarnation."""
    yield placement.driver, spec.driver
    for name in placement.slots:
        yield name, spec.quantum


def overfull(hosts: Hosts, before: Hosts | None = None) -> list[str]:
    """Name the overfull hosts; with `before`, only those that are fuller now than then."""
    return [
        f"{host.name} holds {host.used_cpu:g} of {host.capacity.cpu:g} cpu and "
        f"{host.used_memory} of {host.capacity.memory} MiB"
        for host in hosts.values()
        if host.overfull and (before is None or _is_fuller(host, before[host.name]))
    ]


def _is_fuller(host: Host, before: Host) -> bool:
    return host.used_cpu > before.used_cpu + TOLERANCE or host.used_memory > before.used_memory
