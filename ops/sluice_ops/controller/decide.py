"""One pass of the controller, a pure function: snapshot and time in, writes and a sentence out."""

from dataclasses import dataclass

from sluice_ops.channel import Write
from sluice_ops.controller import operations, trail_entries
from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import (
    assignments,
    backpressure,
    batch,
    batch_queue,
    brake,
    ending_hosts,
    quarantine,
    reclaims,
    starvation,
    tier_lifecycle,
)
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.status import TierState, TierStatus
from sluice_ops.model.unknown_names import unknown
from sluice_ops.model.unusable_spares import unusable_spares
from sluice_ops.model.unusable_workers import unusable_workers
from sluice_ops.model.wording import listed
from sluice_ops.snapshot.view import View

SETTLED = frozenset({TierState.RUNNING, TierState.PAUSED, TierState.STOPPED, TierState.FAILED})
"""States that a tier does not leave by itself."""


@dataclass(frozen=True)
class Decision:
    """The result of a pass."""

    writes: tuple[Write, ...]
    """To be written all together or not at all."""
    sentence: str
    tiers: dict[TierName, TierStatus]
    under_way: bool
    """Something is to happen soon: the next pass is due in about a second."""
    braked: tuple[HostName, ...] = ()
    """Lost hosts from which nothing is moved."""


def decide(view: View, inputs: PassInputs) -> Decision:
    """Decide what to write now. Each ruling is applied before the next policy reads the draft."""
    draft = Draft(view, inputs)
    # Hosts: where units stay, and where no units go.
    brake.hosts_to_brake(draft).apply(draft)
    quarantine.ended_and_deaths(draft).apply(draft)
    quarantined = quarantine.failing_hosts(draft)
    quarantined.apply(draft)
    ending_hosts.hosts_to_cordon(draft).apply(draft)
    # Slots of batch: taken back before tiers look for room. Tiers take back more
    # (`draft.shortage`).
    batch.slots_to_keep(draft).apply(draft)
    # Tiers, and the changes that people and the controller itself have asked for.
    for tier in draft.end_first():
        tier_lifecycle.step(draft, tier)
    backpressure.gates_to_throttle(draft).apply(draft)
    waits = operations.advance(draft)
    starvation.starved_tiers(draft).apply(draft)
    # What is left: the rest of the room is lent, and the hosts' assignments follow from all that.
    batch.slots_to_lend(draft).apply(draft)
    assignments.changed_assignments(draft).apply(draft)
    batch_queue.divided_slots(draft).apply(draft)
    reclaims.measured(draft).apply(draft)
    return Decision(
        writes=(*draft.writes(), *trail_entries.writes(draft)),
        sentence=_sentence(draft, waits, quarantined.suspects),
        tiers=dict(draft.statuses),
        under_way=bool(waits) or _is_under_way(draft),
        braked=tuple(sorted(draft.braked)),
    )


def _is_under_way(draft: Draft) -> bool:
    return bool(draft.active_changes()) or any(
        status.state not in SETTLED for status in draft.statuses.values()
    )


def _sentence(draft: Draft, waits: list[str], suspects: tuple[str, ...]) -> str:
    """Say in one line what was decided; else what the pass waits for; else how the tiers are."""
    results = (f"{identity}: {result.sentence}" for identity, result in draft.results.items())
    if decided := [*draft.events, *results, *waits]:
        return "; ".join(decided)
    if draft.braked:
        return brake.sentence(draft.braked)
    statuses = draft.statuses.items()
    not_running = [
        f"{name} {status.sentence}" for name, status in statuses if status.state is not TierState.RUNNING
    ]
    if not_running:
        state = "; ".join(not_running)
    elif draft.statuses:
        state = f"all {len(draft.statuses)} tiers run, no change is under way"
    else:
        state = "no tier is published yet"
    return "; ".join([state, *_notes(draft, suspects)])


def _notes(draft: Draft, suspects: tuple[str, ...]) -> list[str]:
    """Say what else a person should know while nothing is decided."""
    lost = [f"lost: {listed(sorted(draft.lost))}"] if draft.lost else []
    where = [
        f"{name} on {listed(status.starved.hosts)}"
        for name, status in draft.statuses.items()
        if status.starved is not None
    ]
    starved = [f"starved of processor time: {', '.join(where)}"] if where else []
    tiers = {*draft.view.tiers, *draft.view.unread}
    unknown_names = unknown(draft.rules, draft.rules.shifts, tiers) if tiers else []
    specs = [tier.spec for tier in draft.view.tiers.values()]
    spares = unusable_spares(draft.rules.shares, draft.rules.shifts, specs)
    workers = unusable_workers(draft.rules, draft.rules.shifts, specs)
    refused = (
        [f"the changed site file cannot be used, its last valid version applies: {draft.rules.refused}"]
        if draft.rules.refused
        else []
    )
    return [*lost, *starved, *suspects, *draft.view.unreadable, *unknown_names, *spares, *workers, *refused]
