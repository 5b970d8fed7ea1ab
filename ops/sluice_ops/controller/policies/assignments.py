"""Assignments are a projection: the units of every incarnation that is not retired, and the batch slots, host by host.

What runs of tiers that cannot be read stays as it is.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import Assignment, Unit, UnitKind, driver_id, label_of, slot_id, slot_ids
from sluice_ops.model.ids import BATCH, HostName, Incarnation, Tenant, UnitId
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Phase
from sluice_ops.snapshot.view import TierView


def project(draft: Draft) -> None:
    """Write the assignment of every host of which it may differ anew from what holds now."""
    held: dict[HostName, list[_Part]] = {
        name: [(unit.id, unit) for unit in draft.view.left_on(name)] for name in _in_question(draft)
    }
    for host, part in _parts(draft, held) if held else ():
        held[host].append(part)
    for name, parts in held.items():
        before = draft.assignments[name]
        if before.parts != [(identity, like.quiet) for identity, like in parts]:
            draft.assignments[name] = before.holding(tuple(_units(parts, before)))


def _in_question(draft: Draft) -> Iterable[HostName]:
    """Name the hosts whose assignment may not be right: all, or those of what has changed since all were."""
    was, now = draft.settled, draft.view
    if was is None or was.unread or now.unread:
        return now.hosts
    changed = {
        name
        for name, host in now.hosts.items()
        if name not in was.hosts or was.hosts[name].assignment is not host.assignment
    }
    for name in now.tiers.keys() | was.tiers.keys():
        changed |= _differ(was.tiers.get(name), draft.incarnations.get(name, {}), draft.owners.get(name))
    there = {(unit, name) for name, assignment in draft.assignments.items() for unit in assignment.batch}
    changed |= {
        name
        for _, name in there ^ {(slot_id(BATCH, 0, number), name) for number, name in draft.batch.items()}
    }
    return changed & now.hosts.keys()


def _differ(
    was: TierView | None, incarnations: Mapping[Incarnation, IncarnationSpec], owner: OwnerRecord | None
) -> set[HostName]:
    """Name the hosts of a tier's incarnations that have changed, or that are quiet and were not, or the other way round."""
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
    """Return the incarnation that is prepared quietly; 0 is none."""
    return owner.next or _NONE if owner is not None and owner.phase is Phase.PREPARE else _NONE


_NONE = Incarnation(0)
_Part = tuple[UnitId, Unit]
"""A unit's name, and one that is like it in everything else: of ten thousand hosts few change in a pass, and only those get units made."""


def _units(parts: Iterable[_Part], before: Assignment) -> Iterable[Unit | dict[str, Any]]:
    """Tell a host's units; one that runs keeps what it was started with, whatever is declared by now."""
    there = {unit.id: unit for unit in before.units}
    for identity, like in parts:
        unit = there.get(identity)
        if unit is None:
            yield {**vars(like), "id": identity}
        else:
            yield unit if unit.quiet is like.quiet else unit.model_copy(update={"quiet": like.quiet})


def _parts(draft: Draft, hosts: Container[HostName]) -> Iterable[tuple[HostName, _Part]]:
    for tier in draft.end_first():
        quiet = _quiet(draft.owners[tier.spec.name])
        for spec in sorted(draft.held(tier.spec.name), key=lambda held: held.incarnation):
            yield from _incarnation(tier, spec, hosts, quiet=spec.incarnation == quiet)
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


def _incarnation(
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
