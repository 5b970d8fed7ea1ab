"""One snapshot of the channel as frozen values: the only place of the controller that reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from sluice_ops.channel import ANY_VERSION, Read
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostFacts, HostRecord, Observed, Unit
from sluice_ops.model.backpressure import Holds
from sluice_ops.model.change import ChangeRecord, JournalEntry, MaintenanceLock, Operation, change_of_step
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, OperationId, TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord, TierWanted
from sluice_ops.model.release import Release
from sluice_ops.model.share import Layers
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.trail import SiteSaid
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds import KINDS

M = TypeVar("M", bound=BaseModel)

_NO_RECORD = HostRecord()
"""What holds of a host where nothing is written: the same for thousands of them."""
MENDED_BY = (
    "where a newer version has written it, upgrade the controllers; "
    "else publish again, write it anew with zkCli, or delete it and what it said is forgotten"
)
"""What to do about a node that cannot be read."""
_HOST_MENDED_BY = "start its agent again, which writes it anew; where a newer version has written it, upgrade the controllers"
_RELEASE_MENDED_BY = (
    "where a newer version has written it, upgrade the controllers; "
    "else delete it with zkCli, and `python -m sluice.commands.publish` writes it anew"
)


class Reader(Protocol):
    """What a snapshot is taken from: the channel, its mirror, or a test's memory."""

    def read(self, path: str, model: type[M], *, watch: bool = False) -> Read[M] | None:
        """Return the value at `path`."""

    def read_many(self, paths: Sequence[str], model: type[M], *, watch: bool = False) -> list[Read[M] | None]:
        """Return the values at many paths."""

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names below `path`."""

    def children_many(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Return the names below many paths."""

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether there is a node at `path`."""

    @property
    def refused(self) -> frozenset[str]:
        """The nodes that did not parse when they were last read, and of which there is no good value."""


class Kept(Protocol):
    """What keeps hosts between two looks, as long as none of their nodes changes."""

    def unchanged(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the hosts of these names that are as they were when they were kept."""

    def keep(self, made: Mapping[str, Any]) -> None:
        """Keep hosts."""


@dataclass(frozen=True)
class TierView:
    """A tier: its declaration, its fence, what is wanted of it, and all its incarnations."""

    spec: TierSpec
    owner: OwnerRecord
    wanted: TierWanted
    incarnations: Mapping[Incarnation, IncarnationSpec]
    reports: Mapping[Incarnation, IncarnationReport]


@dataclass(frozen=True)
class HostView:
    """A host: its facts, whether its agent is there, what it has to run and what it runs."""

    name: HostName
    facts: HostFacts | None
    live: bool
    record: HostRecord
    assignment: Assignment
    observed: Observed | None


@dataclass(frozen=True)
class OperationView:
    """A posted step without a result, and how far its journal has come."""

    operation: Operation
    lines: int
    last: str | None
    last_at: float | None
    """When its journal last had something new to say."""


@dataclass(frozen=True)
class View:
    """Everything that one pass decides from, with the versions that guard its writes."""

    tiers: Mapping[TierName, TierView] = field(default_factory=dict)
    hosts: Mapping[HostName, HostView] = field(default_factory=dict)
    operations: Mapping[OperationId, OperationView] = field(default_factory=dict)
    changes: Mapping[ChangeId, ChangeRecord] = field(default_factory=dict)
    garbled: frozenset[ChangeId] = frozenset()
    """Changes that are there and cannot be read: what they were is as if it had been aborted, and nothing can be begun under their ids."""
    used: frozenset[ChangeId] = frozenset()
    """The ids of all changes that are there, and of those of which only steps are left."""
    lock: MaintenanceLock | None = None
    layers: Layers = field(default_factory=Layers)
    releases: Mapping[str, Release] = field(default_factory=dict)
    status: ControllerStatus | None = None
    holds: Holds = field(default_factory=Holds)
    site: SiteSaid | None = None
    """What the site file said when a leader last looked; None: no leader has yet, or nobody can read it."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Tiers of which a node is there and cannot be read, and which it is: it is damaged, or a newer version has written it."""
    strange: tuple[OperationId, ...] = ()
    """Likewise operations that wait for their result."""
    unread_hosts: Mapping[HostName, str] = field(default_factory=dict)
    """Hosts whose facts are there and cannot be read, and the node: what runs there goes on, and how much room there is nobody knows."""
    unread_releases: Mapping[str, str] = field(default_factory=dict)
    """Likewise releases, and what to say of each."""
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def troubles(self) -> list[str]:
        """Say what cannot be read, and what to do."""
        return [
            said for said in (self.left, self.unknown, *self.unread_releases.values()) if said is not None
        ]

    @property
    def unknown(self) -> str | None:
        """Say of which hosts it is not known what they have, and what to do; None when all can be read."""
        if not self.unread_hosts:
            return None
        hosts, nodes = (listed(sorted(names)) for names in (self.unread_hosts, self.unread_hosts.values()))
        return f"what {hosts} has cannot be read: what runs there goes on, and nothing new goes there; {nodes}: {_HOST_MENDED_BY}"

    @property
    def left(self) -> str | None:
        """Say which tiers are left as they are, and what to do; None when all of them can be read."""
        if not self.unread:
            return None
        tiers, nodes = (listed(sorted(names)) for names in (self.unread, self.unread.values()))
        return (
            f"{tiers} cannot be read: what runs of it goes on, and is not looked after; {nodes}: {MENDED_BY}"
        )

    def left_on(self, host: HostName) -> list[Unit]:
        """Return what a host has to run of these tiers."""
        return (
            [unit for unit in self.hosts[host].assignment.units if unit.tenant in self.unread]
            if self.unread
            else []
        )


_Seen = tuple[HostView, Mapping[str, int]]
"""A host, and the versions of its nodes."""


class _Look:
    """Reads with watches, and notes each version."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.versions: dict[str, int] = {}

    def value(self, path: str, model: type[M]) -> M | None:
        return self.values((path,), model)[0]

    def values(self, paths: Sequence[str], model: type[M]) -> list[M | None]:
        found = self.reader.read_many(paths, model, watch=True)
        self.versions.update(
            (path, each.version) for path, each in zip(paths, found, strict=True) if each is not None
        )
        return [None if each is None else each.value for each in found]

    def names(self, path: str) -> list[str]:
        return self.reader.children(path, watch=True)

    def is_unread(self, path: str, found: object) -> bool:
        """Tell whether there is a node of which nothing was found."""
        return found is None and self.reader.exists(path, watch=True)


def look(reader: Reader, kept: Kept | None = None) -> View:
    """Take a snapshot; hosts that were `kept` are not looked at anew."""
    at = _Look(reader)
    tiers = {TierName(name): _tier(at, name) for name in at.names("/tiers")}
    posted = at.names("/operations")
    waiting = [name for name in posted if not reader.exists(paths.result(name), watch=True)]
    operations = {OperationId(name): _operation(at, name) for name in waiting}
    begun = [ChangeId(name) for name in at.names("/changes") if paths.change(name) != paths.LOCK]
    changes = {name: _change(at, name) for name in begun}
    hosts = {host.name: host for host in _hosts(at, kept)}
    releases = {name: at.value(paths.release(name), Release) for name in at.names(paths.RELEASES)}
    site = at.value(paths.SITE, SiteSaid)
    if at.is_unread(paths.SITE, site):
        at.versions[paths.SITE] = ANY_VERSION  # nothing rests on it: it is written anew
    refused = reader.refused
    return View(
        tiers={name: tier for name, tier in tiers.items() if isinstance(tier, TierView)},
        unread={name: node for name, node in tiers.items() if isinstance(node, str)},
        hosts=hosts,
        unread_hosts={
            name: node
            for name, host in hosts.items()
            if host.facts is None and (node := paths.host(name)) in refused
        },
        operations={name: operation for name, operation in operations.items() if operation is not None},
        strange=tuple(
            name for name, operation in operations.items() if at.is_unread(paths.operation(name), operation)
        ),
        changes={name: change for name, change in changes.items() if change is not None},
        garbled=frozenset(
            name for name, change in changes.items() if at.is_unread(paths.change(name), change)
        ),
        used=frozenset({*begun, *(change_of_step(OperationId(name)) for name in posted)}),
        lock=at.value(paths.LOCK, MaintenanceLock),
        layers=at.value(paths.LAYERS, Layers) or Layers(),
        releases={name: release for name, release in releases.items() if release is not None},
        unread_releases={name: _unread_release(name) for name in releases if paths.release(name) in refused},
        status=at.value(paths.CONTROLLER_STATUS, ControllerStatus),
        holds=at.value(paths.HOLDS, Holds) or Holds(),
        site=site,
        versions=at.versions,
    )


def rests_on(path: str) -> bool:
    """Tell whether every decision rests on a node: what else cannot be read, of one tier, host or release, is among `View.troubles`."""
    root, *below = path[1:].split("/")
    return (
        path in {paths.LAYERS, paths.LOCK, paths.HOLDS}
        or root == "assignments"
        or (root == "hosts" and below[-1] == paths.RECORD)
    )


def _tier(at: _Look, name: str) -> TierView | str:
    """Return a tier, or the node of it that cannot be read; of its incarnations those before the owner are history."""
    spec = at.value(paths.tier(name), TierSpec)
    owner, wanted = at.value(paths.owner(name), OwnerRecord), at.value(paths.wanted(name), TierWanted)
    numbers = [Incarnation(int(number)) for number in at.names(paths.incarnations(name)) if number.isdigit()]
    specs = {number: at.value(paths.incarnation(name, number), IncarnationSpec) for number in sorted(numbers)}
    first = 0 if owner is None else owner.owner or 0
    newer = {paths.incarnation(name, number): found for number, found in specs.items() if number >= first}
    needed = {paths.owner(name): owner, paths.wanted(name): wanted, **newer}
    unread = next((path for path, found in needed.items() if at.is_unread(path, found)), None)
    if spec is None or unread is not None:
        return unread or paths.tier(name)
    heard = {number: at.value(paths.report(name, number), IncarnationReport) for number in numbers}
    reports = {number: found for number, found in heard.items() if found is not None}
    return TierView(
        spec=spec,
        owner=owner or _no_owner(reports),
        wanted=wanted or TierWanted(),
        incarnations={number: found for number, found in specs.items() if found is not None},
        reports=reports,
    )


def _no_owner(reports: dict[Incarnation, IncarnationReport]) -> OwnerRecord:
    """Return what holds where nobody owns a tier. Epochs go on after those of a record that was deleted: the sink refuses older ones."""
    return OwnerRecord(epoch=max((report.epoch for report in reports.values()), default=0))


def _unread_release(name: str) -> str:
    return f"release {name} cannot be read; {paths.release(name)}: {_RELEASE_MENDED_BY}"


def _hosts(at: _Look, kept: Kept | None) -> Iterable[HostView]:
    """Yield all hosts by name; of ten thousand most are as they were at the last look."""
    names = sorted({*at.names("/hosts"), *at.names("/assignments")})
    seen: dict[str, _Seen] = {} if kept is None else kept.unchanged(names)
    new = dict(_looked_at(at, [name for name in names if name not in seen]))
    if kept is not None:
        kept.keep(new)
    for name in names:
        host, versions = seen.get(name) or new[name]
        at.versions.update(versions)
        yield host


def _looked_at(at: _Look, names: Sequence[str]) -> Iterable[tuple[str, _Seen]]:
    """Yield each host; each question is put for all of them together."""
    below = at.reader.children_many([paths.host(name) for name in names], watch=True)
    recorded = [name for name, nodes in zip(names, below, strict=True) if paths.RECORD in nodes]
    records = dict(
        zip(recorded, at.values([paths.host_record(name) for name in recorded], HostRecord), strict=True)
    )
    facts = at.values([paths.host(name) for name in names], HostFacts)
    assigned = at.values([paths.assignment(name) for name in names], Assignment)
    observed = at.values([paths.observed(name) for name in names], Observed)
    for number, name in enumerate(names):
        nodes = (paths.host_record(name), paths.host(name), paths.assignment(name), paths.observed(name))
        host = HostView(
            name=HostName(name),
            facts=facts[number],
            live=paths.LIVE in below[number],
            record=records.get(name) or _NO_RECORD,
            assignment=assigned[number] or _no_units(observed[number]),
            observed=observed[number],
        )
        yield name, (host, {node: at.versions[node] for node in nodes if node in at.versions})


def _no_units(observed: Observed | None) -> Assignment:
    """Return what holds where nothing is assigned. The epochs go on after one that was deleted: the host's agent refuses older ones."""
    return _nothing(0 if observed is None else observed.epoch)


@cache
def _nothing(epoch: int) -> Assignment:
    return Assignment(epoch=epoch)


def _change(at: _Look, name: str) -> ChangeRecord | None:
    """Return a change; None when this version cannot read it, or does not know its kind."""
    change = at.value(paths.change(name), ChangeRecord)
    return change if change is not None and change.spec.kind in KINDS else None


def _operation(at: _Look, name: str) -> OperationView | None:
    """Return an operation that waits for its result; None when this version cannot read it."""
    operation = at.value(paths.operation(name), Operation)
    if operation is None or operation.spec.kind not in KINDS:
        return None
    lines = at.names(paths.journal(name))
    last = at.value(f"{paths.journal(name)}/{lines[-1]}", JournalEntry) if lines else None
    return OperationView(
        operation, len(lines), None if last is None else last.sentence, None if last is None else last.at
    )
