"""Makes the lines of lists from one snapshot of the channel and the figures.

The clock is read only for the time until Kafka deletes records.
"""

import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from sluice_ops.model.assignment import HostFacts, Unit, UnitKind, UnitObserved, UnitState
from sluice_ops.model.ids import BATCH, HostName, Tenant, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationReport, State, TierProgress
from sluice_ops.model.share import Layer
from sluice_ops.model.status import TierStatus
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.wording import counted, listed
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.planning.placement.shares import (
    OF_PIPELINE,
    Target,
    divided_share,
    left_of_share,
    limits,
    target,
)
from sluice_ops.queries.figures import Figures
from sluice_ops.queries.lines import (
    IN_DRIVER,
    DriverLine,
    HoldLine,
    HostLine,
    PipelineShareLine,
    ScalerLine,
    ShareLine,
    SlotLine,
    TierLine,
    WorkerLine,
)
from sluice_ops.snapshot.rules import with_view
from sluice_ops.snapshot.view import HostView, TierView, View

_NOT_READ = HostFacts.model_construct(name=HostName("?"), address="?", zone="?", cpu=0, memory=0)
"""Shown for a host whose facts cannot be read."""
_WORKER_STATES = {UnitState.STARTING: "starting", UnitState.STOPPING: "draining", UnitState.EXITED: "lost"}


def hosts(view: View) -> list[HostLine]:
    """Describe every host that an agent has registered."""
    return [
        _host(host)
        for host in view.hosts.values()
        if host.facts is not None or host.name in view.unread_hosts
    ]


def tiers(view: View, figures: Figures) -> list[TierLine]:
    """Describe every tier, from the pipeline's entry to its end."""
    return [_tier(view, tier, figures) for tier in _entry_first(view)]


def holds(view: View) -> list[HoldLine]:
    """Describe the times that tiers were throttled, the newest last."""
    return [HoldLine.model_validate(hold.model_dump(), extra="ignore") for hold in view.holds.last]


def scaler(view: View) -> list[ScalerLine]:
    """Describe the scaler's last decisions, from the pipeline's entry to its end."""
    lines = (_scaler(view, tier.spec.name) for tier in _entry_first(view))
    return [line for line in lines if line is not None]


def release_notes(lines: list[TierLine]) -> list[str]:
    """Describe the tiers that run another release than the published one; empty if none does."""
    runs = [
        f"{line.name} ({line.release})"
        for line in lines
        if line.release is not None and line.release != line.published
    ]
    newest = {line.published for line in lines if line.published is not None}
    if not runs:
        return []
    published = f"Release {', '.join(sorted(newest))} is published"
    return [f"{published}, but another one runs in {', '.join(runs)}. Next: sluice upgrade TIER"]


def slots(view: View, figures: Figures) -> list[SlotLine]:
    """Describe every slot that is assigned."""
    lines = []
    reading: dict[tuple[str, str, int], list[int]] = {}
    for host, unit, observed in sorted(_units(view), key=lambda item: item[1].id):
        if unit.kind is not UnitKind.SLOT:
            continue
        address = host.facts.address if host.facts else ""
        records = reading.setdefault(
            (host.name, unit.tenant, unit.incarnation),
            figures.records(unit.tenant, unit.incarnation, address),
        )
        lines.append(
            SlotLine(
                id=unit.id,
                host=host.name,
                tenant=unit.tenant,
                incarnation=unit.incarnation,
                state=_slot_state(view, host, unit, observed),
                pid=observed.pid if observed else None,
                restarts=observed.restarts if observed else 0,
                records=records.pop(0) if records else None,
                exit=observed.exit if observed else None,
            )
        )
    return lines


def shares(view: View, rules: Rules) -> list[ShareLine]:
    """Describe the share of every tenant, who set it, and how many slots the tenant has."""
    rules = with_view(rules, view)
    lines = []
    for tenant in sorted({*rules.shares, *view.tiers}):
        holds, share = target(tenant, rules), limits(tenant, rules)
        held = sum(
            1
            for _, unit, _ in _units(view)
            if unit.tenant == tenant and unit.kind is UnitKind.SLOT and _counts(view, unit)
        )
        where = (
            holds.to
            if holds.extra_to is None
            else f"{holds.to or 'anywhere'}, {holds.extra} more at {holds.extra_to}"
        )
        lines.append(
            ShareLine(
                tenant=tenant,
                minimum=share.minimum,
                target=share.target,
                maximum=share.maximum,
                slots=holds.slots,
                amount=holds.amount,
                extra=holds.extra,
                spare=holds.spare,
                where=where,
                layer=holds.layer.name.lower(),
                by=_by(holds),
                since=holds.since,
                until=holds.until,
                held=held,
                light=tenant in rules.light,
            )
        )
    return lines


def pipeline_share(view: View, rules: Rules, shares: Sequence[ShareLine]) -> PipelineShareLine | None:
    """Describe the share of the whole pipeline; None if the site file sets none."""
    rules = with_view(rules, view)
    share = rules.pipeline_share
    if share is None:
        return None
    divided = {name: sum(held) for name, held in divided_share(rules).items()}
    parts = (Fraction(count, max(1, rules.capacity_totals[name])) for name, count in divided.items())
    left = left_of_share(divided, rules)
    return PipelineShareLine(
        minimum=share.minimum,
        maximum=share.maximum,
        slots=sum(divided.values()),
        held=sum(line.held for line in shares if line.tenant in divided),
        part=round(float(sum(parts) * 100), 1),
        reduced=tuple(name for name in divided if target(name, rules).bound == OF_PIPELINE),
        over=left is not None and left < 0,
    )


def pipeline_share_text(line: PipelineShareLine) -> str:
    """Return one line about the share of the whole pipeline."""
    reduced = f"; the maximum lowers {listed(line.reduced)}" if line.reduced else ""
    return (
        f"Pipeline: has {line.held} of the {counted(line.slots, 'slot')} of its share, {line.part:g} % of "
        f"the cluster, within {line.minimum} and {line.maximum}{reduced}"
    )


def pipeline_share_notes(line: PipelineShareLine | None) -> list[str]:
    """Return a line if the minimums of the tiers are above the pipeline's maximum."""
    if line is None or not line.over:
        return []
    sentence = (
        f"The minimums of the tiers are above the pipeline's maximum of {line.maximum}; each tier keeps its "
        "minimum. Lower a minimum in shares, raise pipeline_share.maximum in the site file, or add a host"
    )
    return [sentence]


def _by(holds: Target) -> str:
    """Return who set the number, with the layer of a tool and a bound that limits it."""
    beside = [holds.layer.name.lower()] if holds.layer in {Layer.AUTOSCALER, Layer.MAINTENANCE} else []
    if holds.bound is not None:
        beside.append(OF_PIPELINE if holds.bound == OF_PIPELINE else f"its {holds.bound}")
    return f"{holds.owner} ({', '.join(beside)})" if beside else holds.owner


def slots_text(share: ShareLine) -> str:
    """Return the slots that apply now, and the per cent that was set, if any."""
    if share.light:
        return IN_DRIVER
    return str(share.slots) if isinstance(share.amount, int) else f"{share.slots} ({share.amount})"


def _counts(view: View, unit: Unit) -> bool:
    """Tell whether a slot counts for its tenant: only the owner's slots do."""
    tier = view.tiers.get(TierName(unit.tenant))
    return tier is None or tier.owner.owner == unit.incarnation


def _units(view: View) -> Iterator[tuple[HostView, Unit, UnitObserved | None]]:
    for host in view.hosts.values():
        observed = {unit.id: unit for unit in host.observed.units} if host.observed else {}
        for unit in host.assignment.units:
            yield host, unit, observed.get(unit.id)


def _entry_first(view: View) -> list[TierView]:
    return sorted(view.tiers.values(), key=lambda tier: (-tier.spec.distance, tier.spec.name))


def _scaler(view: View, tier: TierName) -> ScalerLine | None:
    decision = view.scaler.decisions.get(tier)
    if decision is None:
        return None
    return ScalerLine.model_validate(decision.model_dump() | {"tier": tier}, extra="ignore")


def _host(host: HostView) -> HostLine:
    facts = host.facts or _NOT_READ
    units = host.assignment.units
    return HostLine(
        name=host.name,
        zone=facts.zone,
        state=host.record.seen(live=host.live),
        slots=tuple(unit.id for unit in units if unit.kind is UnitKind.SLOT),
        drivers=tuple(unit.id for unit in units if unit.kind is UnitKind.DRIVER),
        address=facts.address,
        rack=facts.rack,
        labels=facts.labels,
        cpu=facts.cpu,
        memory=facts.memory,
        limits=host.observed.limits if host.observed else None,
        by=host.record.by,
        since=host.record.since or None,
        quarantine=host.record.quarantine(host.name),
        ending=host.observed.ending(host.name) if host.live and host.observed else None,
        busy_since=host.observed.busy_since if host.live and host.observed else None,
        busy_part=host.observed.busy_part if host.live and host.observed else None,
        reboot_needed=host.observed is not None and host.observed.reboot_needed,
    )


def _tier(view: View, tier: TierView, figures: Figures) -> TierLine:
    name, owner = tier.spec.name, tier.owner
    owner_units = [
        owner_unit
        for owner_unit in _units(view)
        if owner_unit[1].tenant == Tenant(name) and owner_unit[1].incarnation == owner.owner
    ]
    report = tier.reports.get(owner.owner) if owner.owner is not None else None
    runs = tier.incarnations.get(owner.owner) if owner.owner is not None else None
    status = view.status.tiers.get(name) if view.status else None
    driver = next(
        ((host, unit, observed) for host, unit, observed in owner_units if unit.kind is UnitKind.DRIVER), None
    )
    progress = None if driver is None else figures.tiers.get(name)  # without a driver, figures are old
    return TierLine(
        name=name,
        kind=tier.spec.kind,
        mode=tier.spec.mode,
        state=status.state if status else (report.state if report else "stopped"),
        incarnation=owner.owner,
        release=None if runs is None else runs.release,
        published=tier.spec.release,
        partitions=runs.partitions if runs is not None and tier.spec.state else None,
        driver=DriverLine()
        if driver is None
        else DriverLine(
            host=driver[0].name,
            state=report.state if report else None,
            pid=driver[2].pid if driver[2] else None,
        ),
        workers=tuple(
            WorkerLine(slot=unit.id, host=host.name, state=_slot_state(view, host, unit, observed))
            for host, unit, observed in owner_units
            if unit.kind is UnitKind.SLOT
        ),
        next=owner.next,
        standby=owner.standby,
        phase=owner.phase,
        sentence=status.sentence if status else "no controller has reported on this tier yet",
        error=(status.error if status else None) or (report.error if report else None),
        rate_in=progress.rate_in if progress else None,
        rate_out=progress.rate_out if progress else None,
        lag=progress.lag if progress else None,
        pressure=_pressure(tier.spec, status, time.time()) if status else None,
        drift=status.drift if status else None,
        starved=status.starved.sentence if status and status.starved else None,
        held_for=owner.held_for,
        admitted=None if owner.held_for is None else owner.admitted,
        metered=report.metered if report else False,
        scaler=_scaler(view, name),
        hung=report.hung if report else None,
        unread=report.unread if report else None,
        narrow=report.narrow if report else None,
        latency_ms=progress.latency_ms if progress else None,
        gap_seconds=report.gap_seconds if report else None,
        inputs=tier.spec.inputs,
        outputs=tier.spec.outputs,
        latency_p99_ms=progress.details.get("latency_p99_ms") if progress else None,
        quarantined=progress.details.get("quarantined") if progress else None,
        light=tier.spec.light if runs is None or runs.retired else not runs.placement.slots,
        **_by_stream(progress),
    )


def _by_stream(progress: TierProgress | None) -> dict[str, dict[str, Any]]:
    """Return what the newest drivers tell by name: counters, lags and rates."""
    names = ("own_counters", "input_lags", "input_rates", "output_rates")
    return {name: progress.details.get(name, {}) if progress else {} for name in names}


def _pressure(spec: TierSpec, status: TierStatus, now: float) -> str | None:
    """Return how far a tier lags, and the effect; continues the tier's name. None: it does not
    lag.
    """
    if status.pressure is None:
        return None
    parts, expiry = [status.pressure.sentence], status.expiry(now)
    if not spec.holds:
        parts.append("it may lag (holds=False), so it throttles no entry")
    if expiry is not None and (expiry.near or not spec.holds):
        parts.append(expiry.sentence)
    return "; ".join(parts)


def _slot_state(view: View, host: HostView, unit: Unit, observed: UnitObserved | None) -> str:
    if not host.live:
        return "lost"
    if observed is None:
        return "starting"
    if observed.state is not UnitState.RUNNING:
        return _WORKER_STATES[observed.state]
    if unit.tenant == BATCH:
        return "active"
    tier = view.tiers.get(TierName(unit.tenant))
    report = tier.reports.get(unit.incarnation) if tier else None
    return "starting" if report is None else _worker_state(report, unit.id)


def _worker_state(report: IncarnationReport, worker: UnitId) -> str:
    """Return the state of a worker whose slot runs."""
    if report.state in {State.PAUSED, State.READY} or worker in report.paused_workers:
        return "paused"
    if report.state is not State.RUNNING:
        return "starting"
    return "spare" if worker in (report.spare_workers or ()) else "active"
