"""Prepare and cut: the next incarnations are started beside the owners, then each tier is handed over, nearest the end first."""

from dataclasses import replace

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, shrink_in_place
from sluice_ops.controller.policies.batch import awaited
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.controller.steps.preflight import check, describe
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, ChangeSpec, Move, Operation
from sluice_ops.model.ids import ChangeId, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, Phase, Placement, State
from sluice_ops.model.status import TierState
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.lookups import given_up
from sluice_ops.planning.changes.plan import aftermath, differs, has_to_move, plan
from sluice_ops.planning.placement.cluster import Cluster, RefusedError
from sluice_ops.planning.placement.drift import breaches
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import fits, place_tier


def prepare(draft: Draft, operation: Operation) -> Outcome:
    """Start and warm the next incarnations, one tier after the other: what runs is disturbed by one at most.

    Those that find no room yet are prepared during the cut, which is when workers are let go.
    """
    change = draft.changes[operation.change]
    _set_draining(draft, change)
    if not change.incarnations:
        refused = _plan_again(draft, change)
        if refused is not None:
            return refused
    waits: list[str] = []
    later: list[TierName] = []
    moves = draft.changes[operation.change].plan.moves
    for move in draft.changes[operation.change].plan.hand_overs:
        started = _start(draft, operation.change, move)
        if isinstance(started, Failed):
            return started
        if isinstance(started, _NoRoom):
            if not draft.changes[operation.change].incarnations and not any(
                other.in_place for other in moves
            ):
                return Failed(started.verdict)
            later.append(move.tier)
        elif isinstance(started, Waiting):
            waits.append(started.sentence)
        elif not _is_ready(draft, move.tier, started):
            waits.append(
                f"{move.tier}/{started} to be ready (it is {health.state(draft, move.tier, started)})"
            )
            break
    if waits:
        return Waiting(f"waiting for {', '.join(waits)}")
    ready = ", ".join(
        f"{tier}/{number}" for tier, number in draft.changes[operation.change].incarnations.items()
    )
    then = f"; {', '.join(later)} will be prepared when room is free" if later else ""
    return Done(
        f"ready to take over: {ready or 'nothing has to be started'}{then}",
        {"incarnations": dict(draft.changes[operation.change].incarnations.items())},
    )


def cut(draft: Draft, operation: Operation) -> Outcome:
    """Hand over tier by tier, or have it let workers go, each confirmed before the next."""
    through: list[TierName] = []
    fewer: list[str] = []
    gaps: dict[str, float] = {}
    for move in draft.changes[operation.change].plan.moves:
        tier = move.tier
        held_up = (
            shrink_in_place.let_go(draft, operation.change, move)
            if move.in_place
            else _hand_on(draft, operation.change, move, through)
        )
        if held_up is not None:
            return held_up
        if draft.statuses[tier].state is TierState.FAILED:
            continue  # it was given up before anything was prepared for it
        if move.in_place:
            fewer += (
                [f"{tier} goes on with {workers(len(move.after.slots))}"]
                if draft.owner_spec(tier) is not None
                else []
            )
            continue
        through.append(tier)
        said = health.report(
            draft, tier, Incarnation(draft.changes[operation.change].incarnations.get(tier, 0))
        )
        if said is not None and said.gap_seconds is not None:
            gaps[tier] = said.gap_seconds
    widest = f", widest gap {max(gaps.values()):.2f} s" if gaps else ""
    handed = (
        [f"handed over: {', '.join(through) or 'nothing had to move'}{widest}"]
        if through or not fewer
        else []
    )
    return Done("; ".join((*handed, *fewer)), {"gap_seconds": gaps})


def _hand_on(draft: Draft, identity: ChangeId, move: Move, through: list[TierName]) -> Outcome | None:
    """Take one tier one step further; None when it is handed over, or there is nothing to hand over."""
    tier, started = move.tier, _start(draft, identity, move)
    if isinstance(started, Failed):
        return started
    if isinstance(started, Waiting):
        return Waiting(f"waiting for {started.sentence}")
    if isinstance(started, _NoRoom):
        return _make_room(draft, through, started)
    if draft.statuses[tier].state is TierState.FAILED and tier in draft.changes[identity].receipts:
        return Failed(f"{tier} {draft.statuses[tier].sentence}")
    if draft.statuses[tier].state is TierState.FAILED or not started:
        return None
    waiting = _hand_over(draft, identity, tier, started)
    return None if waiting is None else Waiting(waiting)


class _NoRoom:
    """The next incarnation does not fit beside what is there now."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict


def _set_draining(draft: Draft, change: ChangeRecord) -> None:
    host = change.spec.host
    if KINDS[change.spec.kind].empties_host and host in draft.records:
        record = draft.records[host]
        if record.state in {HostState.UP, HostState.CORDONED}:
            draft.set_host_state(host, HostState.DRAINING, record.by or change.id)


def _plan_again(draft: Draft, change: ChangeRecord) -> Failed | None:
    """Plan on what is now: between preflight and here, a tier may have been started or have moved by itself."""
    now = cluster(draft)
    try:
        planned = plan(change.spec, now)
    except RefusedError as refused:
        return Failed(str(refused))
    wrong = check(planned, change.spec, now)
    if wrong:
        return Failed(f"the plan does not stand up to its check: {'; '.join(wrong)}")
    if planned.moves != change.plan.moves:
        draft.log(f"planned anew: {describe(planned)}")
        draft.update_change(change.id, plan=planned)
    return None


def _start(draft: Draft, identity: ChangeId, move: Move) -> Incarnation | Waiting | Failed | _NoRoom:
    """Return the incarnation that takes the tier on, started now if need be; 0 when the tier has nothing to hand over."""
    tier = move.tier
    record, number = draft.owners[tier], draft.changes[identity].incarnations.get(tier)
    if number is not None and number in {record.owner, record.next}:
        return Incarnation(number)
    once = KINDS[draft.changes[identity].spec.kind].sets_tier
    if (
        number is not None
        and (dropped := _why_dropped(draft, tier, Incarnation(number), once=once)) is not None
    ):
        return Failed(dropped)
    owning = draft.owner_spec(tier)
    return Incarnation(0) if owning is None else _start_beside(draft, identity, move, owning)


def _start_beside(
    draft: Draft, identity: ChangeId, move: Move, owning: IncarnationSpec
) -> Incarnation | Waiting | Failed | _NoRoom:
    change, tier, record = draft.changes[identity], move.tier, draft.owners[move.tier]
    now = aftermath(change.spec, cluster(draft))
    as_asked = change.spec, now.tiers[tier], target(tier, now.rules), now
    if not has_to_move(*as_asked):
        if KINDS[change.spec.kind].forced and differs(*as_asked):
            return Failed(given_up(change.spec, now.tiers[tier]))
        draft.update_change(identity, incarnations={**change.incarnations, tier: owning.incarnation})
        return owning.incarnation
    if not health.confirmed(draft, tier) or record.phase is not Phase.STEADY or record.next is not None:
        return Waiting(
            f"{tier}/{owning.incarnation} to run before it is moved (it is {health.state(draft, tier, owning.incarnation)})"
        )
    try:
        placement = _placement(now, move, owning.placement)
    except RefusedError as refused:
        if now.returning:
            return Waiting(f"{awaited(now)}, for {tier}")
        return _NoRoom(str(refused))
    return _begin(draft, identity, tier, placement)


def _begin(draft: Draft, identity: ChangeId, tier: TierName, placement: Placement) -> Incarnation:
    change, old = draft.changes[identity], draft.owners[tier].owner
    number = draft.begin(
        tier,
        placement,
        reason_of(change.spec),
        release=change.spec.release,
        partitions=change.spec.partitions,
    )
    draft.update_owner(tier, next=number, phase=Phase.PREPARE)
    draft.update_change(
        identity,
        incarnations={**change.incarnations, tier: number},
        receipts={**change.receipts, tier: {"old": old, "new": number}},
    )
    draft.log(
        f"{tier}: incarnation {number} is prepared, driver on {placement.driver}, workers on {listed(placement.slots)}"
    )
    return number


def _placement(now: Cluster, move: Move, owning: Placement) -> Placement:
    """Return the planned place, or the best one left when something has changed since."""
    spec = now.tiers[move.tier].spec
    share = target(move.tier, now.rules)
    aim = replace(share, slots=max(1, share.slots - move.short))
    if (
        len(move.after.slots) == aim.k
        and fits(spec, move.after, now.hosts)
        and not [*breaches(move.tier, move.after, aim, now.hosts)]
    ):
        return move.after
    return place_tier(spec, aim, owning, now.hosts)[0]


def _why_dropped(draft: Draft, tier: TierName, number: Incarnation, *, once: bool) -> str | None:
    """Say why a prepared incarnation is no more; None when its host was lost or the tier has moved on: then another is prepared.

    Not so where it is to be accepted `once` it runs: where it took over and the tier has moved on, it has failed.
    """
    spec = draft.incarnations[tier].get(number)
    if (
        spec is None
        or draft.is_lost(spec.placement.driver)
        or ((draft.owners[tier].owner or 0) > number and not once)
    ):
        return None
    said = health.report(draft, tier, number)
    why = (
        draft.deaths.get((tier, number))
        or (said.error if said is not None else None)
        or f"its log on {spec.placement.driver} tells why"
    )
    when = "ended before it took over" if (draft.owners[tier].owner or 0) < number else "took over and ended"
    return f"{tier}: incarnation {number} {when}: {why}"


def _is_ready(draft: Draft, tier: TierName, number: Incarnation) -> bool:
    return number in {0, draft.owners[tier].owner} or health.state(draft, tier, number) is State.READY


def _hand_over(draft: Draft, identity: ChangeId, tier: TierName, number: Incarnation) -> str | None:
    """Take one tier's hand-over one step further; return what it waits for."""
    record = draft.owners[tier]
    if record.owner == number:
        return (
            None
            if health.confirmed(draft, tier)
            else f"{tier}/{number} owns the tier and is {health.state(draft, tier, number)}"
        )
    if record.phase is Phase.CUT:
        return f"{tier}: {record.owner} hands over to {number}"
    if health.state(draft, tier, number) is not State.READY:
        return f"{tier}/{number} is {health.state(draft, tier, number)}; it takes over once it is ready"
    if not health.confirmed(draft, tier):
        return f"{tier}/{record.owner} is being paused or resumed; it is handed over after that"
    missing = _beyond_budget(draft, identity, tier, number)
    if missing is not None:
        return missing
    draft.update_owner(tier, phase=Phase.CUT)
    return f"{tier}: {record.owner} hands over to {number}"


def _beyond_budget(draft: Draft, identity: ChangeId, tier: TierName, number: Incarnation) -> str | None:
    """Say which slots hold a hand-over up: lost since they were placed, so many that the tier would have fewer than its budget allows."""
    allowed, owning = draft.rules.budget.get(tier), draft.owner_spec(tier)
    if allowed is None or owning is None:
        return None
    aim = target(tier, aftermath(draft.changes[identity].spec, cluster(draft)).rules)
    slots = draft.incarnations[tier][number].placement.slots
    lost = [host for host in slots if draft.is_lost(host)]
    alive = len(slots) - len(lost)
    if (
        not lost
        or aim.k - alive <= allowed
        or alive >= sum(not draft.is_lost(host) for host in owning.placement.slots)
    ):
        return None
    return (
        f"{tier}/{number} to have the slots that it lost on {listed(sorted(set(lost)))}: {aim.k - alive} of {aim.k} would be away, "
        f"and budget.{tier} lets {allowed}"
    )


def _make_room(draft: Draft, through: list[TierName], short: _NoRoom) -> Outcome:
    """Release what has been handed over already, so that the next tier finds room."""
    freed = [
        tier
        for tier in through
        if any(_is_old(draft, tier, spec.incarnation) for spec in draft.unretired(tier))
    ]
    if not freed:
        return Failed(short.verdict)
    for tier in freed:
        for spec in draft.unretired(tier):
            if _is_old(draft, tier, spec.incarnation):
                draft.retire(tier, spec.incarnation)
    return Waiting(f"room is short: the old incarnations of {', '.join(freed)} are released first")


def _is_old(draft: Draft, tier: TierName, number: Incarnation) -> bool:
    return number not in {draft.owners[tier].owner, draft.owners[tier].standby}


def reason_of(spec: ChangeSpec) -> str:
    """Say why an incarnation exists."""
    to = [f"to {part}" for part in (spec.to, spec.k, spec.release, spec.partitions) if part is not None]
    what = [spec.host, spec.tier, *to, spec.shift]
    return " ".join([str(spec.kind), *(str(part) for part in what if part is not None)])
