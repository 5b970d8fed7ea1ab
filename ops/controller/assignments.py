"""Assignments are a projection: the units of every incarnation that is not retired, and the batch slots, host by host."""

from collections.abc import Iterable

from ops.controller.draft import Draft
from ops.controller.view import TierView
from ops.model.assignment import Unit, UnitKind, driver_id, label_of, slot_id
from ops.model.ids import BATCH, HostName, Incarnation, Tenant
from ops.model.incarnation import IncarnationSpec, Phase


def project(draft: Draft) -> None:
    """Write every host's assignment anew from what holds now."""
    units: dict[HostName, list[Unit]] = {name: [] for name in draft.view.hosts}
    for host, unit in _all_units(draft):
        if host in units:
            units[host].append(unit)
    for name, held in units.items():
        before = draft.assignments[name]
        # A unit that runs keeps the size that it was started with, whatever is declared by now.
        sizes = {unit.id: unit.quantum for unit in before.units}
        kept = tuple(unit.model_copy(update={"quantum": sizes.get(unit.id, unit.quantum)}) for unit in held)
        draft.assignments[name] = before.model_copy(update={"units": kept})


def _all_units(draft: Draft) -> Iterable[tuple[HostName, Unit]]:
    for tier in draft.end_first():
        record = draft.owners[tier.spec.name]
        for spec in sorted(draft.held(tier.spec.name), key=lambda held: held.incarnation):
            yield from _units(tier, spec, quiet=spec.incarnation == record.next and record.phase is Phase.PREPARE)
    for number, host in sorted(draft.batch.items()):
        yield (
            host,
            Unit(
                id=slot_id(BATCH, 0, number),
                kind=UnitKind.SLOT,
                tenant=BATCH,
                incarnation=Incarnation(0),
                quantum=draft.rules.batch_quantum,
                label=label_of(BATCH, 0),
            ),
        )


def _units(tier: TierView, spec: IncarnationSpec, *, quiet: bool) -> Iterable[tuple[HostName, Unit]]:
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
    yield spec.placement.driver, driver
    for slot, host in enumerate(spec.placement.slots):
        yield host, driver.model_copy(update={"id": slot_id(name, number, slot), "kind": UnitKind.SLOT, "quantum": tier.spec.quantum})
