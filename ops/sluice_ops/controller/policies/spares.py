"""How many workers of a tier get tasks; the others are its spares (decision 71).

The owner record has the number, and the driver chooses the workers. So a lost worker wakes a spare
without the controller. During a change of numbers, the number after the change holds, so that
spares work before anything is moved.
"""

from dataclasses import replace

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import TierName
from sluice_ops.model.wording import workers
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.planning.placement.shares import target


def set_active(draft: Draft, tier: TierName) -> None:
    """Write the number of workers that get tasks into the owner record, where it has changed."""
    active = target(tier, rules_to_come(draft)).active
    if draft.owner_spec(tier) is None or draft.owners[tier].active == active:
        return
    draft.update_owner(tier, active=active)
    draft.log(
        f"{tier}: all its workers get tasks"
        if active is None
        else f"{tier}: {workers(active)} get tasks, and the others are spares"
    )


def rules_to_come(draft: Draft) -> Rules:
    """Return the rules after the active change of numbers, or the present rules without one."""
    change = None if draft.lock is None else draft.changes.get(draft.lock.change)
    if change is None or change.state is not ChangeState.ACTIVE or not KINDS[change.spec.kind].resizes:
        return draft.rules
    kind = KINDS[change.spec.kind]
    layers = kind.layers(change.spec, cluster_of_draft(draft), change.by, change.started_at)
    return replace(draft.rules, layers=layers)


def why_too_few_work(draft: Draft, tier: TierName) -> str | None:
    """Return what a tier waits for while its driver has not woken spares that are to work."""
    record, owning = draft.owners[tier], draft.owner_spec(tier)
    report = None if owning is None else health.report(draft, tier, owning.incarnation)
    if record.active is None or record.paused or report is None or not report.spare_workers:
        return None
    waiting = draft.living_workers(tier).intersection(report.spare_workers)
    at_work = len(draft.living_workers(tier) - waiting - report.paused_workers)
    if not waiting or at_work >= record.active:
        return None
    return f"waiting until {tier} has woken spares: {at_work} of {workers(record.active)} work"
