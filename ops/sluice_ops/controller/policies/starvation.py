"""Starved tiers: other processes on their hosts take the processor time that the quantum promises.

Agents measure the starvation (`sluice_ops.agent.watch.starvation`). A starved tier has drifted, so
a repair moves the tier. Its hosts are then put in quarantine; otherwise the tier would move back
when the starvation ends (decision 35).
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
"""How long a tier must be starved before it is moved, if the site file allows repairs.

Peaks are shorter.
"""
MOVE_INTERVAL_SECONDS = 1800.0
"""Time between two moves of one tier, which may be starved on every host."""


@dataclass(frozen=True)
class StarvationRuling:
    """What the status says of starved tiers."""

    starved: Mapping[TierName, Starved]
    events: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """Write the starvation into the statuses."""
        for name, starved in self.starved.items():
            draft.statuses[name] = draft.statuses[name].model_copy(update={"starved": starved})
        draft.log(*self.events)


def starved_tiers(draft: Draft) -> StarvationRuling:
    """Return the starved tiers and what is done for them, and log each beginning and end."""
    before = {} if draft.view.status is None else draft.view.status.tiers
    ruling: dict[TierName, Starved] = {}
    events: list[str] = []
    for name, status in draft.statuses.items():
        was = before[name].starved if name in before else None
        if name in draft.starved:
            hosts = tuple(sorted(draft.starved[name]))
            sentence = f"{STARVED}{listed(hosts)}: {_action(draft, name, status)}"
            ruling[name] = Starved(hosts=hosts, sentence=sentence)
            if was is None or was.hosts != hosts:
                events.append(f"{name} {sentence}")
        elif was is not None:
            events.append(f"{name} is no longer starved of processor time on {listed(was.hosts)}")
    return StarvationRuling(ruling, tuple(events))


def is_due(draft: Draft, tier: TierName, drifted: float, limit: float) -> bool:
    """Tell whether a tier has been starved for long enough, and could have moved for long enough.

    `drifted` is how long a move has been possible, `limit` the limit of any drift. Unit: seconds.
    """
    starved = max(draft.age(since) for since in draft.starved[tier].values())
    return min(starved, drifted) >= min(limit, STARVED_SECONDS)


def change_prefix(tier: TierName) -> str:
    """Return the prefix of the ids of changes that move a starved tier."""
    return f"repair-{tier}-starved-"


def why_stays(draft: Draft, tier: TierName) -> str | None:
    """Say why a starved tier must stay although another host has room; None if it may be moved."""
    prefix = change_prefix(tier)
    moves = [change for identity, change in draft.changes.items() if identity.startswith(prefix)]
    last = min((draft.age(change.started_at) for change in moves), default=MOVE_INTERVAL_SECONDS)
    if last < MOVE_INTERVAL_SECONDS:
        return f"a starved tier is moved at most once in {MOVE_INTERVAL_SECONDS / 60:.0f} min"
    used = _hosts_in_use(draft, tier)
    why = quarantine.why_needed(draft, used) if used else None
    return None if why is None else f"{listed(sorted(used))} cannot be taken out of use: {why}"


def hosts_to_quarantine(draft: Draft, tier: TierName) -> quarantine.QuarantineRuling:
    """Return the quarantine of the hosts that starve a tier which is about to move."""
    reason = f"{tier} is starved of processor time there"
    return quarantine.quarantined(draft, dict.fromkeys(sorted(_hosts_in_use(draft, tier)), reason))


def _action(draft: Draft, tier: TierName, status: TierStatus) -> str:
    """Say what is done for a starved tier, or what a person can do."""
    person = "to free the host: see what else runs there (`top`), or `sluice drain HOST`"
    active = [change.id for change in draft.active_changes()]
    active += [operation.change for operation in draft.posted.values()]
    for identity in active:
        if identity.startswith(change_prefix(tier)):
            return f"change {identity} moves the tier"
    if draft.rules.repair is None:
        return f"the site file allows no repair; to move the tier: `sluice drift --repair`; {person}"
    if active or draft.braked:
        meanwhile = "the brake holds" if draft.braked else "a change is under way"
        return f"the tier is not moved while {meanwhile}; {person}"
    if status.drifted_since is None:
        return f"no other host has room now (`sluice drift` says why); return or add a host; {person}"
    why = why_stays(draft, tier)
    wait = min(STARVED_SECONDS, draft.rules.repair.after)
    return (
        f"the tier stays: {why}; {person}"
        if why is not None
        else f"the tier is moved after {wait:.0f} s of starvation; {person}"
    )


def _hosts_in_use(draft: Draft, tier: TierName) -> set[HostName]:
    """Return the hosts that are up and starve a tier."""
    return {name for name in draft.starved[tier] if draft.host_state(name) is HostState.UP}
