"""Chooses the spare workers of an incarnation: those that wait while the others work. Pure."""

from collections.abc import Collection, Mapping

from sluice_ops.model.assignment import slot_number
from sluice_ops.model.ids import UnitId


def choose_spares(
    able: Mapping[UnitId, str], active: int | None, at_work: Collection[str], *, may_rest: bool = True
) -> frozenset[UnitId]:
    """Return the workers that wait, so that `active` of the workers `able` work.

    `able` has the executor of each living worker that is not paused. Workers whose executors are
    `at_work` go on first, then the workers of the first slots. So a lost worker comes back as a
    spare. Without `may_rest`, each worker at work goes on. With `active` None, all work.
    """
    if active is None:
        return frozenset()
    at_work_first = sorted(able, key=lambda worker: (able[worker] not in at_work, slot_number(worker)))
    going_on = sum(executor in at_work for executor in able.values())
    return frozenset(at_work_first[active if may_rest else max(active, going_on) :])
