"""Metrics collectors of each kind of process, with a value in every metric, and a parser of their
scrapes.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sluice.audit.audit_metrics import AuditMetrics
from sluice.driver.counters import Commits, Flow
from sluice.driver.process.driver_metrics import DriverMetrics
from sluice.ingest import files as ingest_files
from sluice.ingest import http as ingest_http
from sluice.ingest.followed_files import FollowedFiles
from sluice.ingest.request_writer import RequestWriter
from sluice.ingest.source_metrics import SourceMetrics, Written
from sluice_ops.agent.agent_metrics import AgentMetrics
from sluice_ops.agent.limits.control_groups import Usage
from sluice_ops.agent.units.reconcile import FoundUnit
from sluice_ops.channel import Write
from sluice_ops.controller.controller_metrics import ControllerMetrics
from sluice_ops.controller.decide import Decision
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostRecord, Observed, UnitKind, UnitObserved, UnitState
from sluice_ops.model.backpressure import Expiry, Pressure
from sluice_ops.model.batch import BatchGrants, BatchRequest, Grant, Reclaim, Reclaims
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Operation, Plan, Result, Step
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, OperationId, TierName
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Placement,
    State,
    TierWanted,
)
from sluice_ops.model.scaler import Decision as ScalerDecision
from sluice_ops.model.scaler import Mode as ScalerMode
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.source import SourceKind, SourceRecord, Trouble
from sluice_ops.model.status import Starved, TierState, TierStatus
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.process.metrics_server import registry
from sluice_ops.snapshot.view import HostView, OperationView, SourceView, TierView, View
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

DRAIN = ChangeSpec(kind="drain", host=HostName("h2"))
ENTRY, H1, H2 = TierName("entry"), HostName("h1"), HostName("h2")


def driver_metrics(state: State = State.RUNNING, flow: Flow | None = None) -> DriverMetrics:
    if flow is None:
        flow = Flow(
            {"raw": 10},
            {"hits": 8},
            2,
            Commits(1, 1, 1, 4, 1),
            {"raw": 3},
            {"raw": 2.5},
            state={"dedupe": (7, 900)},
            looked=1001.0,
            last_out=1000.0,
            restarts=1,
        )
        flow.waits = flow.waits.plus([0.004, 0.2])
        flow.phases.labels("write").observe(0.02)
    report = IncarnationReport(state=state, since=1.0, pid=1, gap_seconds=0.04)
    return DriverMetrics(cast("Any", SimpleNamespace(report=report, owns=True)), flow)


def agent_metrics(*units_found: FoundUnit) -> AgentMetrics:
    units = units_found or (
        FoundUnit(slot(), alive=True, others=1, started_at=1.0, restarts=2),
        FoundUnit(driver(), alive=True, others=1, started_at=1.0),
    )
    containers = SimpleNamespace(usage=lambda unit: Usage(800, 1000, 2.5) if unit == slot().id else None)
    return AgentMetrics(
        cast("Any", SimpleNamespace(units=units, troubles={})),
        cast("Any", containers),
        cast("Any", SimpleNamespace(refusals=1)),
        cast("Any", SimpleNamespace(waited={slot().id: 1.5}, starved={slot().id: 1.0})),
        cast("Any", SimpleNamespace(used_bytes={slot().id: 4096})),
        cast("Any", SimpleNamespace(ended={UnitKind.SLOT: 0, UnitKind.DRIVER: 1})),
    )


def view() -> View:
    """Return a view of one tier and two hosts, of which one is lost.

    A drain has done its cut and waits for `verify`.
    """
    posted = {
        OperationId(f"o-{step}"): OperationView(
            Operation(
                id=OperationId(f"o-{step}"),
                change=ChangeId("c"),
                step=step,
                spec=DRAIN,
                by="x",
                posted_at=1.0,
            ),
            0,
            None,
            None,
        )
        for step in (Step.CUT, Step.VERIFY)
    }
    observed = Observed(
        units=(UnitObserved(id=slot().id, state=UnitState.RUNNING, since=1.0),),
        agent_started=1.0,
        limits="none",
    )
    assignment = Assignment(units=(slot(), driver()))
    spec = TierSpec(
        name=ENTRY,
        kind=Kind.ENTRY,
        mode=Mode.REALTIME,
        delivery=Delivery.AT_LEAST_ONCE,
        inputs=("raw",),
        holds=False,
    )
    change = ChangeRecord(
        id=ChangeId("c"), spec=DRAIN, plan=Plan(), state=ChangeState.ACTIVE, by="x", started_at=1.0
    )
    job = BatchRequest(tenant="reports", by="dag", at=1.0, renewed_at=1.0)
    runs = IncarnationSpec(
        tier=ENTRY,
        incarnation=Incarnation(7),
        placement=Placement(driver=H1, slots=(H1,)),
        reason="cold start",
        created_at=1.0,
    )
    source = SourceRecord(
        name="web",
        stream="raw",
        kind=SourceKind.HTTP,
        where="http://127.0.0.1:8080",
        host=H1,
        pid=1,
        identity="a",
        since=1.0,
        trouble=Trouble(since=1.0, sentence="Kafka does not answer"),
    )
    decision = ScalerDecision(mode=ScalerMode.ADVISE, slots=2, wanted=4, reason="it lags", since=1.0)
    return View(
        tiers={
            ENTRY: TierView(
                spec,
                OwnerRecord(owner=Incarnation(7), held_for=TierName("counts")),
                TierWanted(),
                {Incarnation(7): runs},
                {},
            )
        },
        hosts={
            H1: HostView(H1, None, live=True, record=HostRecord(), assignment=assignment, observed=observed),
            H2: HostView(
                H2,
                None,
                live=False,
                record=HostRecord(reason="it fails"),
                assignment=assignment,
                observed=observed,
            ),
        },
        sources={"web@raw": SourceView(source, live=True, taken=None)},
        operations=posted,
        changes={ChangeId("c"): change},
        batch_requests={"a": job, "b": job},
        batch_grants=BatchGrants(grants={"a": Grant(slots=2, started_with=2, at=1.0)}),
        scaler=ScalerRecord(decisions={ENTRY: decision, TierName("dropped"): decision}),
    )


def controller_metrics() -> ControllerMetrics:
    metrics, cut = ControllerMetrics(), Result(ok=True, sentence="cut", finished_at=2.0)
    pressure = Pressure(stream="raw", lag=None, since=1.0, expiry=Expiry(stream="raw", kept=100.0, left=40.0))
    starved = Starved(hosts=(H1,), sentence="is starved")
    tiers = {
        ENTRY: TierStatus(
            state=TierState.FAILED, sentence="given up", failures=5, pressure=pressure, starved=starved
        )
    }
    for phase in ("look", "decide", "write"):
        with metrics.phase(phase):
            pass
    reclaims = Reclaims(
        ended=tuple(
            Reclaim(slot=slot().id, host=H1, at=1.0, by="entry", limit=60, seconds=seconds)
            for seconds in (4.0, 61.0)
        )
    )
    writes = (Write(paths.result("o-cut"), cut, None), Write(paths.BATCH_RECLAIMS, reclaims, None))
    metrics.passed(view(), Decision(writes, "cut", tiers, under_way=False), epoch=3)
    return metrics


def audit_metrics() -> AuditMetrics:
    return AuditMetrics({"entry": True, "enrich": False}, {"entry": 1000.0}, {"entry": 1005.0})


def source_metrics() -> SourceMetrics:
    files = cast("FollowedFiles", SimpleNamespace(open_files=2, unread_bytes=10))
    writer = cast("RequestWriter", SimpleNamespace(waiting_bytes=20))
    gauges = (*ingest_files.gauges(files), *ingest_http.gauges(writer))
    return SourceMetrics("web", Written(), gauges, Counter({200: 7}))


def scraped(collector: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return each sample of Sluice's own metrics, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(collector)
        for sample in family.samples
    }


def families(collector: Any) -> list[Any]:
    text = generate_latest(registry(cast("Any", SimpleNamespace(connected=True)), collector)).decode()
    return [family for family in text_string_to_metric_families(text) if family.name.startswith("sluice_")]
