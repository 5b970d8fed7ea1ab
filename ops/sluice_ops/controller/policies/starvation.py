"""Tiers that other processes on their hosts starve of processor time, and what is done for such a tier.

Agents measure the starvation (`sluice_ops.agent.watch.starvation`). A starved tier has drifted, so a
repair moves the tier. Its hosts are then quarantined, or the tier would go back when the starvation
ends (decision record 0035).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import quarantine
from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.status import STARVED, Starved, TierStatus
from sluice_ops.model.wording import listed

STARVED_SECONDS = 300.0
"""How long a tier is starved before it is moved, if the site file allows repairs. A peak is shorter."""
AGAIN_SECONDS = 1800.0
"""Time between two moves of one tier: a tier that is starved on every host had better stay."""


@dataclass(frozen=True)
class StarvationRuling:
    """What the status says of starved tiers."""

    starved: Mapping[TierName, Starved]
    events: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """Write it into the statuses."""
        for name, starved in self.starved.items():
            draft.statuses[name] = draft.statuses[name].model_copy(update={"starved": starved})
        draft.log(*self.events)


def starved_tiers(draft: Draft) -> StarvationRuling:
    """Tell which tiers are starved and what is done. Begin and end of a starvation are events."""
    before = {} if draft.view.status is None else draft.view.status.tiers
    ruling: dict[TierName, Starved] = {}
    events: list[str] = []
    for name, status in draft.statuses.items():
        was = before[name].starved if name in before else None
        if name in draft.starved:
            hosts = tuple(sorted(draft.starved[name]))
            sentence = f"{STARVED}{listed(hosts)}: {_measure(draft, name, status)}"
            ruling[name] = Starved(hosts=hosts, sentence=sentence)
            if was is None or was.hosts != hosts:
                events.append(f"{name} {sentence}")
        elif was is not None:
            events.append(f"{name} is no longer starved of processor time on {listed(was.hosts)}")
    return StarvationRuling(ruling, tuple(events))


def is_due(draft: Draft, tier: TierName, drifted: float, limit: float) -> bool:
    """Tell whether a tier has been starved, and could have moved, for long enough.

    `drifted` is how long a move has been possible, `limit` the limit of any drift. Unit: seconds.
    """
    starved = max(draft.age(since) for since in draft.starved[tier].values())
    return min(starved, drifted) >= min(limit, STARVED_SECONDS)


def stem(tier: TierName) -> str:
    """Return how the ids of the changes begin that move a starved tier."""
    return f"repair-{tier}-starved-"


def why_not(draft: Draft, tier: TierName) -> str | None:
    """Say why a starved tier stays, though another host has room; None if it may be moved."""
    begin = stem(tier)
    moves = [change for identity, change in draft.changes.items() if identity.startswith(begin)]
    last = min((draft.age(change.started_at) for change in moves), default=AGAIN_SECONDS)
    if last < AGAIN_SECONDS:
        return f"it is moved once in {AGAIN_SECONDS / 60:.0f} min at most"
    used = _hosts_in_use(draft, tier)
    why = quarantine.needed(draft, used) if used else None
    return None if why is None else f"{listed(sorted(used))} cannot be taken out of use: {why}"


def hosts_to_quarantine(draft: Draft, tier: TierName) -> quarantine.QuarantineRuling:
    """Put the hosts in quarantine that starve a tier which is about to be moved."""
    reason = f"{tier} is starved of processor time there"
    return quarantine.quarantined(draft, dict.fromkeys(sorted(_hosts_in_use(draft, tier)), reason))


def _measure(draft: Draft, tier: TierName, status: TierStatus) -> str:
    """Say what is done for a starved tier, or what a person can do."""
    person = "see what else runs there (`top`), or `sluice drain HOST`"
    active = [change.id for change in draft.active_changes()]
    active += [operation.change for operation in draft.posted.values()]
    for identity in active:
        if identity.startswith(stem(tier)):
            return f"change {identity} moves it"
    if draft.rules.repair_seconds is None:
        return f"nothing is moved by itself here; `sluice drift --repair` moves it; or {person}"
    if active or draft.braked:
        meanwhile = "the brake holds" if draft.braked else "something is being changed"
        return f"nothing is moved for it while {meanwhile}; {person}"
    if status.drifted_since is None:
        return f"no other host can take it now, `sluice drift` says why; return or add a host; {person}"
    why = why_not(draft, tier)
    wait = min(STARVED_SECONDS, draft.rules.repair_seconds)
    return (
        f"it stays: {why}; {person}"
        if why is not None
        else f"it is moved when that has lasted {wait:.0f} s; {person}"
    )


def _hosts_in_use(draft: Draft, tier: TierName) -> set[HostName]:
    """Return the hosts that starve a tier and are up."""
    return {name for name in draft.starved[tier] if draft.host_state(name) is HostState.UP}
