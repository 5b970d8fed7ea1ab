"""A controller's metrics for Prometheus: its passes, and the site's state.

The page "Metrics" of the documentation explains them.
"""

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from sluice_ops.controller.decide import Decision
from sluice_ops.model import paths
from sluice_ops.model.assignment import UnitState
from sluice_ops.model.batch import BatchGrants, Reclaims
from sluice_ops.model.change import ChangeState, Result
from sluice_ops.snapshot.view import TierView, View

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the histogram, from a small site's pass to a pass that is far too slow. Unit: seconds.
"""

RECLAIM_BOUNDS = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0)
"""Bounds of the histogram, from an idle slot to long tasks. Unit: seconds."""


@dataclass(frozen=True)
class Pass:
    """What the last pass read and decided."""

    view: View
    decision: Decision
    epoch: int
    at: float


class ControllerMetrics:
    """Collects metrics from each pass.

    A standby exports counters only, so nothing is exported twice.
    """

    def __init__(self) -> None:
        """Begin as a standby, without a pass."""
        text = "Duration of each phase of a pass: look (reading), decide (planning), write."
        self._phases = Histogram(
            "sluice_controller_pass_seconds", text, ["phase"], registry=None, buckets=BOUNDS
        )
        self._last: Pass | None = None
        text = "Time from the demand for a slot of batch until its room was free."
        self._reclaims = Histogram(
            "sluice_batch_reclaim_seconds", text, registry=None, buckets=RECLAIM_BOUNDS
        )
        self._late_reclaims = 0
        self._operations: Counter[tuple[str, str]] = Counter()
        self._conflicts = 0

    # -- called by the controller

    def phase(self, name: str) -> AbstractContextManager[object]:
        """Measure one phase of a pass."""
        return self._phases.labels(name).time()

    def passed(self, view: View, decision: Decision, epoch: int) -> None:
        """Record a pass after its writes were accepted."""
        self._last = Pass(view, decision, epoch, time.time())
        written = {write.path: write.value for write in decision.writes}
        for identity, seen in view.operations.items():
            result = written.get(paths.result(identity))
            if isinstance(result, Result):
                self._operations[seen.operation.step, "done" if result.ok else "failed"] += 1

        reclaims = written.get(paths.BATCH_RECLAIMS)
        for reclaim in reclaims.ended if isinstance(reclaims, Reclaims) else ():
            if reclaim.seconds is not None and reclaim not in view.batch_reclaims.ended:
                self._reclaims.observe(reclaim.seconds)
                self._late_reclaims += reclaim.late

    def conflict(self) -> None:
        """Count a pass that is repeated because a node changed during it."""
        self._conflicts += 1

    def stands_by(self) -> None:
        """Drop what only a leader exports."""
        self._last = None

    # -- called by Prometheus

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        last = self._last
        yield GaugeMetricFamily(
            "sluice_controller_leader", "1 if this controller leads.", value=last is not None
        )
        yield CounterMetricFamily(
            "sluice_controller_conflicts",
            "Passes that were repeated because a node changed.",
            value=self._conflicts,
        )
        yield from self._phases.collect()
        yield from self._reclaims.collect()
        yield CounterMetricFamily(
            "sluice_batch_reclaims_late",
            "Slots of batch that came back later than reclaim_seconds.",
            value=self._late_reclaims,
        )
        ended = CounterMetricFamily(
            "sluice_operations",
            "Operations that got their result from this controller.",
            labels=["step", "outcome"],
        )
        for (step, outcome), count in list(
            self._operations.items()
        ):  # a copy: passes add entries in another thread
            ended.add_metric([step, outcome], count)
        yield ended
        if last is not None:
            yield GaugeMetricFamily(
                "sluice_controller_epoch", "The epoch under which this leader writes.", value=last.epoch
            )
            yield GaugeMetricFamily(
                "sluice_controller_last_pass_timestamp_seconds",
                "End of the last pass.",
                value=last.at,
            )
            braked = "Lost hosts from which nothing is moved, because many hosts were lost at once."
            yield GaugeMetricFamily("sluice_braked_hosts", braked, value=len(last.decision.braked))
            yield from _work(last.view)
            yield from _tiers(last)
            yield from _scaler(last.view)
            yield from _batch(last.view)
            yield from _hosts(last.view)
            yield from _sources(last.view)


def _work(view: View) -> Iterable[Metric]:
    posted = GaugeMetricFamily(
        "sluice_operations_open", "Posted operations without a result.", labels=["step"]
    )
    for step, count in Counter(seen.operation.step for seen in view.operations.values()).items():
        posted.add_metric([step], count)
    active = GaugeMetricFamily("sluice_changes_active", "Active changes.", labels=["kind"])
    for kind, count in Counter(
        change.spec.kind for change in view.changes.values() if change.state is ChangeState.ACTIVE
    ).items():
        active.add_metric([kind], count)
    return posted, active


def _tiers(last: Pass) -> Iterable[Metric]:
    state = GaugeMetricFamily(
        "sluice_tier_state", "1 for the present state of the tier.", labels=["tier", "state"]
    )
    failures = GaugeMetricFamily(
        "sluice_tier_failures", "Failures in a row of the tier's drivers.", labels=["tier"]
    )
    owner = GaugeMetricFamily(
        "sluice_tier_incarnation", "The incarnation that owns the tier.", labels=["tier"]
    )
    behind = GaugeMetricFamily(
        "sluice_tier_behind", "1 while the tier exceeds a lag limit of the stream.", labels=["tier", "stream"]
    )
    text = "1 for a tier that may lag: its lag throttles no entry."
    may_lag = GaugeMetricFamily("sluice_tier_may_lag", text, labels=["tier"])
    text = "Part of the retention that the oldest record has waited for a tier that exceeds a lag limit."
    retention_used = GaugeMetricFamily("sluice_tier_retention_used_ratio", text, labels=["tier", "stream"])
    held = GaugeMetricFamily(
        "sluice_tier_held",
        "1 while the tier is throttled because the culprit lags.",
        labels=["tier", "culprit"],
    )
    text = "Workers of the tier by state: active workers get tasks, spare workers wait for work."
    workers = GaugeMetricFamily("sluice_tier_workers", text, labels=["tier", "state"])
    text = "1 while the tier gets too little processor time on the host."
    starved = GaugeMetricFamily("sluice_tier_starved", text, labels=["tier", "host"])
    for name, tier in last.view.tiers.items():
        status = last.decision.tiers.get(name)
        if status is None:
            continue
        state.add_metric([name, status.state], 1)
        failures.add_metric([name], status.failures)
        number = tier.owner.owner
        if number is not None:
            owner.add_metric([name], number)
            for worker_state, count in _workers(tier).items():
                workers.add_metric([name, worker_state], count)
        if status.pressure is not None:
            behind.add_metric([name, status.pressure.stream], 1)
        if not tier.spec.holds:
            may_lag.add_metric([name], 1)
        expiry = status.expiry(last.at)
        if expiry is not None:
            retention_used.add_metric([name, expiry.stream], expiry.used)
        for host in status.starved.hosts if status.starved is not None else ():
            starved.add_metric([name, host], 1)
        culprit = tier.owner.held_for
        if culprit is not None:
            held.add_metric([name, culprit], 1)
    return state, failures, owner, workers, behind, may_lag, retention_used, held, starved


def _workers(tier: TierView) -> dict[str, int]:
    """Return how many workers of a tier's owner are active, and how many are spare."""
    number = tier.owner.owner
    runs = None if number is None else tier.incarnations.get(number)
    if number is None or runs is None or runs.retired:
        return {}
    report = tier.reports.get(number)
    spare = 0 if report is None or report.spare_workers is None else len(report.spare_workers)
    return {"active": len(runs.placement.slots) - spare, "spare": spare}


def _scaler(view: View) -> Iterable[Metric]:
    mode = GaugeMetricFamily(
        "sluice_scaler_mode", "1 for the scaler's mode of the tier.", labels=["tier", "mode"]
    )
    slots = GaugeMetricFamily(
        "sluice_scaler_slots", "Slots of the tier at the scaler's last decision.", labels=["tier"]
    )
    text = "Slots that the scaler's last decision gives the tier, without those of bursts."
    wanted = GaugeMetricFamily("sluice_scaler_wanted_slots", text, labels=["tier"])
    for name in view.tiers:
        decision = view.scaler.decisions.get(name)
        if decision is not None:
            mode.add_metric([name, decision.mode], 1)
            slots.add_metric([name], decision.slots)
            wanted.add_metric([name], decision.wanted)
    return mode, slots, wanted


def _batch(view: View) -> Iterable[Metric]:
    state = GaugeMetricFamily("sluice_batch_jobs", "Batch jobs by state.", labels=["tenant", "state"])
    slots = GaugeMetricFamily("sluice_batch_slots", "Slots of the tenant's batch jobs.", labels=["tenant"])
    divided = view.batch_grants or BatchGrants()
    states: Counter[tuple[str, str]] = Counter()
    held: Counter[str] = Counter()
    for job, request in view.batch_requests.items():
        states[request.tenant, divided.state(job)] += 1
        held[request.tenant] += divided.slots(job)
    for (tenant, name), count in states.items():
        state.add_metric([tenant, name], count)
    for tenant, count in held.items():
        slots.add_metric([tenant], count)
    return state, slots


def _hosts(view: View) -> Iterable[Metric]:
    state = GaugeMetricFamily(
        "sluice_host_state", "1 for the present state of the host.", labels=["host", "state"]
    )
    text = "1 while the host is in quarantine: units die or starve on it."
    quarantined = GaugeMetricFamily("sluice_host_quarantined", text, labels=["host"])
    wanted: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for name, host in view.hosts.items():
        state.add_metric([name, host.record.seen(live=host.live)], 1)
        if host.record.reason:
            quarantined.add_metric([name], 1)
        alive = (
            {unit.id for unit in host.observed.units if unit.state is UnitState.RUNNING}
            if host.live and host.observed
            else set()
        )
        wanted.update(unit.kind for unit in host.assignment.units)
        running.update(unit.kind for unit in host.assignment.units if unit.id in alive)
    units = GaugeMetricFamily("sluice_units_wanted", "Units assigned to hosts.", labels=["kind"])
    seen = GaugeMetricFamily(
        "sluice_units_running", "Assigned units that an agent reports as running.", labels=["kind"]
    )
    for kind, count in wanted.items():
        units.add_metric([kind], count)
        seen.add_metric([kind], running[kind])
    return state, quarantined, units, seen


def _sources(view: View) -> Iterable[Metric]:
    labels = ["source", "stream", "host"]
    up = GaugeMetricFamily("sluice_source_up", "1 while the source's process is there.", labels=labels)
    text = "1 while records wait for the source, and Kafka takes none of them."
    stands_still = GaugeMetricFamily("sluice_source_stands_still", text, labels=labels)
    for source in view.sources.values():
        record = source.record
        place = [record.name, record.stream, record.host]
        up.add_metric(place, source.live)
        stands_still.add_metric(place, source.live and record.trouble is not None)
    return up, stands_still
