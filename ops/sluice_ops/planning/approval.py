"""The site's rule for approval: which conditions a planned change meets. Pure."""

from dataclasses import dataclass

from sluice_ops.model.approval import PAUSE_ALL, ApprovalRule
from sluice_ops.model.change import ChangeSpec, Plan, Step
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.launch import Launch
from sluice_ops.model.wording import counted, listed
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.placement.cluster import Cluster


@dataclass(frozen=True)
class Facts:
    """What the rule reads of a planned change."""

    names: tuple[str, ...]
    """The names under which the rule's `always` may list the change."""
    tiers: tuple[TierName, ...]
    """The tiers that the change hands over, changes in place, pauses, or injects a fault into, and
    those that its whole run does.
    """
    hosts: tuple[HostName, ...]
    """The hosts that the change or its whole run names, or that a write-off of all hosts means."""
    gap_seconds: float
    alerts: tuple[str, ...] = ()
    """The keys of the alerts that last."""
    within_hours: bool = False
    """Whether it is asked in the hours in which a change of tiers waits."""
    launch: Launch | None = None
    """The instances that the change launches, and their cost."""


def facts_of(spec: ChangeSpec, planned: Plan, cluster: Cluster, alerts: tuple[str, ...], now: float) -> Facts:
    """Return the facts of a change that is planned at the epoch seconds `now`.

    `alerts` are those that last.
    """
    kind, hours = KINDS[spec.kind], cluster.rules.approval_hours
    tiers = {move.tier for move in planned.moves}
    if Step.PAUSE in kind.steps:
        named = {name for name, tier in cluster.tiers.items() if {*tier.workers} & {*spec.workers}}
        tiers |= {*cluster.tiers} if kind.is_of_all(spec) else named
        tiers |= {*spec.named_tiers}
    if Step.INJECT in kind.steps:
        tiers |= {*spec.named_tiers}
    hosts = {*spec.named_hosts}
    if spec.part_of is not None:
        hosts |= {*spec.part_of.hosts}
        tiers |= {*spec.part_of.tiers}
        tiers |= {tier for name in hosts & cluster.hosts.keys() for tier in cluster.hosts[name].tiers}
    if Step.WRITE_OFF in kind.steps and spec.host is None:
        hosts |= cluster.braked
    all_of_them = (PAUSE_ALL,) if Step.PAUSE in kind.steps and kind.is_of_all(spec) else ()
    return Facts(
        names=(spec.kind, *all_of_them),
        tiers=tuple(sorted(tiers)),
        hosts=tuple(sorted(hosts)),
        gap_seconds=planned.predicted_gap_seconds,
        alerts=alerts,
        within_hours=hours is not None and hours.opens(now) is None,
        launch=spec.launch,
    )


def reasons(facts: Facts, rule: ApprovalRule | None) -> dict[str, str]:
    """Return the conditions that hit, each with a sentence; empty: the change needs no approval."""
    if rule is None:
        return {}
    met: dict[str, str] = {}
    named = [name for name in facts.names if name in rule.always]
    if named:
        what = "a pause of every tier" if named[-1] == PAUSE_ALL else f"a {named[-1]}"
        met["always"] = f"{what} always needs a second person here"
    if rule.tiers is not None and len(facts.tiers) >= rule.tiers:
        touched = counted(len(facts.tiers), "tier")
        met["tiers"] = f"it touches {touched} ({listed(facts.tiers)}); the limit is {rule.tiers}"
    if rule.hosts is not None and len(facts.hosts) >= rule.hosts:
        about = counted(len(facts.hosts), "host")
        met["hosts"] = f"it is about {about} ({listed(facts.hosts)}); the limit is {rule.hosts}"
    if rule.gap_seconds is not None and facts.gap_seconds >= rule.gap_seconds:
        met["gap"] = f"its predicted gap is {facts.gap_seconds:g} s; the limit is {rule.gap_seconds:g} s"
    limits = [limit for limit in (rule.cost_per_day, facts.launch and facts.launch.budget) if limit]
    if facts.launch is not None and (cost := facts.launch.above(min(limits, default=None))):
        met["cost"] = cost
    if rule.alerts and facts.alerts and facts.tiers:
        met["alerts"] = f"it touches {listed(facts.tiers)} while alerts last: {listed(facts.alerts)}"
    if facts.within_hours and facts.tiers:
        met["hours"] = f"it touches {listed(facts.tiers)} in the hours of approval.hours"
    return met


def too_expensive(spec: ChangeSpec, rule: ApprovalRule | None) -> str:
    """Return why a burst is refused because nobody may approve its cost; empty: it is not."""
    cost = "" if rule is not None or spec.launch is None else spec.launch.above(spec.launch.budget)
    return cost and (
        f"{cost}. That limit is ec2.max_cost_per_day, and with `approval: off` nobody can approve more, so "
        "no instance is launched. Ask for fewer workers, leave EC2 first (`sluice leave`, or leave_ec2), or "
        "raise the limit in the site file"
    )


def beyond(approved: Facts, now: Facts) -> str:
    """Return what a change would touch now that nobody approved; empty: nothing."""
    more = [*({*now.tiers} - {*approved.tiers}), *({*now.hosts} - {*approved.hosts})]
    return listed(sorted(more)) if more else ""
