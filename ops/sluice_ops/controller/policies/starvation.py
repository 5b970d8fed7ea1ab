"""Tiers that other things on their hosts starve of processor time: how long that has lasted, what is done about it, and saying so.

Agents measure it (`sluice_ops.agent.watch.starvation`). Such a tier has drifted, and a repair moves it. Its hosts are quarantined, so that
nothing goes back as soon as the starvation ends. Called by `drifting`, `settling` and `decide` (decision record 0035).
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import quarantine
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, ChangeState
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.status import STARVED, Starved, TierStatus
from sluice_ops.model.wording import listed

STARVED_SECONDS = 300.0
"""Who is starved for so long is moved, if the site file lets the controller repair at all: by then it is no peak."""
AGAIN_SECONDS = 1800.0
"""Between two moves of one tier for this: whoever is starved wherever it goes is better off where it is."""


def is_due(draft: Draft, tier: TierName, drifted: float, limit: float) -> bool:
    """Tell whether a tier has been starved, and a move away been possible, for long enough; `limit` is that of any drift."""
    starved = max(draft.age(since) for since in draft.starved[tier].values())
    return min(starved, drifted) >= min(limit, STARVED_SECONDS)


def stem(tier: TierName) -> str:
    """Return how the names of the changes begin that move a tier for this."""
    return f"repair-{tier}-starved-"


def why_not(draft: Draft, tier: TierName) -> str | None:
    """Say why a starved tier stays though there is a place for it; None when it may be moved."""
    last = min((draft.age(change.started_at) for change in _moves(draft, tier)), default=AGAIN_SECONDS)
    if last < AGAIN_SECONDS:
        return f"it is moved once in {AGAIN_SECONDS / 60:.0f} min at most"
    used = _used(draft, tier)
    why = quarantine.kept(draft, used) if used else None
    return None if why is None else f"{listed(sorted(used))} cannot be taken out of use: {why}"


def leave(draft: Draft, tier: TierName) -> None:
    """Put the hosts that starve a tier, which is to be moved, in quarantine."""
    for name in sorted(_used(draft, tier)):
        quarantine.impose(draft, name, f"{tier} is starved of processor time there")


def keep(draft: Draft) -> None:
    """Write into each tier's status whether it is starved and what is done about it; say it when that begins or ends."""
    before = {} if draft.view.status is None else draft.view.status.tiers
    for name, status in draft.statuses.items():
        was = before[name].starved if name in before else None
        if name in draft.starved:
            hosts = tuple(sorted(draft.starved[name]))
            starved = Starved(hosts=hosts, sentence=f"{STARVED}{listed(hosts)}: {_done(draft, name, status)}")
            draft.statuses[name] = status.model_copy(update={"starved": starved})
            if was is None or was.hosts != hosts:
                draft.tell(f"{name} {starved.sentence}")
        elif was is not None:
            draft.tell(f"{name} is no longer starved of processor time on {listed(was.hosts)}")


def _done(draft: Draft, tier: TierName, status: TierStatus) -> str:
    """Say what is done about it, or what a person can do."""
    person = "see what else runs there (`top`), or `sluice drain HOST`"
    active = [change.id for change in draft.changes.values() if change.state is ChangeState.ACTIVE]
    active += [operation.change for operation in draft.posted.values()]
    for identity in active:
        if identity.startswith(stem(tier)):
            return f"change {identity} moves it"
    if draft.rules.repair_seconds is None:
        return f"nothing is moved by itself here; `sluice drift --repair` moves it; or {person}"
    if active or draft.braked:
        return f"nothing is moved for it while {'the brake holds' if draft.braked else 'something is being changed'}; {person}"
    if status.drifted_since is None:
        return f"no other host can take it now, `sluice drift` says why; return or add a host; {person}"
    why = why_not(draft, tier)
    wait = min(STARVED_SECONDS, draft.rules.repair_seconds)
    return (
        f"it stays: {why}; {person}"
        if why is not None
        else f"it is moved when that has lasted {wait:.0f} s; {person}"
    )


def _used(draft: Draft, tier: TierName) -> set[HostName]:
    """Return the hosts that starve a tier and are not out of use already."""
    return {name for name in draft.starved[tier] if draft.state_of(name) is HostState.UP}


def _moves(draft: Draft, tier: TierName) -> list[ChangeRecord]:
    begin = stem(tier)
    return [change for identity, change in draft.changes.items() if identity.startswith(begin)]
