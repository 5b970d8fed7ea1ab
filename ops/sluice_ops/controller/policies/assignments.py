"""The assignments of hosts, from the incarnations that hold units and the slots of `batch`.

Units of unreadable tiers stay as they are.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import Assignment, Unit, UnitKind, driver_id, label_of, slot_id, slot_ids
from sluice_ops.model.ids import BATCH, HostName, Incarnation, Tenant, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Phase
from sluice_ops.snapshot.view import TierView

_NO_INCARNATION = Incarnation(0)
_Part = tuple[UnitId, Unit]
"""A unit's id, and a unit that has the same values in all other fields.

With ten thousand hosts, few units change in a pass. Only these are created.
"""


@dataclass(frozen=True)
class AssignmentRuling:
    """The assignments that change."""

    assignments: Mapping[HostName, Assignment]

    def apply(self, draft: Draft) -> None:
        """Write these assignments."""
        draft.assignments |= self.assignments


def changed_assignments(draft: Draft) -> AssignmentRuling:
    """Derive the assignments that may differ from the present ones, and return those that do."""
    parts: dict[HostName, list[_Part]] = {
        name: [(unit.id, unit) for unit in draft.view.units_of_unread_tiers(name)]
        for name in _hosts_to_check(draft)
    }
    for host, part in _parts(draft, parts) if parts else ():
        parts[host].append(part)
    return AssignmentRuling(
        {
            name: before.holding(tuple(_units(after, before)))
            for name, after in parts.items()
            if (before := draft.assignments[name]).parts != [(unit, like.quiet) for unit, like in after]
        }
    )


def _hosts_to_check(draft: Draft) -> Iterable[HostName]:
    """Name the hosts whose assignment may be out of date: all, or those that have changed."""
    was, now = draft.inputs.baseline, draft.view
    if was is None or was.unread or now.unread:
        return now.hosts
    changed = {
        name
        for name, host in now.hosts.items()
        if name not in was.hosts or was.hosts[name].assignment is not host.assignment
    }
    for name in now.tiers.keys() | was.tiers.keys():
        changed |= _changed_hosts(
            was.tiers.get(name), draft.incarnations.get(name, {}), draft.owners.get(name)
        )
    assigned = {(unit, name) for name, assignment in draft.assignments.items() for unit in assignment.batch}
    lent = {(slot_id(BATCH, 0, number), name) for number, name in draft.batch.items()}
    changed |= {name for _, name in assigned ^ lent}
    return changed & now.hosts.keys()


def _changed_hosts(
    was: TierView | None, incarnations: Mapping[Incarnation, IncarnationSpec], owner: OwnerRecord | None
) -> set[HostName]:
    """Name the hosts of a tier's incarnations that have changed, or whose `quiet` has changed."""
    before = {} if was is None else was.incarnations
    quiet = {_quiet(record) for record in (owner, None if was is None else was.owner)}
    numbers = {
        number
        for number in before.keys() | incarnations.keys()
        if before.get(number) is not incarnations.get(number)
    }
    if len(quiet) > 1:
        numbers |= quiet
    specs = (spec for number in numbers for spec in (before.get(number), incarnations.get(number)))
    return {host for spec in specs if spec is not None for host in spec.placement.hosts}


def _quiet(owner: OwnerRecord | None) -> Incarnation:
    """Return the incarnation that is prepared quietly, or `_NO_INCARNATION`."""
    if owner is None or owner.phase is not Phase.PREPARE:
        return _NO_INCARNATION
    return owner.next or _NO_INCARNATION


def _units(parts: Iterable[_Part], before: Assignment) -> Iterable[Unit | dict[str, Any]]:
    """Yield a host's units. A unit that is assigned already keeps its fields, except `quiet`."""
    assigned = {unit.id: unit for unit in before.units}
    for identity, like in parts:
        unit = assigned.get(identity)
        if unit is None:
            yield {**vars(like), "id": identity}
        else:
            yield unit if unit.quiet is like.quiet else unit.model_copy(update={"quiet": like.quiet})


def _parts(draft: Draft, hosts: Container[HostName]) -> Iterable[tuple[HostName, _Part]]:
    """Yield the units on these hosts: the host, the unit's id, and a unit with the same fields."""
    for tier in draft.end_first():
        quiet = _quiet(draft.owners[tier.spec.name])
        for spec in sorted(draft.unretired(tier.spec.name), key=lambda spec: spec.incarnation):
            yield from _parts_of(tier, spec, hosts, quiet=spec.incarnation == quiet)
    lent = Unit(
        id=slot_id(BATCH, 0, 0),
        kind=UnitKind.SLOT,
        tenant=BATCH,
        incarnation=Incarnation(0),
        quantum=draft.rules.batch_quantum,
        label=label_of(BATCH, 0),
    )
    for number, host in sorted(draft.batch.items()):
        if host in hosts:
            yield host, (slot_id(BATCH, 0, number), lent)


def _parts_of(
    tier: TierView, spec: IncarnationSpec, hosts: Container[HostName], *, quiet: bool
) -> Iterable[tuple[HostName, _Part]]:
    name, number = spec.tier, spec.incarnation
    driver = Unit(
        id=driver_id(name, number),
        kind=UnitKind.DRIVER,
        tenant=Tenant(name),
        incarnation=number,
        quantum=tier.spec.driver,
        label=label_of(name, number),
        quiet=quiet,
    )
    worker = driver.model_copy(update={"kind": UnitKind.SLOT, "quantum": tier.spec.quantum})
    if spec.placement.driver in hosts:
        yield spec.placement.driver, (driver.id, driver)
    slots = spec.placement.slots
    for host, identity in zip(slots, slot_ids(name, number, len(slots)), strict=True):
        if host in hosts:
            yield host, (identity, worker)
