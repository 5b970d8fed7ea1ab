"""Quarantine of hosts: a host on which units die repeatedly is cordoned for an hour.

Afterwards, the host is used again. Deaths are noted in the host's record, so that the next leader
knows them. `sluice_ops.planning.failing_hosts` decides which hosts fail (decision 24).
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.assignment import Death, HostRecord, HostState, UnitKind, UnitState
from sluice_ops.model.ids import BATCH, HostName, Tenant, TierName
from sluice_ops.planning.failing_hosts import WINDOW_SECONDS, Evidence, allowed, failing, room_without
from sluice_ops.snapshot.view import HostView

QUARANTINE = "quarantine"
"""`HostRecord.by` of a host in quarantine, and of a host whose quarantine is over."""
QUARANTINE_SECONDS = 3600.0
"""Long enough for a person to look. A temporary fault does not cost the host for ever."""
MOST_DEATHS = 50
"""How many deaths the record of a host keeps."""
ON_PURPOSE = "exit code 0"
"""The exit of a driver that was asked to stop."""


@dataclass(frozen=True)
class QuarantineRuling:
    """New records of hosts."""

    records: Mapping[HostName, HostRecord]
    events: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    """Sentences on failing hosts that have to stay in use."""

    def apply(self, draft: Draft) -> None:
        """Write the records."""
        draft.write_records(self.records)
        draft.log(*self.events)


def ended_and_deaths(draft: Draft) -> QuarantineRuling:
    """End the quarantines whose time is over, and note the new deaths on hosts that are up."""
    records: dict[HostName, HostRecord] = {}
    events: list[str] = []
    for name, host in draft.view.hosts.items():
        if host.record.until is not None and _is_over(draft, draft.records[name]):
            records[name] = HostRecord(by=QUARANTINE, since=draft.now)
            events.append(f"the quarantine of {name} is over; the host is used again")
        if host.live and host.observed is not None and host.observed.hurt:
            record = records.get(name, draft.records[name])
            if record.state is HostState.UP and (noted := _with_deaths(draft, host, record)) is not None:
                records[name] = noted
    return QuarantineRuling(records, tuple(events))


def failing_hosts(draft: Draft) -> QuarantineRuling:
    """Decide which hosts are put in quarantine. Used after `ended_and_deaths`."""
    evidence = {name: _evidence(draft, name) for name in draft.usable_hosts() if draft.records[name].deaths}
    if not evidence or draft.braked:
        return QuarantineRuling({})
    reasons: dict[HostName, str] = {}
    suspects: list[str] = []
    for name, reason in failing(evidence, partial(_hosts_of, draft), draft.age).items():
        why_not = why_needed(draft, {*reasons, name})
        if why_not is None:
            reasons[name] = reason
        else:
            suspects.append(f"{name} is failing ({reason}) but stays in use: {why_not}")
    return quarantined(draft, reasons, tuple(suspects))


def quarantined(
    draft: Draft, reasons: Mapping[HostName, str], suspects: tuple[str, ...] = ()
) -> QuarantineRuling:
    """Return the ruling that puts hosts in quarantine, each for its reason."""
    until = draft.now + QUARANTINE_SECONDS
    records = {
        name: HostRecord(state=HostState.CORDONED, by=QUARANTINE, since=draft.now, reason=reason, until=until)
        for name, reason in reasons.items()
    }
    events = tuple(
        f"{record.quarantine(name)}; units that die there are started elsewhere; to move the rest: "
        f"sluice drain {name}"
        for name, record in records.items()
    )
    return QuarantineRuling(records, events, suspects)


def why_needed(draft: Draft, names: AbstractSet[HostName]) -> str | None:
    """Say why these hosts cannot all be put in quarantine; None if they can."""
    most = allowed(len(draft.view.hosts))
    if sum(bool(record.reason) for record in draft.records.values()) + len(names) > most:
        return f"at most {most} of {len(draft.view.hosts)} hosts may be in quarantine at once"
    return room_without(names, cluster_of_draft(draft))


def _is_over(draft: Draft, record: HostRecord) -> bool:
    # `until` is shown to people. The age of its value tells how long the quarantine has lasted.
    return (
        record.until is not None
        and draft.age(record.until) >= QUARANTINE_SECONDS
        and record.state is HostState.CORDONED
    )


def _with_deaths(draft: Draft, host: HostView, record: HostRecord) -> HostRecord | None:
    """Return the record with the new deaths; None if there are none."""
    known = {(death.unit, death.count) for death in record.deaths}
    new = [death for death in _deaths(draft, host, record) if (death.unit, death.count) not in known]
    if not new:
        return None
    recent = [death for death in record.deaths if draft.age(death.at) <= WINDOW_SECONDS]
    return record.model_copy(update={"deaths": tuple([*recent, *new][-MOST_DEATHS:])})


def _deaths(draft: Draft, host: HostView, record: HostRecord) -> Iterable[Death]:
    """Yield the last death of every assigned unit, if it is recent."""
    tenants = {unit.id: unit.tenant for unit in host.assignment.units}
    for unit in host.observed.hurt if host.observed is not None else ():
        if unit.id not in tenants or (
            unit.id.startswith(UnitKind.DRIVER) and (unit.exit or "").startswith(ON_PURPOSE)
        ):
            continue
        down = unit.state in {UnitState.STARTING, UnitState.EXITED} and unit.exit is not None
        recent = (
            unit.state is UnitState.RUNNING
            and unit.restarts
            and draft.age(unit.since) < min(draft.age(record.since), WINDOW_SECONDS)
        )
        if down or recent:
            yield Death(unit=unit.id, tenant=tenants[unit.id], count=unit.restarts + down, at=draft.now)


def _evidence(draft: Draft, name: HostName) -> Evidence:
    observed = draft.view.hosts[name].observed
    units = () if observed is None else observed.hurt
    return Evidence(
        draft.records[name].deaths,
        frozenset(unit.id for unit in units if unit.state is not UnitState.RUNNING),
    )


def _hosts_of(draft: Draft, tenant: Tenant) -> set[HostName]:
    """Return the hosts on which a tenant has units."""
    if tenant == BATCH:
        return {name for name, host in draft.view.hosts.items() if host.assignment.batch}
    tier = TierName(tenant)
    specs = draft.unretired(tier) if tier in draft.incarnations else ()
    return {host for spec in specs for host in spec.placement.hosts}
