"""The snapshot that planning works on: hosts with what is used of them, tiers with where they are, and the rules of the site."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName, TierName, UnitId
from sluice_ops.model.incarnation import STATE_PARTITIONS, Placement
from sluice_ops.model.release import Release, TierShape
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.share import Layers, Numbers, Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.pace import Pace

BURST_ZONE = "ec2"
"""Hosts of this zone come and go: they take only what asks for them by name, zone or label."""

TOLERANCE = 1e-6
"""Cores are floats; sums of them are compared with this much slack."""
_UNSAID = Share()
"""The share of a tenant of which the site file says nothing."""


class RefusedError(Exception):
    """What is asked cannot be planned; the message names the thing, says why, and what to do."""


def whole_quanta(cpu: float, memory: int, quantum: Quantum) -> int:
    """Return how many quanta fit, each with all its resources."""
    return max(0, min(int((cpu + TOLERANCE) / quantum.cpu), memory // quantum.memory))


@dataclass(slots=True)
class Host:
    """One host: what it has, what of it is used, and whether anything new may go there.

    A value, never changed after it was made. It is not declared frozen: a decision makes ten thousands, and that would take three times
    as long.
    """

    name: HostName
    zone: str
    labels: tuple[str, ...]
    capacity: Capacity
    state: HostState = HostState.UP
    used_cpu: float = 0.0
    used_memory: int = 0
    rack: str = ""
    """What it may be lost together with; by itself when it names none."""
    tiers: tuple[TierName, ...] = ()
    """Whose units it holds, once for each."""
    only: frozenset[str] | None = None
    """The tenants that alone may be here; None: all."""
    starves: frozenset[TierName] = frozenset()
    """The tiers whose units here get less processor time than their quantum promises."""
    free_cpu: float = field(init=False)
    """Cores that nothing holds."""
    free_memory: int = field(init=False)
    """MiB that nothing holds."""
    load: float = field(init=False)
    """How full it is: the larger of its two parts."""

    def __post_init__(self) -> None:
        """Reckon once what placement asks of ten thousand hosts for every tier."""
        self.free_cpu = self.capacity.cpu - self.used_cpu
        self.free_memory = self.capacity.memory - self.used_memory
        self.load = self.load_with(self.used_cpu, self.used_memory)

    @property
    def usable(self) -> bool:
        """Whether something new may be placed here."""
        return self.state is HostState.UP

    @property
    def overfull(self) -> bool:
        """Whether it holds more than it has, as one does whose capacity was lowered."""
        return self.free_cpu < -TOLERANCE or self.free_memory < 0

    def load_with(self, cpu: float, memory: int) -> float:
        """Return how full it would be with so much used."""
        return max(cpu / self.capacity.cpu, memory / self.capacity.memory)

    def takes(self, quantum: Quantum) -> bool:
        """Tell whether one quantum of this size may be placed here."""
        return (
            self.state is HostState.UP
            and self.free_memory >= quantum.memory
            and self.free_cpu + TOLERANCE >= quantum.cpu
        )

    def fits(self, quantum: Quantum) -> int:
        """Return how many quanta of this size still fit."""
        return whole_quanta(self.free_cpu, self.free_memory, quantum)

    def holding(self, quantum: Quantum, count: int = 1, tier: TierName | None = None) -> "Host":
        """Return this host with so many quanta more (or fewer, when negative), of this tier or of batch."""
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
        """Tell whether this tenant, which has to be separate from some others, may be here at all."""
        return (self.only is None or tenant in self.only) and separate.isdisjoint(self.tiers)

    def within(self, kind: str) -> str:
        """Return which host, rack or zone this is, or is in."""
        if kind == "rack":
            return f"{self.zone}/{self.rack or self.name}"
        return self.name if kind == "host" else self.zone

    def matches(self, to: str | None) -> bool:
        """Tell whether this host is at a place."""
        return at(to)(self)


def at(to: str | None) -> Callable[[Host], bool]:
    """Return what tells whether a host is at a place: `zone:z`, `rack:r`, `label:l`, a host's name, or None for anywhere."""
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
    """A tier and where its owner is; no placement when it does not run."""

    spec: TierSpec
    placement: Placement | None = None
    last: Placement | None = None
    """Where its owner is, or was when it ran last."""
    wanted: bool = True
    """It is to run: what it lacks of its minimum is kept for it."""
    release: str | None = None
    """Whose code it runs, or is to be begun from."""
    partitions: int = STATE_PARTITIONS
    """Over how many its state is spread, if it holds any."""
    paused: bool = False
    failed: bool = False
    """It was given up after several failures in a row."""
    fault: str = ""
    """What it failed with last, if it was given up."""
    workers: tuple[UnitId, ...] = ()
    """The slots of its owner."""
    paused_workers: tuple[UnitId, ...] = ()
    """Those of them that are to be paused alone."""


@dataclass(frozen=True)
class Rules:
    """What the site file and the layers above it say."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    locality: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, Spread] = field(default_factory=dict)
    separate: tuple[frozenset[str], ...] = ()
    dedicated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    budget: Mapping[str, int] = field(default_factory=dict)
    """Tier → how many slots of its share a change may leave it without."""
    layers: Layers = field(default_factory=Layers)
    shifts: Mapping[str, Mapping[str, Numbers]] = field(default_factory=dict)
    partitions: int = 4
    batch_quantum: Quantum = field(default_factory=Quantum)
    wholes: Mapping[str, int] = field(default_factory=dict)
    """Tenant → the slots that 100% are."""
    reclaim_seconds: float = 120.0
    """How long the tasks in a batch slot that is wanted back may go on."""
    repair_seconds: float | None = None
    """For how long a tier may have drifted before the controller repairs it; None: it waits for a person."""
    instance: Capacity | None = None
    """What a host has that a burst launches."""
    refused: str = ""
    """Why the site file, which was changed since, cannot be used."""
    resolved: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was found for each tenant: a decision asks for the same of eighty tiers eighty times (`shares.target`)."""

    def share_of(self, tenant: str) -> Share:
        """Return what the site file says of a tenant's share."""
        return self.shares.get(tenant, _UNSAID)

    def partitions_of(self, spec: TierSpec) -> int:
        """Return how many partitions a tier reads: as it was published, or else by what the site file gives new streams."""
        return spec.partitions or self.partitions * max(1, len(spec.inputs))

    def separate_from(self, tenant: str) -> frozenset[str]:
        """Return the tiers that a tenant may not share a host with."""
        return frozenset[str]().union(*(group for group in self.separate if tenant in group)) - {tenant}

    def only_on(self, host: Host) -> frozenset[str] | None:
        """Return the tenants that alone may be on a host; None: all."""
        named = [tenants for place, tenants in self.dedicated.items() if host.matches(place)]
        return frozenset[str]().union(*named) if named else None


@dataclass(frozen=True)
class Cluster:
    """Everything that a plan is made from."""

    hosts: Mapping[HostName, Host]
    tiers: Mapping[TierName, TierNow]
    batch: tuple[HostName, ...]
    """Where batch has slots."""
    rules: Rules
    pace: Pace = field(default_factory=Pace)
    returning: tuple[HostName, ...] = ()
    """Where slots that batch gives back are still there: their tasks go on for a while. The hosts hold them until then."""
    releases: Mapping[str, Release] = field(default_factory=dict)
    unread_releases: Mapping[str, str] = field(default_factory=dict)
    """Those that are there and cannot be read, and what is to be said of each."""

    def end_first(self) -> list[TierNow]:
        """Return the tiers nearest the pipeline's end first: the order of stops and cuts."""
        return sorted(self.tiers.values(), key=lambda tier: (tier.spec.distance, tier.spec.name))

    def shape(self, tier: TierName, release: str | None) -> TierShape | None:
        """Return what others rely on of a tier in a release, as far as that is known."""
        found = self.releases.get(release or "")
        return None if found is None else found.tiers.get(tier)

    def with_hosts(self, hosts: Mapping[HostName, Host]) -> "Cluster":
        """Return the same with other hosts."""
        return replace(self, hosts=hosts)

    def with_state(self, name: HostName, state: HostState) -> "Cluster":
        """Return the same with one host in another state."""
        return self.with_hosts({**self.hosts, name: replace(self.hosts[name], state=state)})

    def with_layers(self, layers: Layers) -> "Cluster":
        """Return the same under other layers."""
        return replace(self, rules=replace(self.rules, layers=layers))


Hosts = Mapping[HostName, Host]


def holding(hosts: Hosts, spec: TierSpec, placement: Placement, count: int = 1) -> dict[HostName, Host]:
    """Return the hosts with one incarnation more on them (or fewer, with -1); hosts that are gone hold nothing."""
    held = dict(hosts)
    for name, quantum in units(spec, placement):
        if name in held:
            held[name] = held[name].holding(quantum, count, spec.name)
    return held


def moved(hosts: Hosts, spec: TierSpec, before: Placement, after: Placement) -> dict[HostName, Host]:
    """Return the hosts once what was at one placement is at another; of a thousand slots only those that differ are reckoned anew."""
    held = dict(hosts)
    for quantum, there, here in (
        (spec.quantum, before.slots, after.slots),
        (spec.driver, (before.driver,), (after.driver,)),
    ):
        more = Counter(here)
        more.subtract(there)
        for name, count in more.items():
            if count and name in held:
                held[name] = held[name].holding(quantum, count, spec.name)
    return held


def units(spec: TierSpec, placement: Placement) -> Iterable[tuple[HostName, Quantum]]:
    """Yield what an incarnation holds, container by container."""
    yield placement.driver, spec.driver
    for name in placement.slots:
        yield name, spec.quantum


def overfull(hosts: Hosts, before: Hosts | None = None) -> list[str]:
    """Name the hosts that hold more than they have; with `before`, those that did not hold as much then."""
    return [
        f"{host.name} holds {host.used_cpu:g} of {host.capacity.cpu:g} cpu and {host.used_memory} of {host.capacity.memory} MiB"
        for host in hosts.values()
        if host.overfull and (before is None or _is_fuller(host, before[host.name]))
    ]


def _is_fuller(host: Host, before: Host) -> bool:
    return host.used_cpu > before.used_cpu + TOLERANCE or host.used_memory > before.used_memory
