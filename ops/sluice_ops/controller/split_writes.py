"""Splits the writes of a pass into requests that ZooKeeper accepts. Pure; called by `leader`.

Nearly always, one request holds all writes, so that all or none are done. Larger passes are split
so that every request leaves a state which one pass could have decided. The next leader can then
continue after any of them. The order is:

1. the grants of batch jobs, so that a job knows of its slots' return before they are taken;
2. the tiers, each in one request, in the order of the decisions: a tier may take the room that an
   earlier one gave up;
3. the assignments, which follow from the tiers: first those that only take units away;
4. the status, the holds and the site file's settings, which describe all tiers.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from sluice_ops.channel import Write
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment
from sluice_ops.model.ids import HostName
from sluice_ops.model.trail import SITE_FILE, Entry
from sluice_ops.snapshot.view import View

REQUEST_BYTES = 512 * 1024
"""The largest request. ZooKeeper refuses requests of 1 MiB and more (jute.maxbuffer)."""
OVERHEAD_BYTES = 100
"""Bytes of a write besides its path and its value."""


def split_writes(writes: Sequence[Write], view: View, most: int = REQUEST_BYTES) -> list[list[Write]]:
    """Return the writes as requests of at most `most` bytes, in order; a group is never split."""
    requests: list[list[Write]] = []
    room = 0
    for group in _groups(writes, view):
        size = sum(len(write.path) + len(write.data) + OVERHEAD_BYTES for write in group)
        if not requests or size > room:
            requests.append([])
            room = most
        requests[-1].extend(group)
        room -= size
    return requests


def _groups(writes: Sequence[Write], view: View) -> Iterable[list[Write]]:
    """Yield the groups of writes that belong into one request, in order."""
    assigned = [write for write in writes if isinstance(write.value, Assignment)]
    status = [write for write in writes if _describes_all_tiers(write)]
    batch = [write for write in writes if write.path.startswith((paths.BATCH_GRANTS, paths.BATCH_JOBS))]
    described = [*status, *batch]
    decided = [
        write for write in writes if not isinstance(write.value, Assignment) and write not in described
    ]
    if batch:
        yield batch
    if all(paths.tier_of(write.path) for write in decided):
        yield from (list(group) for _, group in groupby(decided, key=lambda write: paths.tier_of(write.path)))
    elif decided:
        yield decided  # a change concerns several tiers
    adding = [(_adds(write, view), write) for write in assigned]
    yield from ([write] for adds, write in sorted(adding, key=lambda pair: pair[0]))
    if status:
        yield status


def _describes_all_tiers(write: Write) -> bool:
    """Tell whether a write describes all tiers.

    This is the status, the holds, or the site file's settings with their entry in the trail.
    """
    return write.path in {paths.CONTROLLER_STATUS, paths.HOLDS, paths.SITE} or (
        isinstance(write.value, Entry) and write.value.by == SITE_FILE
    )


def _adds(write: Write, view: View) -> bool:
    """Tell whether an assignment gives its host a unit that the host does not have yet."""
    before = view.hosts[HostName(write.path.rsplit("/", 1)[1])].assignment
    known = {unit.id for unit in before.units}
    return isinstance(write.value, Assignment) and any(unit.id not in known for unit in write.value.units)
