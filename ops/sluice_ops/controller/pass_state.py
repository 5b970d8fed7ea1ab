"""The working copy of one pass: decisions change it, and what differs from the snapshot becomes one atomic set of writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pydantic import BaseModel

from sluice_ops.channel import Write
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostRecord, HostState, slot_ids
from sluice_ops.model.backpressure import Holds
from sluice_ops.model.change import ChangeRecord, JournalEntry, MaintenanceLock, Operation, Result
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, OperationId, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Phase, Placement, TierWanted
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Layers
from sluice_ops.model.status import TierStatus
from sluice_ops.model.trail import Entry
from sluice_ops.planning.placement.cluster import BURST_ZONE, Hosts, Rules, holding, moved
from sluice_ops.planning.placement.pace import Pace, pace
from sluice_ops.snapshot import site_settings
from sluice_ops.snapshot.capacity_totals import Wholes
from sluice_ops.snapshot.view import HostView, TierView, View


@dataclass(frozen=True)
class Moment:
    """What a pass is given besides the snapshot: the time, which hosts count as lost, and the site's rules (without layers)."""

    now: float
    """Wall clock: for stamps, and for the times that people set. How long something has lasted, only `ages` tell."""
    lost: frozenset[HostName]
    rules: Rules
    coming: bool = False
    """Whether a host that the brake held was back a moment ago: others may follow."""
    ages: Mapping[float, float] = field(default_factory=dict)
    """For how long each stamp of the snapshot is known. Unit: seconds."""
    settled: View | None = None
    """An earlier snapshot on which nothing was decided, so every assignment in it was right: only what differs is looked into anew."""


class Draft:
    """What will be, as far as this pass has decided."""

    def __init__(self, view: View, moment: Moment) -> None:
        """Start from what is."""
        self.view = view
        self.now = moment.now
        self._ages = moment.ages
        self.settled = moment.settled
        self.lost = moment.lost
        self.coming = moment.coming
        self.rules = moment.rules
        self.site = site_settings.said(moment.rules)
        self._wholes = Wholes(view, moment.rules)
        self.owners: dict[TierName, OwnerRecord] = {name: tier.owner for name, tier in view.tiers.items()}
        self.incarnations: dict[TierName, dict[Incarnation, IncarnationSpec]] = {
            name: dict(tier.incarnations) for name, tier in view.tiers.items()
        }
        self.wanted: dict[TierName, TierWanted] = {name: tier.wanted for name, tier in view.tiers.items()}
        self.records: dict[HostName, HostRecord] = {name: host.record for name, host in view.hosts.items()}
        self.assignments: dict[HostName, Assignment] = {
            name: host.assignment for name, host in view.hosts.items()
        }
        self.changes: dict[ChangeId, ChangeRecord] = dict(view.changes)
        self.lock: MaintenanceLock | None = view.lock
        self.layers: Layers = view.layers
        self.holds: Holds = view.holds
        self.batch: dict[int, HostName] = {}
        """The batch tenant's slots, by number."""
        self.braked: frozenset[HostName] = frozenset()
        """Lost hosts from which nothing is moved."""
        self.short = False
        """A tier has found too little room in this pass: batch is lent nothing."""
        self.needy: list[TierName] = []
        """Tiers for which neither free room nor batch's was enough in this pass: to start, or for slots that were lost."""
        self.promised: dict[TierName, tuple[tuple[HostName, Quantum], ...]] = {}
        """What the tiers hold, and where, once batch has given back what they wait for."""
        self.by_itself: list[Entry] = []
        """What this pass has done to hosts that nobody asked for, for the trail."""
        self.suspects: list[str] = []
        """Sentences on hosts that fail and are not quarantined."""
        self.deaths: dict[tuple[TierName, Incarnation], str] = {}
        """Incarnations that this pass has found dead before they took over, and why."""
        self.statuses: dict[TierName, TierStatus] = {}
        self.events: list[str] = []
        """What this pass has decided, for the log and for the journals of what is open."""
        self.results: dict[OperationId, Result] = {}
        self.posted: dict[OperationId, Operation] = {}
        """Steps of the controller's own changes that this pass posts; the next one carries them out."""
        self.room: Hosts | None = None
        """What the hosts hold by now, once `capacity` has counted it; kept true by what this draft decides."""
        self._ruled: Rules | None = None
        self._sound: frozenset[HostName] | None = None
        self._lines: dict[OperationId, list[str]] = {}

    def rules_now(self) -> Rules:
        """Return the site's rules under the layers as they are now."""
        if self._ruled is None or self._ruled.layers is not self.layers:
            self._ruled = replace(self.rules, layers=self.layers, wholes=self._wholes)
        return self._ruled

    def age(self, stamp: float) -> float:
        """Return for how long a stamp is known to this controller: what decides how long something has lasted. Unit: seconds."""
        return self._ages.get(stamp, 0.0)

    # -- tiers

    def end_first(self) -> list[TierView]:
        """Return the tiers, nearest the pipeline's end first."""
        return sorted(self.view.tiers.values(), key=lambda tier: (tier.spec.distance, tier.spec.name))

    def host(self, name: HostName) -> HostView | None:
        """Return what was seen of a host."""
        return self.view.hosts.get(name)

    def held(self, tier: TierName) -> list[IncarnationSpec]:
        """Return the incarnations of a tier that hold units."""
        return [spec for spec in self.incarnations[tier].values() if not spec.retired]

    def owning(self, tier: TierName) -> IncarnationSpec | None:
        """Return the owner's spec, while it holds units and the tier is not stopped."""
        record = self.owners[tier]
        spec = None if record.owner is None or record.stopped else self.incarnations[tier].get(record.owner)
        return None if spec is None or spec.retired else spec

    def workers(self, tier: TierName) -> tuple[UnitId, ...]:
        """Name the slots of the owner."""
        spec = self.owning(tier)
        return () if spec is None else slot_ids(tier, spec.incarnation, len(spec.placement.slots))

    def living(self, tier: TierName) -> frozenset[UnitId]:
        """Name those of them whose hosts are not lost."""
        spec = self.owning(tier)
        slots = () if spec is None else spec.placement.slots
        return frozenset(
            worker for worker, host in zip(self.workers(tier), slots, strict=True) if not self.is_lost(host)
        )

    def release_of(self, tier: TierName) -> str | None:
        """Return the release that a tier's next incarnation is begun from."""
        return self.wanted[tier].release or self.view.tiers[tier].spec.release

    def begin(  # noqa: PLR0913, PLR0917 - what an incarnation is
        self,
        tier: TierName,
        placement: Placement,
        reason: str,
        failures: int = 0,
        release: str | None = None,
        partitions: int | None = None,
        room: Hosts | None = None,
    ) -> Incarnation:
        """Write a new incarnation under a number that was never used; release and partitions are the tier's, unless others are named.

        `room` is what the hosts then hold, where whoever placed it has counted that.
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
            attempt=self.wanted[tier].attempt,
        )
        if room is None:
            self._hold(tier, placement, 1)
        else:
            self.room = room
        return number

    def retire(self, tier: TierName, number: Incarnation) -> None:
        """Take an incarnation's units away."""
        spec = self.incarnations[tier].get(number)
        if spec is not None and not spec.retired:
            self.incarnations[tier][number] = spec.model_copy(update={"retired": True})
            self._hold(tier, spec.placement, -1)

    def place(self, tier: TierName, number: Incarnation, placement: Placement) -> None:
        """Move slots of a living incarnation: those that were lost with their host."""
        before = self.incarnations[tier][number]
        self.incarnations[tier][number] = before.model_copy(update={"placement": placement})
        if self.room is not None:
            self.room = moved(self.room, self.view.tiers[tier].spec, before.placement, placement)

    def _hold(self, tier: TierName, placement: Placement, count: int) -> None:
        if self.room is not None:
            self.room = holding(self.room, self.view.tiers[tier].spec, placement, count)

    def own(self, tier: TierName, **changes: object) -> None:
        """Change a tier's fence."""
        self.owners[tier] = self.owners[tier].model_copy(update=changes)

    def hand_to(self, tier: TierName, number: Incarnation) -> None:
        """Make `number` the owner, with nothing under way and nothing beside it."""
        self.own(tier, owner=number, next=None, standby=None, phase=Phase.STEADY, paused_workers=())

    # -- hosts and changes

    def is_lost(self, name: HostName) -> bool:
        """Tell whether a host is gone for good, as far as one can know: its agent is, or it was taken off the channel."""
        return name in self.lost or name not in self.view.hosts

    def state_of(self, name: HostName) -> HostState:
        """Return a host's state: lost when its agent is gone, else what was written."""
        return HostState.LOST if self.is_lost(name) else self.records[name].state

    def sound(self) -> frozenset[HostName]:
        """Return the hosts that are up and not lost."""
        if self._sound is None:
            self._sound = frozenset(
                name
                for name in self.view.hosts
                if name not in self.lost and self.records[name].state is HostState.UP
            )
        return self._sound

    @cached_property
    def away(self) -> frozenset[HostName]:
        """The site's own hosts whose agent is away, and not for so long that they are lost."""
        return frozenset(
            name
            for name, host in self.view.hosts.items()
            if not host.live
            and name not in self.lost
            and (host.facts.zone != BURST_ZONE if host.facts is not None else name in self.view.unread_hosts)
        )

    @cached_property
    def pace(self) -> Pace:
        """How long changes take here."""
        return pace(
            self.view.changes.values(),
            (spec for tier in self.view.tiers.values() for spec in tier.incarnations.values()),
        )

    @cached_property
    def seen_batch(self) -> list[tuple[HostName, UnitId]]:
        """The batch slots that agents see; those of a host whose agent is away are of no use to anybody."""
        hosts = self.view.hosts.items()
        return [
            (name, unit)
            for name, host in hosts
            if host.live and host.observed is not None
            for unit in host.observed.batch
        ]

    @cached_property
    def starved(self) -> dict[TierName, dict[HostName, float]]:
        """Where agents see a tier's owner starved of processor time, and since when."""
        found: dict[TierName, dict[HostName, float]] = {}
        for name, host in self.view.hosts.items():
            since = host.observed.starved if host.live and host.observed is not None else {}
            for unit in host.assignment.units if since else ():
                tier = self.view.tiers.get(TierName(unit.tenant))
                if unit.id in since and tier is not None and tier.owner.owner == unit.incarnation:
                    there = found.setdefault(tier.spec.name, {})
                    there[name] = min(since[unit.id], there.get(name, since[unit.id]))
        return found

    def set_state(self, name: HostName, state: HostState, by: str) -> None:
        """Write a host's state."""
        before = self.records.get(name, HostRecord())
        if before.state is not state:
            after = HostRecord(state=state, by=by, since=self.now)
            if before.by == by:
                after = after.model_copy(update={"reason": before.reason, "until": before.until})
            self.write_record(name, after)

    def write_record(self, name: HostName, record: HostRecord) -> None:
        """Write the word on a host."""
        self.records[name] = record
        self.room = self._sound = None

    def change_of(self, identity: ChangeId, **changes: object) -> None:
        """Change a change's record."""
        self.changes[identity] = self.changes[identity].model_copy(update=changes)

    # -- words

    def tell(self, sentence: str) -> None:
        """Say what was decided."""
        self.events.append(sentence)

    def journal(self, identity: OperationId, sentence: str) -> None:
        """Add a line to an operation's journal, unless it is the last one already."""
        lines = self._lines.setdefault(identity, [])
        if sentence != (lines[-1] if lines else self.view.operations[identity].last):
            lines.append(sentence)

    # -- writes

    def writes(self) -> list[Write]:
        """Return what differs from the snapshot, each guarded by the version that was read."""
        changed = [
            (path, _raised(before, after))
            for path, before, after in self._compared()
            if before is not after and before != after
        ]
        return [
            Write(path, value, self.view.versions.get(path)) for path, value in (*changed, *self._words())
        ]

    def _compared(self) -> Iterable[tuple[str, BaseModel | None, BaseModel | None]]:
        view = self.view
        for tier in self.end_first():
            name = tier.spec.name
            for number, spec in self.incarnations[name].items():
                yield paths.incarnation(name, number), tier.incarnations.get(number), spec
            yield paths.owner(name), tier.owner, self.owners[name]
            yield paths.wanted(name), tier.wanted, self.wanted[name]
        for host, seen in view.hosts.items():  # thousands, of which few have anything new
            if (record := self.records[host]) is not seen.record:
                yield paths.host_record(host), seen.record, record
            if (assignment := self.assignments[host]) is not seen.assignment:
                yield paths.assignment(host), seen.assignment, assignment
        for identity, change in self.changes.items():
            yield paths.change(identity), view.changes.get(identity), change
        yield paths.LAYERS, view.layers, self.layers
        yield paths.HOLDS, view.holds, self.holds
        yield paths.SITE, view.site, self.site
        yield paths.LOCK, view.lock, self.lock

    def _words(self) -> Iterable[tuple[str, BaseModel]]:
        for identity, lines in self._lines.items():
            for number, sentence in enumerate(lines, self.view.operations[identity].lines):
                yield f"{paths.journal(identity)}/{number:010d}", JournalEntry(at=self.now, sentence=sentence)
        for identity, operation in self.posted.items():
            yield paths.operation(identity), operation
        for identity, result in self.results.items():
            yield paths.result(identity), result


def _raised(before: BaseModel | None, after: BaseModel | None) -> BaseModel | None:
    """Raise the epoch of what carries one: receivers refuse older ones."""
    if isinstance(before, OwnerRecord | Assignment) and after is not None:
        return after.model_copy(update={"epoch": before.epoch + 1})
    return after
