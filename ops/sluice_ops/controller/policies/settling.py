"""The controller's own changes: it begins them and posts their steps. Called by `operations`.

There are these reasons:

- EC2 ends a burst host;
- the time of a share is over;
- the scaler has decided on another number of slots for a tier in mode `act`;
- a tier lacks some of its minimum, and other tiers have more than their minimum;
- a tier has fewer slots than its share, and room has become free;
- a tier has more slots than the pipeline's share leaves it;
- a tier has drifted for so long that the site file lets the controller repair it.

The result of a step and the next step are one write, so that the next leader finds both or neither.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import approvals, drifting, ending_hosts, health, starvation
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.change import (
    CONTROLLER,
    OWN,
    REPAIR,
    SCALE,
    SCALER,
    SETTLE,
    ChangeSpec,
    ChangeState,
    Operation,
    Step,
)
from sluice_ops.model.ids import ChangeId, Tenant, TierName
from sluice_ops.model.scaler import Mode
from sluice_ops.model.share import Layer
from sluice_ops.model.wording import counted, workers
from sluice_ops.operations.requests import operation_id
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import BURST_ZONE, RefusedError
from sluice_ops.planning.placement.shares import (
    OF_PIPELINE,
    ended_entries,
    left_of_share,
    limits,
    target,
)
from sluice_ops.planning.scaler.observe import base, entry_of_scaler
from sluice_ops.planning.shortage.fitting import requests_for_minimums
from sluice_ops.planning.shortage.minimums import giving

ATTEMPT_INTERVAL_SECONDS = 600.0
"""Time between two attempts if one has failed.

A host may come back in this time, and the history stays readable.
"""
DRAIN_INTERVAL_SECONDS = 10.0
"""Time from the end of a failed drain to the next attempt: EC2 ends the host within two minutes."""
STEP_SECONDS = 600.0
"""The deadline of each step."""


def post_steps(draft: Draft) -> list[str]:
    """Post the next step of an own change, or begin a change if there is a reason.

    Return what has to wait for the end of another change.
    """
    drifted = drifting.tiers_to_repair(draft)
    for ended in [name for name in draft.results if name in draft.view.operations]:
        _post_next(draft, draft.view.operations[ended].operation)
    if draft.posted or draft.braked or draft.view.unread or draft.view.unread_hosts or _own_under_way(draft):
        return []
    active = [change.id for change in draft.changes.values() if change.state is ChangeState.ACTIVE]
    drains = [*_drains(draft)]
    hindered = {
        identity: why
        for identity, spec, _ in ([] if active else drains)
        if (why := _hindrance(draft, identity, spec)) is not None
    }
    for identity, spec, reason in chain(
        (drain for drain in drains if drain[0] not in hindered),
        _expired_shares(draft),
        () if active else chain(_gifts(draft), _scaled(draft), _below_share(draft), _repairs(draft, drifted)),
    ):
        if active:
            return [f"{reason}; waits until change {active[0]} has ended"]
        draft.log(f"{reason}: change {identity} begins")
        by = SCALER if spec.kind == SCALE else CONTROLLER
        _post(draft, identity, Step.PREFLIGHT, spec, by, reason)
        if KINDS[spec.kind].repairs and spec.tier in draft.starved:
            starvation.hosts_to_quarantine(draft, spec.tier).apply(draft)
        break
    return [f"{reason}; {hindered[identity]}" for identity, _, reason in drains if identity in hindered]


_Reason = tuple[ChangeId, ChangeSpec, str]


def _drains(draft: Draft) -> Iterable[_Reason]:
    """Yield a drain for each spot notice, as long as it stands. Each attempt has its own id."""
    for ends_at, name, reason in ending_hosts.noticed(draft):
        yield _next_id(draft, f"drain-{name}-{ends_at:.0f}-"), ChangeSpec(kind="drain", host=name), reason


def _hindrance(draft: Draft, drain: ChangeId, spec: ChangeSpec) -> str | None:
    """Return why a drain does not begin now; None if it begins.

    The first attempt always begins, so that the trail has its refusal. A further one begins only if
    it would not be refused: a refusal is told once, and not again for each attempt.
    """
    prefix, _, number = drain.rpartition("-")
    if number == "1":
        return None
    last = draft.changes.get(ChangeId(f"{prefix}-{int(number) - 1}"))
    if last is not None and draft.age(last.stepped_at) < DRAIN_INTERVAL_SECONDS:
        return f"its drain has failed, and begins again after {DRAIN_INTERVAL_SECONDS:.0f} s"
    cluster = cluster_of_draft(draft)
    try:
        obstacles = violations(plan(spec, cluster), spec, aftermath(spec, cluster))
    except RefusedError as refused:
        obstacles = [str(refused)]
    return f"its drain waits until it is possible: {'; '.join(obstacles)}" if obstacles else None


def _expired_shares(draft: Draft) -> Iterable[_Reason]:
    """Yield the tenants with a share whose time is over. Each attempt has an id of its own."""
    for tenant, until in {
        entry.tenant: entry.until
        for entry in ended_entries(draft.rules.layers, draft.now)
        if entry.until is not None
    }.items():
        at = datetime.fromtimestamp(until, UTC).strftime("%Y%m%d-%H%M%S")
        identity = _attempt(draft, f"settle-{tenant}-{at}-")
        if identity is not None:
            yield identity, _spec(tenant, until), f"the time of {tenant}'s share is over"


def _gifts(draft: Draft) -> Iterable[_Reason]:
    """Yield the tiers that give up workers for a tier below its minimum without other room."""
    for needy in draft.shortage.needy:
        able = {
            name: identity
            for name in draft.view.tiers
            if health.undisturbed(draft, name)
            and (identity := _attempt(draft, _gift_prefix(name, needy))) is not None
        }
        for tier, k in giving(needy, able, cluster_of_draft(draft)).items():
            why = (
                f"{needy} lacks some of its minimum; it gets room when {tier} goes on with {workers(k)} "
                "for now"
            )
            yield able[tier], ChangeSpec(kind=SETTLE, tier=tier, k=k), why


def _gift_prefix(tier: TierName, needy: TierName) -> str:
    """Return the prefix of the ids of changes in which one tier gives up workers for another."""
    return f"settle-{tier}-for-{needy}-"


def _has_given(draft: Draft, tier: TierName) -> bool:
    """Tell whether a tier gave up workers for a tier that does not have their room yet.

    Until then, the room stays free.
    """
    owner, has = draft.owners[tier].owner, len(draft.workers(tier))
    gifts = [
        change.id
        for change in draft.changes.values()
        if change.state is ChangeState.DONE
        and change.incarnations.get(tier) == owner
        and (kept := KINDS[change.spec.kind].reduced_to(change.spec)) is not None
        and has <= kept
    ]
    waiting = (
        {
            *draft.shortage.needy,
            *draft.shortage.promised,
            *(TierName(ask.tenant) for ask in requests_for_minimums(cluster_of_draft(draft))),
        }
        if gifts
        else set[TierName]()
    )
    return any(_number(gift, _gift_prefix(tier, needy)) is not None for gift in gifts for needy in waiting)


def _scaled(draft: Draft) -> Iterable[_Reason]:
    """Yield the tiers whose number in the layer `autoscaler` is not the one that the scaler wants.

    In the modes `off` and `advise`, a number that the scaler set before is taken back, also if
    another layer decides.
    """
    for name, decision in draft.view.scaler.decisions.items():
        if name not in draft.view.tiers or not health.undisturbed(draft, name):
            continue
        if _waits_for_approval(draft, name):
            continue
        acts, now = decision.mode is Mode.ACT, target(name, draft.rules)
        wanted = decision.wanted if acts else base(name, draft.rules)
        if acts:
            stays = now.layer > Layer.AUTOSCALER or now.slots == wanted
        else:
            entry = entry_of_scaler(name, draft.rules)
            stays = (
                entry is None
                or entry.owner != SCALER
                or limits(name, draft.rules).hold(wanted) != wanted  # scale would refuse the number
            )
        if stays:
            continue
        if now.bound == OF_PIPELINE and wanted > now.slots:
            continue
        identity = _attempt(draft, f"scale-{name}-to-{wanted}-", after_failures_only=True)
        if identity is not None:
            reason = decision.cause if acts else f"the scaler does not act on {name} any more"
            yield (
                identity,
                ChangeSpec(kind=SCALE, tier=name, k=wanted, layer=Layer.AUTOSCALER.name.lower()),
                reason,
            )


def _waits_for_approval(draft: Draft, tier: TierName) -> bool:
    """Tell whether an earlier change of the scaler to this tier waits for approval."""
    return any(
        change.state is ChangeState.WAITING and change.by == SCALER and change.spec.tier == tier
        for change in draft.changes.values()
    )


def _below_share(draft: Draft) -> Iterable[_Reason]:
    """Yield the tiers that run with fewer slots than their share and would get more now.

    Before, tiers release what they have above the pipeline's share.
    """
    yield from _above_pipeline_share(draft)
    for tier in draft.end_first():
        name, owning = tier.spec.name, draft.owner_spec(tier.spec.name)
        if owning is None or not health.undisturbed(draft, name) or _has_given(draft, name):
            continue
        has, share = len(owning.placement.slots), target(name, draft.rules).k
        if has >= share:
            continue
        identity = _attempt(draft, f"settle-{name}-from-{owning.incarnation}-with-{has}-")
        if identity is None:
            continue
        possible = _slots_if_planned(draft, name)
        if possible > has and _within_pipeline_share(draft, name, possible - has):
            yield (
                identity,
                _spec(Tenant(name), None),
                f"{name} has {has} of its {counted(share, 'slot')}, and there is room for {possible}",
            )


def _above_pipeline_share(draft: Draft) -> Iterable[_Reason]:
    """Yield the tiers that run with more slots than the pipeline's share leaves them, and can
    release some now.
    """
    pipeline = draft.rules.pipeline_share
    for tier in draft.end_first() if pipeline is not None else ():
        name, owning = tier.spec.name, draft.owner_spec(tier.spec.name)
        if owning is None or pipeline is None or not health.undisturbed(draft, name):
            continue
        has, share = len(owning.placement.slots), target(name, draft.rules)
        identity = _attempt(draft, f"settle-{name}-from-{owning.incarnation}-with-{has}-")
        if has > share.k and identity is not None and 0 < _slots_if_planned(draft, name) < has:
            yield (
                identity,
                _spec(Tenant(name), None),
                f"{name} has {counted(has, 'slot')}, and its part of {pipeline.maximum} is {share.k}",
            )


def _within_pipeline_share(draft: Draft, tier: TierName, more: int) -> bool:
    """Tell whether the tiers stay within the pipeline's maximum if a tier gets more slots.

    Slots of bursts count only where they are on the site's own hosts.
    """
    own = {name for name, host in draft.view.hosts.items() if host.facts and host.facts.zone != BURST_ZONE}
    held: dict[str, int] = {
        name: sum(slot in own for slot in owning.placement.slots)
        for name in draft.view.tiers
        if (owning := draft.owner_spec(name)) is not None
    }
    held[tier] += more
    left = left_of_share(held, draft.rules)
    return left is None or left >= 0


def _repairs(draft: Draft, drifted: Iterable[tuple[TierName, str]]) -> Iterable[_Reason]:
    """Yield the repairs of tiers that have drifted for long enough."""
    for tier, why in drifted:
        if _has_given(draft, tier):
            continue
        starved = tier in draft.starved
        if starved and starvation.why_stays(draft, tier) is not None:
            continue
        identity = _attempt(
            draft,
            starvation.change_prefix(tier) if starved else f"repair-{tier}-from-{draft.owners[tier].owner}-",
        )
        if identity is not None:
            yield identity, ChangeSpec(kind=REPAIR, tier=tier), why


def _attempt(draft: Draft, prefix: str, *, after_failures_only: bool = False) -> ChangeId | None:
    """Return the id of the next attempt; None while the last attempt, or failure, is too recent.

    Unreadable attempts count, and those of which only steps are left: their ids cannot be used
    again.
    """
    attempts = [
        change
        for change in draft.changes.values()
        if _number(change.id, prefix) is not None
        and not (after_failures_only and change.state is ChangeState.DONE)
    ]
    if any(
        change.state is ChangeState.WAITING or draft.age(change.started_at) < ATTEMPT_INTERVAL_SECONDS
        for change in attempts
    ):
        return None
    return _next_id(draft, prefix)


def _next_id(draft: Draft, prefix: str) -> ChangeId:
    """Return the id of the next attempt."""
    before = (_number(identity, prefix) for identity in {*draft.changes, *draft.view.used_change_ids})
    return ChangeId(f"{prefix}{1 + max((number for number in before if number is not None), default=0)}")


def _number(identity: ChangeId, prefix: str) -> int | None:
    """Return the number of an attempt; None if the id has another prefix or no number after it."""
    after = identity.removeprefix(prefix)
    return int(after) if identity.startswith(prefix) and after.isdigit() else None


def _slots_if_planned(draft: Draft, tier: TierName) -> int:
    """Return how many slots a tier would get if it were planned now."""
    try:
        moves = plan(_spec(Tenant(tier), None), cluster_of_draft(draft)).moves
    except RefusedError:
        return 0
    return max((len(move.after.slots) for move in moves), default=0)


def _spec(tenant: Tenant, until: float | None) -> ChangeSpec:
    return ChangeSpec(kind=SETTLE, tier=TierName(tenant), until=until)


def _own_under_way(draft: Draft) -> bool:
    return any(
        seen.operation.by in OWN and approvals.waiting(draft, seen.operation.change) is None
        for identity, seen in draft.view.operations.items()
        if identity not in draft.results
    )


def _post_next(draft: Draft, done: Operation) -> None:
    """Post the next step of an own change, or an abort after a failed step."""
    if done.by not in OWN or done.step is Step.ABORT:
        return
    steps = KINDS[done.spec.kind].steps
    if draft.results[done.id].ok:
        if done.step is not steps[-1]:
            _post(draft, done.change, steps[steps.index(done.step) + 1], done.spec, done.by)
    elif done.change not in draft.changes or draft.changes[done.change].state is ChangeState.ACTIVE:
        _post(draft, done.change, Step.ABORT, done.spec, done.by)


def _post(  # noqa: PLR0913, PLR0917 - the fields of an operation
    draft: Draft, change: ChangeId, step: Step, spec: ChangeSpec, by: str, reason: str = ""
) -> None:
    identity = operation_id(change, step)
    draft.posted[identity] = Operation(
        id=identity,
        change=change,
        step=step,
        spec=spec,
        by=by,
        posted_at=draft.now,
        deadline_seconds=STEP_SECONDS,
        reason=reason,
    )
