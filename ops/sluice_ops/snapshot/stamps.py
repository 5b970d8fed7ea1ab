"""The timestamps of a snapshot whose age a decision needs.

Every controller tracks them in each snapshot. So a standby that becomes the leader knows their ages
already. Pure.
"""

from collections.abc import Iterator

from sluice_ops.model.assignment import driver_id
from sluice_ops.model.incarnation import State
from sluice_ops.snapshot.view import TierView, View


def stamps(view: View) -> Iterator[float]:
    """Yield the timestamps as epoch seconds; some come repeatedly."""
    for tier in view.tiers.values():
        yield from _tier(tier, view)
    for host in view.hosts.values():
        record, observed = host.record, host.observed
        yield record.since
        if record.until is not None:
            yield record.until
        for death in record.deaths:
            yield death.at
        if observed is not None and (observed.hurt or observed.starved):
            yield from (unit.since for unit in observed.hurt)
            yield from observed.starved.values()
    for seen in view.operations.values():
        yield seen.operation.posted_at
    yield from _batch(view)
    for change in view.changes.values():
        yield change.started_at
        yield change.stepped_at
    for status in () if view.status is None else view.status.tiers.values():
        yield from (at for at in (status.down_since, status.drifted_since) if at is not None)


def _batch(view: View) -> Iterator[float]:
    for request in view.batch_requests.values():
        yield request.at
        yield request.renewed_at
    for reclaim in view.batch_reclaims.going:
        yield reclaim.at


def _tier(tier: TierView, view: View) -> Iterator[float]:
    yield tier.wanted.at
    for number, spec in tier.incarnations.items():
        yield spec.created_at
        yield from (timed.at for timed in (spec.start, spec.stop) if timed is not None)
        report = tier.reports.get(number)
        if report is not None:
            yield report.since
            yield from (at for state, at in report.history if state is State.RUNNING)
            yield from (receipt.at for receipt in report.workers.values())
        host = view.hosts.get(spec.placement.driver)
        if not spec.retired and host is not None and host.observed is not None:
            name = driver_id(tier.spec.name, number)
            yield from (unit.since for unit in host.observed.units if unit.id == name)
