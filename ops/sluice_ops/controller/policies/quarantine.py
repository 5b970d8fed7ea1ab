"""Hosts that fail repeatedly are cordoned, and tried again when their time is over. Called at the begin of every pass.

What has died is noted in the host's record, so that whoever leads next knows it. The policy is `sluice_ops.planning.failing_hosts`.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import partial

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.capacity import cluster
from sluice_ops.model.assignment import Death, HostRecord, HostState, UnitKind, UnitState
from sluice_ops.model.change import CONTROLLER
from sluice_ops.model.ids import BATCH, HostName, Tenant, TierName
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.planning.failing_hosts import WINDOW_SECONDS, Evidence, allowed, failing, room_without
from sluice_ops.snapshot.view import HostView

QUARANTINE = "quarantine"
"""Who has set the state of such a host."""
QUARANTINE_SECONDS = 3600.0
"""After that a host is used again: long enough for a person to look, and a fault that has passed does not cost a host for ever."""
MOST_DEATHS = 50
"""How many of a host are remembered."""
ON_PURPOSE = "exit code 0"
"""How a driver ends that was told to."""


def keep(draft: Draft) -> None:
    """Note what has died, quarantine the hosts that fail, and let those go whose time is over."""
    for name, host in draft.view.hosts.items():
        if host.record.until is not None:
            _release(draft, name)
        if (
            host.live
            and host.observed is not None
            and host.observed.hurt
            and draft.records[name].state is HostState.UP
        ):
            _note(draft, host)
    seen = {name: _evidence(draft, name) for name in draft.sound() if draft.records[name].deaths}
    if not seen or draft.braked:
        return
    for name, reason in failing(seen, partial(_hosts_of, draft), draft.age).items():
        why = kept(draft, {name})
        if why is not None:
            draft.suspects.append(f"{name} fails ({reason}) and stays in use: {why}")
            continue
        impose(draft, name, reason)
    draft.room = None  # batch's slots are not counted yet


def impose(draft: Draft, name: HostName, reason: str) -> None:
    """Put a host in quarantine."""
    until = draft.now + QUARANTINE_SECONDS
    record = HostRecord(state=HostState.CORDONED, by=QUARANTINE, since=draft.now, reason=reason, until=until)
    draft.write_record(name, record)
    _enter(draft, name, "quarantine", reason)
    draft.tell(
        f"{record.quarantine(name)}; what dies there goes on elsewhere, `sluice drain {name}` moves the rest"
    )


def kept(draft: Draft, names: AbstractSet[HostName]) -> str | None:
    """Say why hosts that are to be in quarantine have to stay in use."""
    most = allowed(len(draft.view.hosts))
    if sum(bool(record.reason) for record in draft.records.values()) + len(names) > most:
        return f"no more than {most} of {len(draft.view.hosts)} hosts are in quarantine at once"
    return room_without(names, cluster(draft))


def _release(draft: Draft, name: HostName) -> None:
    record = draft.records[name]
    # `until` is for people; its age counts from when it was set
    if (
        record.until is not None
        and draft.age(record.until) >= QUARANTINE_SECONDS
        and record.state is HostState.CORDONED
    ):
        draft.write_record(name, HostRecord(by=QUARANTINE, since=draft.now))
        _enter(draft, name, "return", "its quarantine is over")
        draft.tell(f"the quarantine of {name} is over: it is used again")


def _enter(draft: Draft, name: HostName, what: str, why: str) -> None:
    """Leave an entry for the trail: nobody has asked for it, so no change tells of it."""
    draft.by_itself.append(
        Entry(at=draft.now, by=CONTROLLER, what=f"{what} {name}", outcome=Outcome.DONE, sentence=why)
    )


def _note(draft: Draft, host: HostView) -> None:
    """Add what has died since to the host's record."""
    record = draft.records[host.name]
    known = {(death.unit, death.count) for death in record.deaths}
    new = [death for death in _deaths(draft, host, record) if (death.unit, death.count) not in known]
    if new:
        old = [death for death in record.deaths if draft.age(death.at) <= WINDOW_SECONDS]
        draft.records[host.name] = record.model_copy(update={"deaths": tuple([*old, *new][-MOST_DEATHS:])})


def _deaths(draft: Draft, host: HostView, record: HostRecord) -> Iterable[Death]:
    """Yield the last death of every unit that is assigned, if it is a recent one."""
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
    specs = draft.held(tier) if tier in draft.incarnations else ()
    return {host for spec in specs for host in spec.placement.hosts}
