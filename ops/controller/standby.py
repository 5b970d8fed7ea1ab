"""A hot standby: a second incarnation that runs beside the owner all the time, on other hosts, so that nothing stops when the owner dies.

It puts out what the owner puts out; who reads drops the second of each, as after any overlap. A hand-over ends it, and another follows.
"""

from ops.controller import vitals
from ops.controller.capacity import cluster
from ops.controller.draft import Draft
from ops.controller.view import TierView
from ops.model.assignment import HostState
from ops.model.ids import Incarnation, TierName
from ops.model.incarnation import Placement, State
from ops.model.operation import ChangeState
from ops.model.sentence import listed
from ops.model.tier import Standby
from ops.planning.cluster import Cluster, RefusedError
from ops.planning.placement import place_tier
from ops.planning.shares import target

AGAIN_SECONDS = 30.0
"""Between the begins of two standbys of a tier: one that dies at once is not started again at once."""
REASON = "hot standby"


def keep(draft: Draft, tier: TierView) -> str | None:
    """See to it that a tier has the standby that it is declared with; say how it is."""
    name = tier.spec.name
    number = draft.owners[name].standby
    unfit = None if number is None else _unfit(draft, tier, number)
    if number is not None and unfit is not None:
        draft.tell(f"{name}: hot standby {number} is taken away: {unfit}")
        draft.retire(name, number)
        draft.own(name, standby=None)
        number = None
    if tier.spec.standby is not Standby.HOT:
        return None
    if number is not None:
        return f"hot standby {number} is {vitals.state(draft, name, number)} on {draft.incarnations[name][number].placement.driver}"
    return _begin(draft, tier)


def take_over(draft: Draft, tier: TierName, owner: Incarnation, why: str) -> str | None:
    """Make a living standby the owner in place of one that died; what was being prepared goes on being prepared."""
    number = draft.owners[tier].standby
    if number is None or vitals.gone(draft, tier, number) or vitals.state(draft, tier, number) not in {State.RUNNING, State.PAUSED}:
        return None
    draft.retire(tier, owner)
    draft.own(tier, owner=number, standby=None)
    draft.tell(f"{tier}: {why}; incarnation {number}, its hot standby, owns the tier")
    return f"incarnation {number}, the hot standby, has taken over: {why}"


def _unfit(draft: Draft, tier: TierView, number: Incarnation) -> str | None:
    """Say why a standby cannot stay; None when it can."""
    if tier.spec.standby is not Standby.HOT:
        return "the tier is declared without one"
    end = vitals.death(draft, tier.spec.name, number)
    if end is not None:
        return f"it {end.reason}"
    placement, aim = draft.incarnations[tier.spec.name][number].placement, target(tier.spec.name, draft.rules_now())
    if len(placement.slots) != aim.k:
        return f"it has {len(placement.slots)} slots, and the tier is to have {aim.k}"
    hosts = sorted(placement.hosts)
    return next((f"{host} is {draft.state_of(host)}" for host in hosts if draft.state_of(host) is not HostState.UP), None)


def _begin(draft: Draft, tier: TierView) -> str:
    name = tier.spec.name
    record = draft.owners[name]
    owning = draft.owning(name)
    changing = record.next is not None or any(change.state is ChangeState.ACTIVE for change in draft.changes.values())
    if owning is None or changing or record.paused or not vitals.confirmed(draft, name):
        return "its hot standby is started once it runs and nothing is under way"
    before = [spec.created_at for spec in draft.incarnations[name].values() if spec.reason == REASON]
    if before and draft.now < max(before) + AGAIN_SECONDS:
        return f"another hot standby is started {AGAIN_SECONDS:.0f} s after the one before"
    try:
        placement = _place(tier, _without(cluster(draft), owning.placement))
    except RefusedError as refused:
        return f"runs without its hot standby: {refused}"
    number = draft.begin(name, placement, REASON, owning.failures)
    draft.own(name, standby=number)
    draft.tell(f"{name}: incarnation {number} starts as hot standby, driver on {placement.driver}, workers on {listed(placement.slots)}")
    return f"hot standby {number} starts on {placement.driver}"


def _place(tier: TierView, now: Cluster) -> Placement:
    return place_tier(tier.spec, target(tier.spec.name, now.rules), None, now.hosts)[0]


def _without(now: Cluster, owner: Placement) -> Cluster:
    """Keep off the owner's hosts: what they share, they lose together."""
    return now.with_hosts({name: host for name, host in now.hosts.items() if name not in owner.hosts})
