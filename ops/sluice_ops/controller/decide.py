"""One pass, pure: a snapshot and the time in, one atomic set of writes and one sentence out. Nothing is read or remembered in between."""

from dataclasses import dataclass

from sluice_ops.channel import Write
from sluice_ops.controller import operations, trail_entries
from sluice_ops.controller.pass_state import Draft, Moment
from sluice_ops.controller.policies import assignments, backpressure, batch, brake, quarantine, starvation
from sluice_ops.controller.policies import tier_lifecycle as tiers
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.status import TierState, TierStatus
from sluice_ops.model.unknown_names import unknown
from sluice_ops.model.wording import listed
from sluice_ops.snapshot.view import View


@dataclass(frozen=True)
class Decision:
    """What a pass has come to."""

    writes: tuple[Write, ...]
    """To be written all together or not at all."""
    sentence: str
    tiers: dict[TierName, TierStatus]
    under_way: bool
    """Something is to happen soon: look again in about a second, woken or not."""
    braked: tuple[HostName, ...] = ()
    """Lost hosts from which nothing is moved."""


def decide(view: View, moment: Moment) -> Decision:
    """Decide what to write now."""
    draft = Draft(view, moment)
    brake.engage(draft)
    quarantine.keep(draft)
    batch.keep(draft)
    for tier in draft.end_first():
        tiers.step(draft, tier)
    backpressure.keep(draft)
    waits = operations.carry_out(draft)
    starvation.keep(draft)
    batch.grow(draft)
    assignments.project(draft)
    return Decision(
        writes=(*draft.writes(), *trail_entries.writes(draft)),
        sentence=_sentence(draft, waits),
        tiers=dict(draft.statuses),
        under_way=bool(waits) or _is_restless(draft),
        braked=tuple(sorted(draft.braked)),
    )


def _is_restless(draft: Draft) -> bool:
    settled = {TierState.RUNNING, TierState.PAUSED, TierState.STOPPED, TierState.FAILED}
    return any(status.state not in settled for status in draft.statuses.values()) or any(
        change.state is ChangeState.ACTIVE for change in draft.changes.values()
    )


def _sentence(draft: Draft, waits: list[str]) -> str:
    """Say in one line what was decided, or else what is waited for, or else how all is."""
    said = [
        *draft.events,
        *(f"{identity}: {result.sentence}" for identity, result in draft.results.items()),
        *waits,
    ]
    if said:
        return "; ".join(said)
    if draft.braked:
        return brake.sentence(draft)
    odd = [
        f"{name} {status.sentence}"
        for name, status in draft.statuses.items()
        if status.state is not TierState.RUNNING
    ]
    where = [
        f"{name} on {listed(status.starved.hosts)}"
        for name, status in draft.statuses.items()
        if status.starved is not None
    ]
    starved = [f"starved of processor time: {', '.join(where)}"] if where else []
    lost = [f"lost: {listed(sorted(draft.lost))}"] if draft.lost else []
    tiers = {*draft.view.tiers, *draft.view.unread}
    slips = unknown(draft.rules, draft.rules.shifts, tiers) if tiers else []
    refused = (
        [f"the site file was changed and cannot be used, what it said before holds: {draft.rules.refused}"]
        if draft.rules.refused
        else []
    )
    beside = "".join(
        f"; {part}" for part in (*lost, *starved, *draft.suspects, *draft.view.troubles, *slips, *refused)
    )
    if odd:
        return f"{'; '.join(odd)}{beside}"
    return (
        f"{len(draft.statuses)} tiers run, nothing is being changed{beside}"
        if draft.statuses
        else f"no tier is published yet{beside}"
    )
