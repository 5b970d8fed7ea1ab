"""Assignments are a projection: the units of every incarnation that is not retired, and the batch slots, host by host.

What runs of tiers that cannot be read stays as it is.
"""

from collections.abc import Iterable

from ops.controller.draft import Draft
from ops.controller.view import TierView
from ops.model.assignment import Assignment, Unit, UnitKind, driver_id, label_of, slot_id, slot_ids
from ops.model.ids import BATCH, HostName, Incarnation, Tenant, UnitId
from ops.model.incarnation import IncarnationSpec, Phase


def project(draft: Draft) -> None:
    """Write every host's assignment anew from what holds now."""
    held: dict[HostName, list[_Part]] = {name: [(unit.id, unit) for unit in draft.view.left_on(name)] for name in draft.view.hosts}
    for host, part in _parts(draft):
        if host in held:
            held[host].append(part)
    for name, parts in held.items():
        before = draft.assignments[name]
        if before.parts != [(identity, like.quiet) for identity, like in parts]:
            draft.assignments[name] = before.holding(tuple(_units(parts, before)))


_Part = tuple[UnitId, Unit]
"""A unit's name, and one that is like it in everything else: of ten thousand hosts few change in a pass, and only those get units made."""


def _units(parts: Iterable[_Part], before: Assignment) -> Iterable[Unit]:
    """Make a host's units; one that runs keeps what it was started with, whatever is declared by now."""
    there = {unit.id: unit for unit in before.units}
    for identity, like in parts:
        unit = there.get(identity) or like.model_copy(update={"id": identity})
        yield unit if unit.quiet is like.quiet else unit.model_copy(update={"quiet": like.quiet})


def _parts(draft: Draft) -> Iterable[tuple[HostName, _Part]]:
    for tier in draft.end_first():
        record = draft.owners[tier.spec.name]
        for spec in sorted(draft.held(tier.spec.name), key=lambda held: held.incarnation):
            yield from _incarnation(tier, spec, quiet=spec.incarnation == record.next and record.phase is Phase.PREPARE)
    lent = Unit(
        id=slot_id(BATCH, 0, 0),
        kind=UnitKind.SLOT,
        tenant=BATCH,
        incarnation=Incarnation(0),
        quantum=draft.rules.batch_quantum,
        label=label_of(BATCH, 0),
    )
    for number, host in sorted(draft.batch.items()):
        yield host, (slot_id(BATCH, 0, number), lent)


def _incarnation(tier: TierView, spec: IncarnationSpec, *, quiet: bool) -> Iterable[tuple[HostName, _Part]]:
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
    yield spec.placement.driver, (driver.id, driver)
    slots = spec.placement.slots
    yield from zip(slots, ((identity, worker) for identity in slot_ids(name, number, len(slots))), strict=True)
