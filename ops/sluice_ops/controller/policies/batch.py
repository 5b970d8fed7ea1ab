"""The slots of the tenant `batch`: lent as its share says, taken back when a tier needs the room or their host is drained."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count, islice

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, ChangeState
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError
from sluice_ops.planning.placement.requests import Ask
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place
from sluice_ops.planning.shortage.fitting import lacking, most
from sluice_ops.planning.shortage.lending import make_room

STAYS = frozenset({HostState.UP, HostState.CORDONED})


def keep(draft: Draft) -> None:
    """Begin the pass with the batch slots that stay; the others are taken back before any tier looks for room."""
    now = {_number(unit): host for host, held in draft.assignments.items() for unit in held.batch}
    fit = {
        number: host
        for number, host in sorted(now.items())
        if draft.state_of(host) in STAYS or host in draft.braked
    }
    for change in _active(draft):
        if change.plan.moves:
            sound = {number: host for number, host in fit.items() if host in draft.sound()}
            kept = _on(change.plan.batch_kept, sound)
            fit = {number: host for number, host in fit.items() if number in kept or number not in sound}
    known = not draft.view.unread_hosts  # else a share in per cent would be too small
    draft.batch = dict(list(fit.items())[: _limit(draft)]) if known else fit
    _tell_gone(draft, now)


Attempt = Callable[[Cluster], tuple[Iterable[tuple[HostName, Quantum]], Hosts]]
"""Place something: return what goes where, and what the hosts then hold."""


def give_way(draft: Draft, tier: TierName, to: str | None, attempt: Attempt) -> str | None:
    """Have batch give back as few slots as make room for what a tier attempts there; say what is waited for, None when it would not help.

    What it gives back is free when its tasks are done, or ended by their agent; until then there is nothing to do but wait. Who asks later
    in the same pass does not count on that room.
    """
    draft.short = True
    now = _promised(draft, cluster(draft))
    try:
        units, gives = make_room(now, to, attempt)
    except RefusedError:
        return None
    draft.promised[tier] = tuple(units)
    before = dict(draft.batch)
    given = _on(gives, draft.batch)
    draft.batch = {number: host for number, host in draft.batch.items() if number not in given}
    draft.room = None
    _tell_gone(draft, before)
    return awaited(cluster(draft))


def _promised(draft: Draft, now: Cluster) -> Cluster:
    """Return the cluster as it is when the tiers that wait for room since earlier in this pass have it: they lack nothing then."""
    hosts, tiers = dict(now.hosts), dict(now.tiers)
    for name, units in draft.promised.items():
        tiers[name] = replace(tiers[name], wanted=False)
        for host, quantum in units:
            hosts[host] = hosts[host].holding(quantum, 1, name)
    return replace(now, hosts=hosts, tiers=tiers)


def awaited(now: Cluster) -> str:
    """Say what batch is still to give back."""
    where = listed(sorted(set(now.returning)))
    return f"{len(now.returning)} slot(s) of batch on {where}, whose tasks may go on for {now.rules.reclaim_seconds:g} s"


def grow(draft: Draft) -> None:
    """Lend what the share says, as far as there is room that no tier is short of; while tiers move, the room is theirs."""
    missing = _limit(draft) - len(draft.batch)
    if missing <= 0 or draft.short or draft.posted or _moving(draft):
        return
    now = cluster(draft)
    quantum, to = now.rules.batch_quantum, target(BATCH, now.rules).to
    room = sum(host.fits(quantum) for host in now.hosts.values() if host.usable and host.matches(to))
    others = [ask for ask in lacking(now) if ask.tenant != BATCH]
    try:
        _, placed = most(
            max(0, min(missing, room) - 1),
            lambda more: place([Ask(BATCH, 1 + more, quantum, to), *others], now.hosts),
        )
    except RefusedError:
        return
    lent = placed.where[BATCH, "slots"]
    free = (number for number in count() if number not in draft.batch)
    draft.batch |= dict(zip(islice(free, len(lent)), lent, strict=True))
    draft.room = None
    draft.tell(f"batch is lent {len(lent)} slot(s) on {listed(sorted(set(lent)))}")


def _limit(draft: Draft) -> int:
    """Return how many slots batch may hold now."""
    return target(BATCH, draft.rules_now()).slots if BATCH in draft.rules.shares else 0


def _on(hosts: tuple[HostName, ...], slots: Mapping[int, HostName]) -> dict[int, HostName]:
    """Return those of the slots that are on these hosts, one for each time that a host is named."""
    left = Counter(hosts)
    found: dict[int, HostName] = {}
    for number, host in slots.items():
        if left[host] > 0:
            left[host] -= 1
            found[number] = host
    return found


def _tell_gone(draft: Draft, before: Mapping[int, HostName]) -> None:
    gone = {number: host for number, host in before.items() if number not in draft.batch}
    if gone:
        draft.tell(f"batch gives back {len(gone)} slot(s) on {listed(sorted(set(gone.values())))}")


def _moving(draft: Draft) -> bool:
    return any(change.plan.moves for change in _active(draft))


def _active(draft: Draft) -> list[ChangeRecord]:
    return [change for change in draft.changes.values() if change.state is ChangeState.ACTIVE]


def _number(unit: str) -> int:
    return int(unit.rsplit("-", 1)[1])


def hosts(draft: Draft) -> tuple[HostName, ...]:
    """Return where the batch slots are."""
    return tuple(draft.batch[number] for number in sorted(draft.batch))
