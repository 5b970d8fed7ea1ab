"""Rollback: a tier whose owner runs another release than the accepted one is handed over.

The same holds for a tier whose state lies in another number of partitions than the accepted one. So
an upgrade or a repartition is undone in every case: if it failed, was aborted, or was abandoned.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import Phase, State
from sluice_ops.planning.placement.cluster import RefusedError
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place_tier

START_INTERVAL_SECONDS = 30.0
"""Time between the starts of two rollback incarnations of a tier."""


def rollback_target(draft: Draft, tier: TierName) -> str | None:
    """Return the release or the partitions to roll back to; None if the tier needs no rollback.

    A tier that an active change works on is left to this change.
    """
    owning, wanted = draft.owner_spec(tier), draft.wanted[tier]
    if owning is None or any(
        change.state is ChangeState.ACTIVE and tier in {**change.incarnations, **change.canaries}
        for change in draft.changes.values()
    ):
        return None
    if owning.release is not None and wanted.release not in {None, owning.release}:
        return f"release {wanted.release}"
    return f"{wanted.partitions} state partitions" if wanted.partitions != owning.partitions else None


def is_under_way(draft: Draft, tier: TierName) -> bool:
    """Tell whether the next incarnation of a tier is its rollback."""
    spec, wanted = draft.incarnations[tier].get(draft.owners[tier].next or Incarnation(0)), draft.wanted[tier]
    return (
        spec is not None
        and rollback_target(draft, tier) is not None
        and (spec.release, spec.partitions) == (wanted.release, wanted.partitions)
    )


def advance(draft: Draft, tier: TierName) -> str | None:
    """Take a tier's rollback one step further; return its progress, or None without one."""
    goal, owning, record = rollback_target(draft, tier), draft.owner_spec(tier), draft.owners[tier]
    if goal is None or owning is None:
        return None
    sentence = f"rolls back to {goal}"
    if record.next is None:
        return _begin(draft, tier, goal, sentence)
    if record.phase is Phase.CUT:
        return f"{sentence}: incarnation {record.owner} hands over to {record.next}"
    if health.state(draft, tier, record.next) is State.READY and health.confirmed(draft, tier):
        draft.update_owner(tier, phase=Phase.CUT)
    return f"{sentence}: incarnation {record.next} is {health.state(draft, tier, record.next)}"


def _begin(draft: Draft, tier: TierName, goal: str, sentence: str) -> str:
    reason = f"return to {goal}"
    before = [
        draft.age(spec.created_at) for spec in draft.incarnations[tier].values() if spec.reason == reason
    ]
    if before and min(before) < START_INTERVAL_SECONDS:
        return f"{sentence}: next attempt {START_INTERVAL_SECONDS:.0f} s after the last one"
    owning = draft.owner_spec(tier)
    if owning is None or not health.confirmed(draft, tier):
        return f"{sentence} once the tier runs"
    now = cluster_of_draft(draft)
    try:
        placement, _ = place_tier(
            draft.view.tiers[tier].spec, target(tier, now.rules), owning.placement, now.hosts
        )
    except RefusedError as refused:
        return f"{sentence} once there is room: {refused}"
    number = draft.begin(tier, placement, reason)
    draft.update_owner(tier, next=number, phase=Phase.PREPARE)
    draft.log(f"{tier} {sentence}: incarnation {number} is prepared, {placement.in_words}")
    return f"{sentence}: incarnation {number} is prepared"
