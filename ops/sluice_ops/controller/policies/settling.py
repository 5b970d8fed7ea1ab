"""The controller's own changes: it brings a tenant to the number that holds, or a tier to where it belongs, and posts the steps itself.

There are four reasons: the time of another number is over; a tier lacks some of its minimum, and others have more than theirs; a tier has
less than its share for want of room, and room has come; a tier has drifted for so long that the site file lets the controller repair it.
A step and the one that follows it are one write: whichever controller looks next finds the one or the other. Called by `operations`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import drifting, health, starvation
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.model.change import CONTROLLER, REPAIR, SETTLE, ChangeSpec, ChangeState, Operation, Step
from sluice_ops.model.ids import ChangeId, Tenant, TierName
from sluice_ops.model.wording import workers
from sluice_ops.operations.requests import operation_id
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.placement.cluster import RefusedError
from sluice_ops.planning.placement.shares import ended_entries, target
from sluice_ops.planning.shortage.fitting import lacking
from sluice_ops.planning.shortage.minimums import giving

AGAIN_SECONDS = 600.0
"""Between two attempts, when one has failed: time for a host to come back, and few enough to leave the history readable."""
STEP_SECONDS = 600.0
"""How long each step may take."""


def follow(draft: Draft) -> list[str]:
    """Post the step after one that has ended, or begin a change where there is a reason; return what has to wait."""
    drifted = drifting.due(draft)
    for ended in [name for name in draft.results if name in draft.view.operations]:
        _go_on(draft, draft.view.operations[ended].operation)
    if draft.posted or draft.braked or draft.view.unread or draft.view.unread_hosts or _own_under_way(draft):
        return []
    active = [change.id for change in draft.changes.values() if change.state is ChangeState.ACTIVE]
    for identity, spec, reason in chain(
        _ended(draft), () if active else chain(_needy(draft), _short(draft), _repairs(draft, drifted))
    ):
        if active:
            return [f"{reason}; that is done after {active[0]}"]
        draft.log(f"{reason}: change {identity} sees to it")
        _post(draft, identity, Step.PREFLIGHT, spec)
        if KINDS[spec.kind].repairs and spec.tier in draft.starved:
            starvation.hosts_to_quarantine(draft, spec.tier).apply(draft)
        break
    return []


_Reason = tuple[ChangeId, ChangeSpec, str]


def _ended(draft: Draft) -> Iterable[_Reason]:
    """Yield the tenants of whose numbers one is over; each attempt to take it back has a name of its own, whoever makes it."""
    for tenant, until in {
        entry.tenant: entry.until for entry in ended_entries(draft.rules.layers, draft.now) if entry.until is not None
    }.items():
        at = datetime.fromtimestamp(until, UTC).strftime("%Y%m%d-%H%M%S")
        identity = _attempt(draft, f"settle-{tenant}-{at}-")
        if identity is not None:
            yield identity, _spec(tenant, until), f"the time of {tenant}'s number is over"


def _needy(draft: Draft) -> Iterable[_Reason]:
    """Yield the tiers that give up workers for one that lacks some of its minimum, and finds room neither free nor with batch."""
    for needy in draft.shortage.needy:
        able = {
            name: identity
            for name in draft.view.tiers
            if health.undisturbed(draft, name)
            and (identity := _attempt(draft, _for(name, needy))) is not None
        }
        for tier, k in giving(needy, able, cluster(draft)).items():
            why = f"{needy} lacks some of its minimum, and has room for it when {tier} goes on with {workers(k)} for the time being"
            yield able[tier], ChangeSpec(kind=SETTLE, tier=tier, k=k), why


def _for(tier: TierName, needy: TierName) -> str:
    """Return how the names of the changes begin by which one tier gives up workers for another."""
    return f"settle-{tier}-for-{needy}-"


def _has_given(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier runs with fewer workers for one that has not yet had the room of them: it is left free until then."""
    owner, done = (
        draft.owners[tier].owner,
        [change for change in draft.changes.values() if change.state is ChangeState.DONE],
    )
    gifts = [
        change.id
        for change in done
        if KINDS[change.spec.kind].reduced_to(change.spec) is not None
        and change.incarnations.get(tier) == owner
    ]
    waiting = (
        {
            *draft.shortage.needy,
            *draft.shortage.promised,
            *(TierName(ask.tenant) for ask in lacking(cluster(draft))),
        }
        if gifts
        else set[TierName]()
    )
    return any(_number(gift, _for(tier, needy)) is not None for gift in gifts for needy in waiting)


def _short(draft: Draft) -> Iterable[_Reason]:
    """Yield the tiers that run with less than their share and would get more now."""
    for tier in draft.end_first():
        name, owning = tier.spec.name, draft.owner_spec(tier.spec.name)
        if owning is None or not health.undisturbed(draft, name) or _has_given(draft, name):
            continue
        has, share = len(owning.placement.slots), target(name, draft.rules).k
        identity = _attempt(draft, f"settle-{name}-from-{owning.incarnation}-")
        if has >= share or identity is None:
            continue
        more = _more(draft, name)
        if more > has:
            yield (
                identity,
                _spec(Tenant(name), None),
                f"{name} has {has} of its {share} slots, and there is room for {more}",
            )


def _repairs(draft: Draft, drifted: Iterable[tuple[TierName, str]]) -> Iterable[_Reason]:
    """Yield the repairs of tiers that have drifted for long enough."""
    for tier, why in drifted:
        if _has_given(draft, tier):
            continue
        starved = tier in draft.starved
        if starved and starvation.why_not(draft, tier) is not None:
            continue
        identity = _attempt(
            draft, starvation.stem(tier) if starved else f"repair-{tier}-from-{draft.owners[tier].owner}-"
        )
        if identity is not None:
            yield identity, ChangeSpec(kind=REPAIR, tier=tier), why


def _attempt(draft: Draft, stem: str) -> ChangeId | None:
    """Name the next attempt, by its number; None while the one before is not long enough ago.

    An attempt counts that cannot be read, or of which only steps are left: nothing can be begun under its id again.
    """
    made = [change for change in draft.changes.values() if _number(change.id, stem) is not None]
    if any(draft.age(change.started_at) < AGAIN_SECONDS for change in made):
        return None
    before = (_number(identity, stem) for identity in {*draft.changes, *draft.view.used})
    return ChangeId(f"{stem}{1 + max((number for number in before if number is not None), default=0)}")


def _number(identity: ChangeId, stem: str) -> int | None:
    """Return the number of an attempt; None where it is one at something else: a tier's name may begin with another's."""
    after = identity.removeprefix(stem)
    return int(after) if identity.startswith(stem) and after.isdigit() else None


def _more(draft: Draft, tier: TierName) -> int:
    """Return how many slots a tier would get now."""
    try:
        moves = plan(_spec(Tenant(tier), None), cluster(draft)).moves
    except RefusedError:
        return 0
    return max((len(move.after.slots) for move in moves), default=0)


def _spec(tenant: Tenant, until: float | None) -> ChangeSpec:
    return ChangeSpec(kind=SETTLE, tier=TierName(tenant), until=until)


def _own_under_way(draft: Draft) -> bool:
    return any(
        seen.operation.by == CONTROLLER
        for identity, seen in draft.view.operations.items()
        if identity not in draft.results
    )


def _go_on(draft: Draft, done: Operation) -> None:
    """Post what comes after a step of the controller's own: the next one, or an abort after a failure."""
    if done.by != CONTROLLER or done.step is Step.ABORT:
        return
    steps = KINDS[done.spec.kind].steps
    if draft.results[done.id].ok:
        if done.step is not steps[-1]:
            _post(draft, done.change, steps[steps.index(done.step) + 1], done.spec)
    elif done.change not in draft.changes or draft.changes[done.change].state is ChangeState.ACTIVE:
        _post(draft, done.change, Step.ABORT, done.spec)


def _post(draft: Draft, change: ChangeId, step: Step, spec: ChangeSpec) -> None:
    identity = operation_id(change, step)
    draft.posted[identity] = Operation(
        id=identity,
        change=change,
        step=step,
        spec=spec,
        by=CONTROLLER,
        posted_at=draft.now,
        deadline_seconds=STEP_SECONDS,
    )
