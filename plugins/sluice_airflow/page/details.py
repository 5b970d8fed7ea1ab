"""What the page shows of one host, one tier and one change besides the state."""

from typing import Any

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.page.content import change_of
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState
from sluice_ops.model.ids import ChangeId, HostName, TierName
from sluice_ops.model.incarnation import IncarnationSpec
from sluice_ops.model.wording import listed
from sluice_ops.queries.history import change_line, steps_of
from sluice_ops.queries.trail_history import trail_of_change
from sluice_ops.snapshot.view import TierView, View


class UnknownNameError(Exception):
    """The pipeline has no such host, tier or change; the message names what there is."""


def host_detail(view: View, name: str) -> dict[str, Any]:
    """Return the units of a host, as assigned and as its agent sees them, as JSON values."""
    host = view.hosts.get(HostName(name))
    if host is None:
        message = f"there is no host {name!r}; hosts: {listed(view.hosts) or 'none'}"
        raise UnknownNameError(message)
    seen = {unit.id: unit for unit in host.observed.units} if host.observed else {}
    assigned = {unit.id: unit for unit in host.assignment.units}
    return {
        "limits": host.observed and host.observed.limits,
        "agent_started": host.observed and host.observed.agent_started,
        "findings": host.observed and host.observed.findings,
        "units": [
            {
                "id": unit,
                "assigned": unit in assigned,
                "state": seen[unit].state if unit in seen else None,
                "pid": seen[unit].pid if unit in seen else None,
                "restarts": seen[unit].restarts if unit in seen else 0,
                "since": seen[unit].since if unit in seen else None,
                "exit": seen[unit].exit if unit in seen else None,
            }
            for unit in sorted({*assigned, *seen})
        ],
    }


def tier_detail(view: View, name: str) -> dict[str, Any]:
    """Return a tier's declaration, and its incarnations, the newest first, as JSON values."""
    tier = view.tiers.get(TierName(name))
    if tier is None:
        message = f"there is no tier {name!r}; tiers: {listed(view.tiers) or 'none'}"
        raise UnknownNameError(message)
    return {
        "spec": tier.spec.model_dump(mode="json"),
        "incarnations": [
            _incarnation(tier, spec) for _, spec in sorted(tier.incarnations.items(), reverse=True)
        ],
    }


def _incarnation(tier: TierView, spec: IncarnationSpec) -> dict[str, Any]:
    report = tier.reports.get(spec.incarnation)
    return {
        "number": spec.incarnation,
        "owner": spec.incarnation == tier.owner.owner,
        "state": "starting" if report is None else report.state,
        "driver": spec.placement.driver,
        "release": spec.release,
        "reason": spec.reason,
        "created_at": spec.created_at,
        "error": spec.hung if report is None else report.error or spec.hung,
        "gap_seconds": None if report is None else report.gap_seconds,
    }


def change_detail(channel: Channel, view: View, name: str) -> dict[str, Any]:
    """Return a change with its plan, its receipts and its posted steps as JSON values."""
    record = view.changes.get(ChangeId(name))
    if record is None:
        message = (
            f"there is no change {name!r}: it ended long ago, or was refused. `sluice trail` has older ones"
        )
        raise UnknownNameError(message)
    plan = record.plan
    return {
        "change": change_of(view, change_line(record)),
        "moves": [
            {
                "tier": move.tier,
                "before": None if move.before is None else move.before.model_dump(mode="json"),
                "after": move.after.model_dump(mode="json"),
                "in_place": move.in_place,
                "why": move.why,
                "incarnation": record.incarnations.get(move.tier),
                "receipt": record.receipts.get(move.tier),
            }
            for move in plan.moves
        ],
        "notes": [*plan.notes, *([f"besides: {plan.unpredicted}"] if plan.unpredicted else [])],
        "deadline_seconds": record.deadline_seconds,
        "asked": _asked(channel, record),
        "steps": [line.model_dump(mode="json") for line in steps_of(channel, record)],
    }


def trail_detail(channel: Channel, hook: SluiceHook, change: str) -> dict[str, Any]:
    """Return the trail of a change, and why older entries are missing, as JSON values."""
    trail, missing = trail_of_change(channel, hook.endpoints, change)
    return {
        "trail": [
            line.model_dump(mode="json", include={"name", "at", "by", "outcome", "sentence"})
            for line in trail
        ],
        "trail_missing": missing,
    }


def _asked(channel: Channel, record: ChangeRecord) -> dict[str, Any] | None:
    """Return what a change asks another person; None if it does not wait for an answer."""
    asked = record.asked
    if record.state is not ChangeState.WAITING or asked is None or channel.exists(paths.approval(record.id)):
        return None
    return {
        "by": asked.person or record.by,
        "why": asked.why,
        "plan": asked.plan,
        "until": record.started_at + asked.within_seconds,
    }
