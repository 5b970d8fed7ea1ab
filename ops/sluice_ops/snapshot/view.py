"""One snapshot of the channel as frozen values: the only place of the controller that reads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from sluice_ops.channel import ANY_VERSION, Read
from sluice_ops.model import paths
from sluice_ops.model.alert import CHANGE_WAITS, AlertRecord, AlertRequests
from sluice_ops.model.approval import Answer
from sluice_ops.model.assignment import Assignment, Decommissioned, HostFacts, HostRecord, Observed, Unit
from sluice_ops.model.backpressure import Holds
from sluice_ops.model.batch import BatchGrants, BatchRequest, Reclaims
from sluice_ops.model.change import (
    ChangeRecord,
    ChangeState,
    JournalEntry,
    MaintenanceLock,
    Operation,
    change_of_step,
)
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, OperationId, TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord, TierWanted
from sluice_ops.model.release import Release, is_light_in
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.share import Layers
from sluice_ops.model.source import SourceRecord, TakenOver
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.trail import SiteSaid
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds import KINDS

M = TypeVar("M", bound=BaseModel)
N = TypeVar("N")

_NO_RECORD = HostRecord()
"""The record of a host without a record; one object for thousands of hosts."""
MENDED_BY = (
    "if a newer version wrote the node, upgrade the controllers; "
    "otherwise publish again, write the node with zkCli, or delete it, which loses its content"
)
"""What to do about a node that cannot be read."""
_HOST_MENDED_BY = (
    "restart the host's agent, which writes the node again; "
    "if a newer version wrote it, upgrade the controllers"
)
_RELEASE_MENDED_BY = (
    "if a newer version wrote the node, upgrade the controllers; "
    "otherwise delete it with zkCli, then run: sluice publish"
)


class Reader(Protocol):
    """The source of a snapshot: the channel, its mirror, or a test's memory."""

    def read(self, path: str, model: type[M], *, watch: bool = False) -> Read[M] | None:
        """Return the value at `path`."""

    def read_many(self, paths: Sequence[str], model: type[M], *, watch: bool = False) -> list[Read[M] | None]:
        """Return the values at many paths."""

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names below `path`."""

    def children_many(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Return the names below many paths."""

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether a node exists at `path`."""

    @property
    def refused(self) -> frozenset[str]:
        """The nodes that did not parse when they were last read, and have no last good value."""


class HostCache(Protocol):
    """Keeps hosts between two looks, as long as none of their nodes changes."""

    def unchanged(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the kept hosts of these names whose nodes have not changed."""

    def keep(self, built: Mapping[str, Any]) -> None:
        """Keep hosts."""


@dataclass(frozen=True)
class TierView:
    """A tier: its declaration, owner record, requested state, and all its incarnations."""

    spec: TierSpec
    """The newest declaration, but light only if the next incarnation's release is light, too."""
    owner: OwnerRecord
    wanted: TierWanted
    incarnations: Mapping[Incarnation, IncarnationSpec]
    reports: Mapping[Incarnation, IncarnationReport]
    may_be_light: bool = False
    """Whether the newest declaration is light."""


@dataclass(frozen=True)
class HostView:
    """A host: its facts, whether its agent is alive, its assignment and what its agent reports."""

    name: HostName
    facts: HostFacts | None
    live: bool
    record: HostRecord
    assignment: Assignment
    observed: Observed | None


@dataclass(frozen=True)
class SourceView:
    """A source that should run, and whether its process is there."""

    record: SourceRecord
    live: bool
    taken: TakenOver | None
    """The last process that lost the name to another one."""


@dataclass(frozen=True)
class OperationView:
    """A posted step without a result, and the end of its journal."""

    operation: Operation
    lines: int
    last: str | None
    last_at: float | None
    """When the last line of the journal was written."""


@dataclass(frozen=True)
class View:
    """Everything on which one pass decides, with the versions that guard its writes."""

    tiers: Mapping[TierName, TierView] = field(default_factory=dict)
    hosts: Mapping[HostName, HostView] = field(default_factory=dict)
    decommissioned: Mapping[HostName, Decommissioned] = field(default_factory=dict)
    """The hosts that were taken out of service for good."""
    sources: Mapping[str, SourceView] = field(default_factory=dict)
    """The sources of records from outside, by `NAME@STREAM`."""
    operations: Mapping[OperationId, OperationView] = field(default_factory=dict)
    changes: Mapping[ChangeId, ChangeRecord] = field(default_factory=dict)
    unread_changes: frozenset[ChangeId] = frozenset()
    """Changes that cannot be read. They count as aborted, and their ids cannot be used again."""
    answers: Mapping[ChangeId, Answer] = field(default_factory=dict)
    """The answers of other persons to changes that wait for approval."""
    alerts: AlertRecord = field(default_factory=AlertRecord)
    alert_requests: AlertRequests = field(default_factory=AlertRequests)
    """The silences of alerts."""
    used_change_ids: frozenset[ChangeId] = frozenset()
    """The ids of all changes, also of those of which only steps are left."""
    lock: MaintenanceLock | None = None
    layers: Layers = field(default_factory=Layers)
    releases: Mapping[str, Release] = field(default_factory=dict)
    status: ControllerStatus | None = None
    holds: Holds = field(default_factory=Holds)
    scaler: ScalerRecord = field(default_factory=ScalerRecord)
    batch_requests: Mapping[str, BatchRequest] = field(default_factory=dict)
    """The requests of batch jobs."""
    unread_batch_jobs: frozenset[str] = frozenset()
    """Batch jobs whose requests cannot be read. They keep their slots."""
    batch_grants: BatchGrants | None = field(default_factory=BatchGrants)
    """None: unreadable. Nothing is decided about batch jobs then."""
    batch_reclaims: Reclaims = field(default_factory=Reclaims)
    """Empty if unreadable: no decision needs it."""
    site: SiteSaid | None = None
    """The site file's settings at a leader's last look; None: no look yet, or unreadable."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Tier with an unreadable node → the node. It is damaged, or a newer version wrote it."""
    unread_operations: tuple[OperationId, ...] = ()
    """Operations that wait for their result and cannot be read."""
    unread_hosts: Mapping[HostName, str] = field(default_factory=dict)
    """Host with unreadable facts → the node. Its units continue; its free room is unknown."""
    unread_releases: Mapping[str, str] = field(default_factory=dict)
    """Unreadable release → a sentence with the next step."""
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def open_alerts(self) -> tuple[str, ...]:
        """The keys of the alerts that were told and last, without events and waiting changes."""
        return tuple(
            key
            for key, alert in self.alerts.alerts.items()
            if alert.told_at is not None
            and alert.gone_at is None
            and alert.ends_at is None
            and alert.kind != CHANGE_WAITS
        )

    @property
    def unreadable(self) -> list[str]:
        """Sentences on everything that cannot be read, each with the next step."""
        sentences = (
            self.unread_tiers_sentence,
            self.unread_hosts_sentence,
            *self.unread_releases.values(),
            self._unread_grants_sentence,
        )
        return [sentence for sentence in sentences if sentence is not None]

    @property
    def unread_hosts_sentence(self) -> str | None:
        """The hosts with unreadable facts, and what to do; None if all can be read."""
        if not self.unread_hosts:
            return None
        hosts, nodes = (listed(sorted(names)) for names in (self.unread_hosts, self.unread_hosts.values()))
        return (
            f"the facts of {hosts} cannot be read: running units continue, and nothing new is placed there; "
            f"{nodes}: {_HOST_MENDED_BY}"
        )

    @property
    def _unread_grants_sentence(self) -> str | None:
        if self.batch_grants is not None:
            return None
        return (
            "the grants of batch jobs cannot be read: running jobs continue, and queued jobs wait; "
            f"{paths.BATCH_GRANTS}: {MENDED_BY}"
        )

    @property
    def unread_tiers_sentence(self) -> str | None:
        """The tiers that cannot be read, and what to do; None if all can be read."""
        if not self.unread:
            return None
        tiers, nodes = (listed(sorted(names)) for names in (self.unread, self.unread.values()))
        return (
            f"{tiers} cannot be read: running units continue, and nothing is decided for them; "
            f"{nodes}: {MENDED_BY}"
        )

    def units_of_unread_tiers(self, host: HostName) -> list[Unit]:
        """Return a host's assigned units whose tiers cannot be read."""
        return (
            [unit for unit in self.hosts[host].assignment.units if unit.tenant in self.unread]
            if self.unread
            else []
        )


_CachedHost = tuple[HostView, Mapping[str, int]]
"""A host, and the versions of its nodes."""


class _Look:
    """Reads nodes with watches, and notes their versions."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.versions: dict[str, int] = {}

    def value(self, path: str, model: type[M]) -> M | None:
        return self.values((path,), model)[0]

    def values(self, paths: Sequence[str], model: type[M]) -> list[M | None]:
        reads = self.reader.read_many(paths, model, watch=True)
        self.versions.update(
            (path, read.version) for path, read in zip(paths, reads, strict=True) if read is not None
        )
        return [None if read is None else read.value for read in reads]

    def by_name(self, names: Sequence[N], path: Callable[[N], str], model: type[M]) -> dict[N, M | None]:
        """Read the nodes of many names in one request."""
        return dict(zip(names, self.values([path(name) for name in names], model), strict=True))

    def names(self, path: str) -> list[str]:
        return self.reader.children(path, watch=True)

    def is_unread(self, path: str, value: object) -> bool:
        """Tell whether a node exists although no value was read from it."""
        return value is None and self.reader.exists(path, watch=True)


def read_view(reader: Reader, cache: HostCache | None = None) -> View:
    """Take a snapshot; hosts in the `cache` are not read again."""
    at = _Look(reader)
    tiers = {TierName(name): _tier(at, name) for name in at.names("/tiers")}
    posted = at.names("/operations")
    waiting = [name for name in posted if not reader.exists(paths.result(name), watch=True)]
    operations = {OperationId(name): _operation(at, name) for name in waiting}
    change_ids = [ChangeId(name) for name in at.names("/changes") if paths.change(name) != paths.LOCK]
    changes = {
        name: _readable(change) for name, change in at.by_name(change_ids, paths.change, ChangeRecord).items()
    }
    hosts = {host.name: host for host in _hosts(at, cache)}
    gone = at.by_name(
        [HostName(name) for name in at.names(paths.DECOMMISSIONED)], paths.decommissioned, Decommissioned
    )
    releases = at.by_name(at.names(paths.RELEASES), paths.release, Release)
    site = at.value(paths.SITE, SiteSaid)
    reclaims = at.value(paths.BATCH_RECLAIMS, Reclaims)
    for path, value in ((paths.SITE, site), (paths.BATCH_RECLAIMS, reclaims)):
        if at.is_unread(path, value):
            at.versions[path] = ANY_VERSION  # no decision needs it: the leader writes it again
    grants = at.value(paths.BATCH_GRANTS, BatchGrants)
    requests = at.by_name(at.names(paths.BATCH_JOBS), paths.batch_job, BatchRequest)
    refused = reader.refused
    known_releases = {name: release for name, release in releases.items() if release is not None}
    return View(
        tiers={
            name: _as_it_starts(tier, known_releases)
            for name, tier in tiers.items()
            if isinstance(tier, TierView)
        },
        unread={name: node for name, node in tiers.items() if isinstance(node, str)},
        hosts=hosts,
        decommissioned={name: host for name, host in gone.items() if host is not None},
        unread_hosts={
            name: node
            for name, host in hosts.items()
            if host.facts is None and (node := paths.host(name)) in refused
        },
        sources=dict(_sources(at)),
        operations={name: operation for name, operation in operations.items() if operation is not None},
        unread_operations=tuple(
            name for name, operation in operations.items() if at.is_unread(paths.operation(name), operation)
        ),
        changes={name: change for name, change in changes.items() if change is not None},
        unread_changes=frozenset(
            name for name, change in changes.items() if at.is_unread(paths.change(name), change)
        ),
        answers=_answers(at, changes.values()),
        alerts=at.value(paths.ALERTS, AlertRecord) or AlertRecord(),
        alert_requests=at.value(paths.ALERT_REQUESTS, AlertRequests) or AlertRequests(),
        used_change_ids=frozenset({*change_ids, *(change_of_step(OperationId(name)) for name in posted)}),
        lock=at.value(paths.LOCK, MaintenanceLock),
        layers=at.value(paths.LAYERS, Layers) or Layers(),
        releases=known_releases,
        unread_releases={name: _unread_release(name) for name in releases if paths.release(name) in refused},
        status=at.value(paths.CONTROLLER_STATUS, ControllerStatus),
        holds=at.value(paths.HOLDS, Holds) or Holds(),
        scaler=at.value(paths.SCALER, ScalerRecord) or ScalerRecord(),
        batch_requests={name: request for name, request in requests.items() if request is not None},
        unread_batch_jobs=frozenset(
            name for name, request in requests.items() if at.is_unread(paths.batch_job(name), request)
        ),
        batch_grants=None if at.is_unread(paths.BATCH_GRANTS, grants) else grants or BatchGrants(),
        batch_reclaims=reclaims or Reclaims(),
        site=site,
        versions=at.versions,
    )


def is_needed_by_all(path: str) -> bool:
    """Tell whether every decision needs this node.

    Unreadable nodes of a single tier, host or release are in `View.unreadable` instead.
    """
    root, *below = path[1:].split("/")
    return (
        path in {paths.LAYERS, paths.LOCK, paths.HOLDS}
        or root == "assignments"
        or (root == "hosts" and below[-1] == paths.RECORD)
    )


def _tier(at: _Look, name: str) -> TierView | str:
    """Return a tier, or the path of its unreadable node.

    Incarnations before the owner need not be read.
    """
    spec = at.value(paths.tier(name), TierSpec)
    owner, wanted = at.value(paths.owner(name), OwnerRecord), at.value(paths.wanted(name), TierWanted)
    numbers = [Incarnation(int(number)) for number in at.names(paths.incarnations(name)) if number.isdigit()]
    specs = at.by_name(sorted(numbers), partial(paths.incarnation, name), IncarnationSpec)
    first = 0 if owner is None else owner.owner or 0
    newer = {
        paths.incarnation(name, number): read_spec for number, read_spec in specs.items() if number >= first
    }
    needed = {paths.owner(name): owner, paths.wanted(name): wanted, **newer}
    unread = next((path for path, value in needed.items() if at.is_unread(path, value)), None)
    if spec is None or unread is not None:
        return unread or paths.tier(name)
    read_reports = at.by_name(numbers, partial(paths.report, name), IncarnationReport)
    reports = {number: report for number, report in read_reports.items() if report is not None}
    return TierView(
        spec=spec,
        owner=owner or _no_owner(reports),
        wanted=wanted or TierWanted(),
        incarnations={number: read_spec for number, read_spec in specs.items() if read_spec is not None},
        reports=reports,
    )


def _as_it_starts(tier: TierView, releases: Mapping[str, Release]) -> TierView:
    """Return a tier as its next incarnation starts.

    A published release changes no tier before its upgrade, so a tier becomes light by an upgrade
    only. A tier whose newest declaration is not light gets workers at its next start.
    """
    if not tier.spec.light:
        return tier
    light = is_light_in(releases, tier.wanted.release or tier.spec.release, tier.spec.name)
    return replace(tier, spec=tier.spec.model_copy(update={"light": light}), may_be_light=True)


def _no_owner(reports: dict[Incarnation, IncarnationReport]) -> OwnerRecord:
    """Return the record of a tier without one.

    Its epoch is the highest one that was reported: a sink refuses the epochs of an older record.
    """
    return OwnerRecord(epoch=max((report.epoch for report in reports.values()), default=0))


def _unread_release(name: str) -> str:
    return f"release {name} cannot be read; {paths.release(name)}: {_RELEASE_MENDED_BY}"


def _hosts(at: _Look, cache: HostCache | None) -> Iterable[HostView]:
    """Yield all hosts by name. Of ten thousand hosts, most have not changed since the last look."""
    names = sorted({*at.names("/hosts"), *at.names("/assignments")})
    unchanged: dict[str, _CachedHost] = {} if cache is None else cache.unchanged(names)
    new = dict(_read_hosts(at, [name for name in names if name not in unchanged]))
    if cache is not None:
        cache.keep(new)
    for name in names:
        host, versions = unchanged.get(name) or new[name]
        at.versions.update(versions)
        yield host


def _read_hosts(at: _Look, names: Sequence[str]) -> Iterable[tuple[str, _CachedHost]]:
    """Yield each host; every kind of node is read for all hosts in one request."""
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
    """Return the assignment of a host without one.

    Its epoch is the last one that the agent reported: the agent refuses older epochs.
    """
    return _empty_assignment(0 if observed is None else observed.epoch)


@cache
def _empty_assignment(epoch: int) -> Assignment:
    return Assignment(epoch=epoch)


def _readable(change: ChangeRecord | None) -> ChangeRecord | None:
    """Return a change; None if this version cannot read it or does not know its kind."""
    return change if change is not None and change.spec.kind in KINDS else None


def _answers(at: _Look, changes: Iterable[ChangeRecord | None]) -> dict[ChangeId, Answer]:
    waiting = [change.id for change in changes if change is not None and change.state is ChangeState.WAITING]
    answers = {name: at.value(paths.approval(name), Answer) for name in waiting}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _sources(at: _Look) -> Iterable[tuple[str, SourceView]]:
    names = at.names(paths.SOURCES)
    records = at.by_name(names, paths.source, SourceRecord)
    below = dict(
        zip(names, at.reader.children_many([paths.source(name) for name in names], watch=True), strict=True)
    )
    taken = at.by_name([name for name in names if paths.TAKEN in below[name]], paths.source_taken, TakenOver)
    for name, record in records.items():
        if record is not None:
            yield name, SourceView(record, live=paths.LIVE in below[name], taken=taken.get(name))


def _operation(at: _Look, name: str) -> OperationView | None:
    """Return an operation without a result; None if this version cannot read it."""
    operation = at.value(paths.operation(name), Operation)
    if operation is None or operation.spec.kind not in KINDS:
        return None
    lines = at.names(paths.journal(name))
    last = at.value(f"{paths.journal(name)}/{lines[-1]}", JournalEntry) if lines else None
    return OperationView(
        operation, len(lines), None if last is None else last.sentence, None if last is None else last.at
    )
