"""The stamps of a snapshot from which time is counted. Pure; called at each look, by the leader and by those who stand by."""

from collections.abc import Iterator

from ops.controller.view import HostView, TierView, View
from ops.model.assignment import driver_id
from ops.model.incarnation import State


def stamps(view: View) -> Iterator[float]:
    """Yield them, some of them repeatedly."""
    for tier in view.tiers.values():
        yield from _tier(tier, view)
    for host in view.hosts.values():
        yield from _host(host)
    for seen in view.operations.values():
        yield seen.operation.posted_at
    for change in view.changes.values():
        yield change.started_at
        yield change.stepped_at
    for status in () if view.status is None else view.status.tiers.values():
        yield from (at for at in (status.down_since, status.drifted_since) if at is not None)


def _tier(tier: TierView, view: View) -> Iterator[float]:
    yield tier.wanted.at
    for number, spec in tier.incarnations.items():
        yield spec.created_at
        report = tier.reports.get(number)
        if report is not None:
            yield report.since
            yield from (at for state, at in report.history if state is State.RUNNING)
        host = view.hosts.get(spec.placement.driver)
        if not spec.retired and host is not None and host.observed is not None:
            name = driver_id(tier.spec.name, number)
            yield from (unit.since for unit in host.observed.units if unit.id == name)


def _host(host: HostView) -> Iterator[float]:
    yield host.record.since
    if host.record.until is not None:
        yield host.record.until
    yield from (death.at for death in host.record.deaths)
    if host.observed is not None:
        yield from (unit.since for unit in host.observed.hurt)
        yield from host.observed.starved.values()
