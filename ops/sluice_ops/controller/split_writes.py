"""A pass writes all or nothing as long as ZooKeeper takes it in one request; what is larger goes in portions. Pure; called by `leader`.

Every portion leaves a state that a pass could have decided by itself, so that whoever leads next goes on from there: first the tiers, each
whole, in the order of the decisions, for one may take the room that an earlier one gave up; then the assignments, which only follow from
the tiers: those that take units away before those that add some; the status, the holds and what the site file says, which speak of all of
it, last.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from sluice_ops.channel import Write
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment
from sluice_ops.model.ids import HostName
from sluice_ops.model.trail import SITE_FILE, Entry
from sluice_ops.snapshot.view import View

PORTION_BYTES = 512 * 1024
"""ZooKeeper refuses requests of 1 MiB and more (jute.maxbuffer)."""
BESIDE = 100
"""Bytes of a write besides its path and value."""


def portions(writes: Sequence[Write], view: View, most: int = PORTION_BYTES) -> list[list[Write]]:
    """Split what a pass writes into requests, in order; nearly always it is one."""
    found: list[list[Write]] = []
    room = 0
    for group in _groups(writes, view):
        size = sum(len(write.path) + len(write.data) + BESIDE for write in group)
        if not found or size > room:
            found.append([])
            room = most
        found[-1].extend(group)
        room -= size
    return found


def _groups(writes: Sequence[Write], view: View) -> Iterable[list[Write]]:
    """Yield what has to be written together, in order."""
    assigned = [write for write in writes if isinstance(write.value, Assignment)]
    status = [write for write in writes if _speaks_of_all(write)]
    decided = [write for write in writes if not isinstance(write.value, Assignment) and write not in status]
    if all(paths.tier_of(write.path) for write in decided):
        yield from (list(group) for _, group in groupby(decided, key=lambda write: paths.tier_of(write.path)))
    elif decided:
        yield decided  # a change speaks of several tiers
    adding = [(_adds(write, view), write) for write in assigned]
    yield from ([write] for adds, write in sorted(adding, key=lambda each: each[0]))
    if status:
        yield status


def _speaks_of_all(write: Write) -> bool:
    """Tell whether it is the status, the holds, or what the site file says, with its entry in the trail."""
    return write.path in {paths.CONTROLLER_STATUS, paths.HOLDS, paths.SITE} or (
        isinstance(write.value, Entry) and write.value.by == SITE_FILE
    )


def _adds(write: Write, view: View) -> bool:
    """Tell whether an assignment has a unit that its host does not have yet."""
    before = view.hosts[HostName(write.path.rsplit("/", 1)[1])].assignment
    known = {unit.id for unit in before.units}
    return isinstance(write.value, Assignment) and any(unit.id not in known for unit in write.value.units)
