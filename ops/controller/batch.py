"""The slots of the tenant `batch`: lent when its share grows and room is there, taken back when it shrinks or their host is drained."""

from itertools import count, islice

from ops.controller.capacity import cluster
from ops.controller.draft import Draft
from ops.model.assignment import HostState
from ops.model.ids import BATCH, HostName
from ops.model.operation import ChangeKind, ChangeRecord, ChangeState
from ops.model.sentence import listed
from ops.planning.cluster import RefusedError
from ops.planning.placement import Ask, place
from ops.planning.shares import target

STAYS = frozenset({HostState.UP, HostState.CORDONED})


def keep(draft: Draft) -> None:
    """Begin the pass with the batch slots that stay; the others are taken back before any tier looks for room."""
    now = {_number(unit): host for host, held in draft.assignments.items() for unit in held.batch}
    fit = {number: host for number, host in sorted(now.items()) if draft.state_of(host) in STAYS or host in draft.braked}
    draft.batch = dict(list(fit.items())[: _limit(draft)])
    gone = {number: host for number, host in now.items() if number not in draft.batch}
    if gone:
        draft.tell(f"batch gives back {len(gone)} slot(s) on {listed(sorted(set(gone.values())))}")


def grow(draft: Draft) -> None:
    """Lend what the share says, as far as there is room; while tiers move, the room is theirs."""
    missing = _limit(draft) - len(draft.batch)
    if missing <= 0 or _moving(draft):
        return
    now = cluster(draft)
    quantum, to = now.rules.batch_quantum, target(BATCH, now.rules).to
    room = sum(host.fits(quantum) for host in now.hosts.values() if host.usable and host.matches(to))
    try:
        placed = place([Ask(BATCH, max(1, min(missing, room)), quantum, to)], now.hosts)
    except RefusedError:
        return
    lent = placed.where[BATCH, "slots"]
    free = (number for number in count() if number not in draft.batch)
    draft.batch |= dict(zip(islice(free, len(lent)), lent, strict=True))
    draft.room = placed.hosts
    draft.tell(f"batch is lent {len(lent)} slot(s) on {listed(sorted(set(lent)))}")


def _limit(draft: Draft) -> int:
    """Return how many slots batch may hold now: its share, and no more than a shift under way will leave it."""
    slots = target(BATCH, draft.rules_now()).slots if BATCH in draft.rules.shares else 0
    shifts = [change for change in _active(draft) if change.spec.kind is ChangeKind.SHIFT]
    return min([slots, *(len(change.plan.batch_slots) for change in shifts)])


def _moving(draft: Draft) -> bool:
    return any(change.plan.moves for change in _active(draft))


def _active(draft: Draft) -> list[ChangeRecord]:
    return [change for change in draft.changes.values() if change.state is ChangeState.ACTIVE]


def _number(unit: str) -> int:
    return int(unit.rsplit("-", 1)[1])


def hosts(draft: Draft) -> tuple[HostName, ...]:
    """Return where the batch slots are."""
    return tuple(draft.batch[number] for number in sorted(draft.batch))
