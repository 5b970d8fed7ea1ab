"""The draft of one pass: policies and steps change it.

`Draft.writes` returns the differences to the snapshot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from pydantic import BaseModel

from sluice_ops.channel import Write
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, Decommissioned, HostRecord, HostState, slot_ids
from sluice_ops.model.backpressure import Holds
from sluice_ops.model.batch import BatchGrants, Reclaims
from sluice_ops.model.change import (
    ChangeRecord,
    ChangeState,
    JournalEntry,
    MaintenanceLock,
    Operation,
    Result,
)
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, OperationId, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Phase, Placement, TierWanted
from sluice_ops.model.resources import Quantum
from sluice_ops.model.status import TierStatus
from sluice_ops.model.trail import SiteSaid
from sluice_ops.planning.placement.cluster import BURST_ZONE, Hosts, Rules, holding, moved
from sluice_ops.planning.placement.pace import Pace, pace
from sluice_ops.snapshot import site_settings
from sluice_ops.snapshot.rules import with_view
from sluice_ops.snapshot.view import HostView, TierView, View


@dataclass(frozen=True)
class PassInputs:
    """The inputs of a pass besides the snapshot."""

    now: float
    """Wall clock, for stamps and for times that people set. `known_seconds` measures durations."""
    lost: frozenset[HostName]
    rules: Rules
    """The rules of the site file, without layers."""
    braked_return: bool = False
    """A braked host came back a moment ago, so other braked hosts may follow."""
    known_seconds: Mapping[float, float] = field(default_factory=dict)
    """Stamp of the snapshot → how long this controller has known the stamp."""
    led_seconds: float = inf
    """How long this controller has led. While nobody leads, nobody can renew a lease."""
    baseline: View | None = None
    """An earlier snapshot in which every assignment was right, so only differences matter."""


@dataclass
class Shortage:
    """The tiers that found too little free room in this pass: to start, or for lost slots."""

    promised: dict[TierName, tuple[tuple[HostName, Quantum], ...]] = field(default_factory=dict)
    """Tier → the units that it gets, and where, once `batch` has given slots back."""
    needy: list[TierName] = field(default_factory=list)
    """Tiers that lack room even if `batch` gives slots back."""

    def __bool__(self) -> bool:
        """Tell whether a tier is short of room. `batch` is then lent nothing."""
        return bool(self.promised or self.needy)


class Draft:
    """The decisions of one pass so far. Policies read it, and `decide` applies their results."""

    def __init__(self, view: View, inputs: PassInputs) -> None:
        """Start from the snapshot."""
        self.view = view
        self.inputs = inputs
        self.rules = with_view(replace(inputs.rules, layers=view.layers), view)
        """The rules of the site file under the layers."""
        self.owners: dict[TierName, OwnerRecord] = {name: tier.owner for name, tier in view.tiers.items()}
        self.incarnations: dict[TierName, dict[Incarnation, IncarnationSpec]] = {
            name: dict(tier.incarnations) for name, tier in view.tiers.items()
        }
        self.wanted: dict[TierName, TierWanted] = {name: tier.wanted for name, tier in view.tiers.items()}
        self.records: dict[HostName, HostRecord] = {name: host.record for name, host in view.hosts.items()}
        self.assignments: dict[HostName, Assignment] = {
            name: host.assignment for name, host in view.hosts.items()
        }
        self.decommissioned: dict[HostName, Decommissioned] = dict(view.decommissioned)
        self.changes: dict[ChangeId, ChangeRecord] = dict(view.changes)
        self.lock: MaintenanceLock | None = view.lock
        self.holds: Holds = view.holds
        self.batch: dict[int, HostName] = {}
        """Number of each slot of `batch` → its host."""
        self.batch_grants: BatchGrants | None = view.batch_grants
        self.batch_reclaims: Reclaims = view.batch_reclaims
        self.ended_batch_jobs: tuple[str, ...] = ()
        """Batch jobs whose requests are deleted."""
        self.braked: frozenset[HostName] = frozenset()
        """Lost hosts from which nothing is moved."""
        self.shortage = Shortage()
        self.deaths: dict[tuple[TierName, Incarnation], str] = {}
        """Incarnations that died before they took over → the reason."""
        self.statuses: dict[TierName, TierStatus] = {}
        self.events: list[str] = []
        """Decisions of this pass as sentences, for the log and for the journals of open operations.
        """
        self.results: dict[OperationId, Result] = {}
        self.posted: dict[OperationId, Operation] = {}
        """Steps of the controller's own changes, which the next pass carries out."""
        self.counted_hosts: Hosts | None = None
        """The hosts with the units that they hold, once `capacity` has counted them.

        Changes of the draft keep the count true.
        """
        self._usable: frozenset[HostName] | None = None
        self._journals: dict[OperationId, list[str]] = {}

    @property
    def now(self) -> float:
        """The wall clock at the begin of the pass."""
        return self.inputs.now

    @property
    def lost(self) -> frozenset[HostName]:
        """The hosts whose agents have been silent for too long."""
        return self.inputs.lost

    @cached_property
    def site(self) -> SiteSaid:
        """The settings of the site file, which the trail compares."""
        return site_settings.settings_of(self.rules)

    def age(self, stamp: float) -> float:
        """Return how long this controller has known a stamp. Unit: seconds."""
        return self.inputs.known_seconds.get(stamp, 0.0)

    # -- tiers

    def end_first(self) -> list[TierView]:
        """Return the tiers, nearest the pipeline's end first."""
        return sorted(self.view.tiers.values(), key=lambda tier: (tier.spec.distance, tier.spec.name))

    def unretired(self, tier: TierName) -> list[IncarnationSpec]:
        """Return the incarnations of a tier that hold units."""
        return [spec for spec in self.incarnations[tier].values() if not spec.retired]

    def owner_spec(self, tier: TierName) -> IncarnationSpec | None:
        """Return the owner's spec; None if the owner is retired, or the tier is stopped."""
        record = self.owners[tier]
        spec = None if record.owner is None or record.stopped else self.incarnations[tier].get(record.owner)
        return None if spec is None or spec.retired else spec

    def workers(self, tier: TierName) -> tuple[UnitId, ...]:
        """Name the slots of the owner."""
        spec = self.owner_spec(tier)
        return () if spec is None else slot_ids(tier, spec.incarnation, len(spec.placement.slots))

    def living_workers(self, tier: TierName) -> frozenset[UnitId]:
        """Name the slots of the owner whose hosts are not lost."""
        spec = self.owner_spec(tier)
        slots = () if spec is None else spec.placement.slots
        return frozenset(
            worker for worker, host in zip(self.workers(tier), slots, strict=True) if not self.is_lost(host)
        )

    def release_of(self, tier: TierName) -> str | None:
        """Return the release from which a tier's next incarnation starts."""
        return self.wanted[tier].release or self.view.tiers[tier].spec.release

    def begin(  # noqa: PLR0913, PLR0917 - what an incarnation is
        self,
        tier: TierName,
        placement: Placement,
        reason: str,
        failures: int = 0,
        release: str | None = None,
        partitions: int | None = None,
        counted_hosts: Hosts | None = None,
    ) -> Incarnation:
        """Add an incarnation under a number that was never used, and return the number.

        Release and partitions default to those of the tier. `counted_hosts` are the hosts with the
        units that they then hold, if the caller has counted them.
        """
        if release is None and (release := self.release_of(tier)) != self.wanted[tier].release:
            self.wanted[tier] = self.wanted[tier].model_copy(update={"release": release})
        known = [0, *self.incarnations[tier], self.owners[tier].owner or 0, self.owners[tier].next or 0]
        number = Incarnation(max(known) + 1)
        self.incarnations[tier][number] = IncarnationSpec(
            tier=tier,
            incarnation=number,
            placement=placement,
            reason=reason,
            created_at=self.now,
            failures=failures,
            release=release,
            partitions=partitions or self.wanted[tier].partitions,
            savepoint=self.wanted[tier].savepoint,
            attempt=self.wanted[tier].attempt,
        )
        if counted_hosts is None:
            self._count(tier, placement, 1)
        else:
            self.counted_hosts = counted_hosts
        return number

    def update_incarnation(self, tier: TierName, number: Incarnation, **fields: object) -> None:
        """Change fields of an incarnation's spec."""
        self.incarnations[tier][number] = self.incarnations[tier][number].model_copy(update=fields)

    def retire(self, tier: TierName, number: Incarnation) -> None:
        """Take the units of an incarnation away."""
        spec = self.incarnations[tier].get(number)
        if spec is not None and not spec.retired:
            self.update_incarnation(tier, number, retired=True)
            self._count(tier, spec.placement, -1)

    def move_slots(self, tier: TierName, number: Incarnation, slots: tuple[HostName, ...]) -> None:
        """Give a living incarnation other slots."""
        before = self.incarnations[tier][number].placement
        after = before.model_copy(update={"slots": slots})
        self.update_incarnation(tier, number, placement=after)
        if self.counted_hosts is not None:
            self.counted_hosts = moved(self.counted_hosts, self.view.tiers[tier].spec, before, after)

    def _count(self, tier: TierName, placement: Placement, count: int) -> None:
        if self.counted_hosts is not None:
            self.counted_hosts = holding(self.counted_hosts, self.view.tiers[tier].spec, placement, count)

    def update_owner(self, tier: TierName, **fields: object) -> None:
        """Change fields of a tier's owner record."""
        self.owners[tier] = self.owners[tier].model_copy(update=fields)

    def make_owner(self, tier: TierName, number: Incarnation) -> None:
        """Make an incarnation the only owner, without a handover under way or a standby."""
        self.update_owner(tier, owner=number, next=None, standby=None, phase=Phase.STEADY, paused_workers=())

    def drop_next(self, tier: TierName) -> None:
        """Take the next incarnation of a tier away; the owner goes on."""
        number = self.owners[tier].next
        if number is not None:
            self.retire(tier, number)
            self.update_owner(tier, next=None, phase=Phase.STEADY)

    # -- hosts, batch and changes

    def host(self, name: HostName) -> HostView | None:
        """Return the snapshot of a host; None if no node of it is left."""
        return self.view.hosts.get(name)

    def is_lost(self, name: HostName) -> bool:
        """Tell whether a host is off the channel, or its agent has been silent for too long."""
        return name in self.lost or name not in self.view.hosts

    def host_state(self, name: HostName) -> HostState:
        """Return the state of a host: lost, or what its record says."""
        return HostState.LOST if self.is_lost(name) else self.records[name].state

    def usable_hosts(self) -> frozenset[HostName]:
        """Return the hosts that are up and not lost."""
        if self._usable is None:
            self._usable = frozenset(
                name
                for name in self.view.hosts
                if name not in self.lost and self.records[name].state is HostState.UP
            )
        return self._usable

    @cached_property
    def silent_hosts(self) -> frozenset[HostName]:
        """The site's own hosts whose agents are silent, but not for so long that they are lost."""
        return frozenset(
            name
            for name, host in self.view.hosts.items()
            if not host.live
            and name not in self.lost
            and (host.facts.zone != BURST_ZONE if host.facts is not None else name in self.view.unread_hosts)
        )

    @cached_property
    def pace(self) -> Pace:
        """How long changes take at this site."""
        return pace(
            self.view.changes.values(),
            (spec for tier in self.view.tiers.values() for spec in tier.incarnations.values()),
        )

    @cached_property
    def observed_batch(self) -> list[tuple[HostName, UnitId]]:
        """The slots of `batch` that living agents report, each with its host."""
        return [
            (name, unit)
            for name, host in self.view.hosts.items()
            if host.live and host.observed is not None
            for unit in host.observed.batch
        ]

    @cached_property
    def starved(self) -> dict[TierName, dict[HostName, float]]:
        """Tiers whose owner is starved of processor time → host → since when."""
        starved: dict[TierName, dict[HostName, float]] = {}
        for name, host in self.view.hosts.items():
            since = host.observed.starved if host.live and host.observed is not None else {}
            for unit in host.assignment.units if since else ():
                tier = self.view.tiers.get(TierName(unit.tenant))
                if unit.id in since and tier is not None and tier.owner.owner == unit.incarnation:
                    hosts = starved.setdefault(tier.spec.name, {})
                    hosts[name] = min(since[unit.id], hosts.get(name, since[unit.id]))
        return starved

    def set_host_state(self, name: HostName, state: HostState, by: str) -> None:
        """Write the state of a host. The quarantine stays if `by` is unchanged."""
        before = self.records.get(name, HostRecord())
        if before.state is not state:
            after = HostRecord(state=state, by=by, since=self.now)
            if before.by == by:
                after = after.model_copy(update={"reason": before.reason, "until": before.until})
            self.write_records({name: after})

    def write_records(self, records: Mapping[HostName, HostRecord]) -> None:
        """Write the records of some hosts."""
        if records:
            self.records |= records
            self.counted_hosts = self._usable = None

    def lend(self, slots: Mapping[int, HostName]) -> None:
        """Give `batch` exactly these slots."""
        if self.batch != slots:
            self.batch = dict(slots)
            self.counted_hosts = None

    def update_change(self, identity: ChangeId, **fields: object) -> None:
        """Change fields of a change's record."""
        self.changes[identity] = self.changes[identity].model_copy(update=fields)

    def active_changes(self) -> list[ChangeRecord]:
        """Return the changes that have begun and not ended."""
        return [change for change in self.changes.values() if change.state is ChangeState.ACTIVE]

    def end_change(self, identity: ChangeId, state: ChangeState) -> None:
        """Close a change's record, and give the maintenance lock back."""
        self.update_change(identity, state=state, ended_at=self.now)
        if self.lock is not None and self.lock.change == identity:
            self.lock = None

    # -- sentences

    def log(self, *sentences: str) -> None:
        """Report decisions."""
        self.events.extend(sentences)

    def journal(self, identity: OperationId, sentence: str) -> None:
        """Add a line to an operation's journal, unless it is the last line already."""
        lines = self._journals.setdefault(identity, [])
        if sentence != (lines[-1] if lines else self.view.operations[identity].last):
            lines.append(sentence)

    # -- writes

    def writes(self) -> list[Write]:
        """Return what differs from the snapshot, each guarded by the version that was read."""
        changed = [
            (path, _with_next_epoch(before, after))
            for path, before, after in self._compared()
            if before is not after and before != after
        ]
        return [
            Write(path, value, self.view.versions.get(path))
            for path, value in (*changed, *self._added(), *self._deleted())
        ]

    def _compared(self) -> Iterable[tuple[str, BaseModel | None, BaseModel | None]]:
        view = self.view
        for tier in self.end_first():
            name = tier.spec.name
            for number, spec in self.incarnations[name].items():
                if (incarnation := tier.incarnations.get(number)) is not spec:
                    yield paths.incarnation(name, number), incarnation, spec
            yield paths.owner(name), tier.owner, self.owners[name]
            yield paths.wanted(name), tier.wanted, self.wanted[name]
        for host, seen in view.hosts.items():  # thousands, of which few have changed
            if (record := self.records[host]) is not seen.record:
                yield paths.host_record(host), seen.record, record
            if (assignment := self.assignments[host]) is not seen.assignment:
                yield paths.assignment(host), seen.assignment, assignment
        for host_name, gone in self.decommissioned.items():
            yield paths.decommissioned(host_name), view.decommissioned.get(host_name), gone
        for identity, change in self.changes.items():
            if (before := view.changes.get(identity)) is not change:
                yield paths.change(identity), before, change
        yield paths.LAYERS, view.layers, self.rules.layers
        yield paths.HOLDS, view.holds, self.holds
        yield paths.BATCH_GRANTS, view.batch_grants, self.batch_grants
        yield paths.BATCH_RECLAIMS, view.batch_reclaims, self.batch_reclaims
        yield paths.SITE, view.site, self.site
        yield paths.LOCK, view.lock, self.lock

    def _added(self) -> Iterable[tuple[str, BaseModel]]:
        for identity, lines in self._journals.items():
            for number, sentence in enumerate(lines, self.view.operations[identity].lines):
                yield f"{paths.journal(identity)}/{number:010d}", JournalEntry(at=self.now, sentence=sentence)
        for identity, operation in self.posted.items():
            yield paths.operation(identity), operation
        for identity, result in self.results.items():
            yield paths.result(identity), result

    def _deleted(self) -> Iterable[tuple[str, None]]:
        for job in self.ended_batch_jobs:
            yield paths.batch_job(job), None


def _with_next_epoch(before: BaseModel | None, after: BaseModel | None) -> BaseModel | None:
    """Raise the epoch of an owner record or an assignment: receivers refuse older epochs."""
    if isinstance(before, OwnerRecord | Assignment) and after is not None:
        return after.model_copy(update={"epoch": before.epoch + 1})
    return after
