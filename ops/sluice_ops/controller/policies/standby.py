"""A standby: a second incarnation of a tier on other hosts, in case the owner dies.

A hot standby runs beside the owner and writes the same output, so a death causes no gap; readers
drop the duplicates, as after any handover. A warm standby is ready and waits. A handover ends the
standby, and a new one is started.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import OwnerRecord, Placement, State
from sluice_ops.model.status import TierState, TierStatus
from sluice_ops.model.tier import Standby
from sluice_ops.model.wording import counted
from sluice_ops.planning.placement.cluster import Cluster, RefusedError
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place_tier
from sluice_ops.snapshot.view import TierView

START_INTERVAL_SECONDS = 30.0
"""Time between the starts of two standbys of a tier, also if the first dies at once."""
CATCH_UP_SECONDS = 10.0
"""How long a new owner may take to catch up before its standby starts all the same.

A JVM that starts takes the processors that the new owner needs for its first records.
"""
REASON = "standby"


def maintain(draft: Draft, tier: TierView) -> str | None:
    """Start, keep or take away the standby, as the tier is declared; describe the standby."""
    name = tier.spec.name
    number = draft.owners[name].standby
    unfit = None if number is None else _unfit(draft, tier, number)
    if number is not None and unfit is not None:
        draft.log(f"{name}: standby {number} is taken away: {unfit}")
        draft.retire(name, number)
        draft.update_owner(name, standby=None)
        number = None
    if tier.spec.standby is Standby.NONE:
        return None
    if number is not None:
        host = draft.incarnations[name][number].placement.driver
        return f"{tier.spec.standby} standby {number} is {health.state(draft, name, number)} on {host}"
    return _begin(draft, tier)


def take_over(draft: Draft, tier: TierName, owner: Incarnation, why: str) -> TierStatus | None:
    """Make a living standby the owner in place of a dead one; None without such a standby.

    An incarnation that is being prepared stays.
    """
    number, hot = draft.owners[tier].standby, draft.owners[tier].standby_runs
    fit = {State.RUNNING, State.PAUSED} if hot else {State.READY}
    if (
        number is None
        or health.has_ended(draft, tier, number)
        or health.state(draft, tier, number) not in fit
    ):
        return None
    draft.retire(tier, owner)
    draft.update_owner(tier, owner=number, standby=None, paused_workers=())
    draft.log(
        f"{tier}: {why}; incarnation {number}, its {Standby.HOT if hot else Standby.WARM} standby, takes over"
    )
    sentence = f"standby {number} has taken over: {why}"
    return TierStatus(state=TierState.RUNNING if hot else TierState.STARTING, sentence=sentence, error=why)


def _unfit(draft: Draft, tier: TierView, number: Incarnation) -> str | None:
    """Say why a standby is taken away; None if it stays."""
    if tier.spec.standby is Standby.NONE:
        return "the tier is declared without a standby"
    if draft.owners[tier.spec.name].standby_runs is not (tier.spec.standby is Standby.HOT):
        return f"the tier is declared with a {tier.spec.standby} standby"
    if _must_run_alone(draft, tier):
        return "partitions were added to the tier's outputs, and the owner must run alone to use them"
    end = health.death(draft, tier.spec.name, number)
    if end is not None:
        return f"it {end.reason}"
    placement, aim = (
        draft.incarnations[tier.spec.name][number].placement,
        target(tier.spec.name, draft.rules),
    )
    if len(placement.slots) != aim.k:
        return f"it has {counted(len(placement.slots), 'slot')}, and the tier is to have {aim.k}"
    hosts = sorted(placement.hosts)
    return next(
        (
            f"{host} is {draft.host_state(host)}"
            for host in hosts
            if draft.host_state(host) is not HostState.UP
        ),
        None,
    )


def _begin(draft: Draft, tier: TierView) -> str:
    name = tier.spec.name
    owning = draft.owner_spec(name)
    waits = _waits_for(draft, tier)
    if owning is None or waits is not None:
        return f"the standby starts when {waits or 'the tier runs'}"
    before = [
        draft.age(spec.created_at) for spec in draft.incarnations[name].values() if spec.reason == REASON
    ]
    if before and min(before) < START_INTERVAL_SECONDS:
        return f"the next standby starts {START_INTERVAL_SECONDS:.0f} s after the last one"
    try:
        placement = _place(tier, _without(cluster_of_draft(draft), owning.placement))
    except RefusedError as refused:
        return f"the tier runs without a standby: {refused}"
    number = draft.begin(name, placement, REASON, owning.failures)
    draft.update_owner(name, standby=number, standby_runs=tier.spec.standby is Standby.HOT)
    draft.log(f"{name}: incarnation {number} starts as {tier.spec.standby} standby, {placement.in_words}")
    return f"{tier.spec.standby} standby {number} starts on {placement.driver}"


def _waits_for(draft: Draft, tier: TierView) -> str | None:
    """Return the condition that is missing for the start of a standby."""
    name, record = tier.spec.name, draft.owners[tier.spec.name]
    changing = record.next is not None or any(
        change.state is ChangeState.ACTIVE for change in draft.changes.values()
    )
    runs = not changing and not record.paused and health.confirmed(draft, name)
    conditions = {
        "the tier runs and no change is under way": runs,
        "the owner uses the partitions that were added to its outputs": not _must_run_alone(draft, tier),
        f"the owner has caught up, or runs for {CATCH_UP_SECONDS:.0f} s": runs
        and _is_level(draft, tier, record),
        "the brake is off": not draft.braked,
    }
    return next((condition for condition, is_met in conditions.items() if not is_met), None)


def _is_level(draft: Draft, tier: TierView, record: OwnerRecord) -> bool:
    report = None if record.owner is None else tier.reports.get(record.owner)
    return report is not None and (report.caught_up or draft.age(report.since) >= CATCH_UP_SECONDS)


def _must_run_alone(draft: Draft, tier: TierView) -> bool:
    """Tell whether the owner must run alone until it uses added partitions.

    Two incarnations side by side must use the same partitions (decision 40).
    """
    owner = draft.owners[tier.spec.name].owner
    report = None if owner is None else tier.reports.get(owner)
    return tier.spec.standby is Standby.HOT and report is not None and report.narrow is not None


def _place(tier: TierView, now: Cluster) -> Placement:
    return place_tier(tier.spec, target(tier.spec.name, now.rules), None, now.hosts)[0]


def _without(now: Cluster, owner: Placement) -> Cluster:
    """Return the cluster without the owner's hosts, so that one host's loss does not end both."""
    return now.with_hosts({name: host for name, host in now.hosts.items() if name not in owner.hosts})
