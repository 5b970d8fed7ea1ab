"""`sluice batch` lists batch tenants and batch jobs, and why a job waits."""

import json

import pytest
from typer.testing import CliRunner

from sluice_ops.main import app
from sluice_ops.model.batch import BatchGrants, BatchRequest, Grant, Reclaim, Reclaims
from sluice_ops.model.ids import HostName, UnitId
from sluice_ops.site.site_file import Site
from sluice_ops.snapshot.view import View

SITE = Site.model_validate(
    {
        "pipeline": "p",
        "hosts": [],
        "shares": {"batch": {"maximum": 4}},
        "batch_tenants": {"reports": {"minimum": 1, "maximum": 2, "priority": 10}, "training": {}},
    }
)


def request(tenant: str, at: float, slots: int | None = None) -> BatchRequest:
    return BatchRequest(tenant=tenant, slots=slots, by=f"airflow:{tenant}/r1", at=at, renewed_at=at)


VIEW = View(
    batch_requests={
        "new": request("training", 5.0),
        "wait": request("training", 2.0),
        "lost": request("reports", 1.0, 2),
        "ends": request("training", 1.0, 1),
    },
    batch_grants=BatchGrants(
        grants={
            "lost": Grant(slots=1, started_with=2, at=3.0, back_by=9.0, reason="batch keeps 1 slot(s)"),
            "ends": Grant(slots=0, started_with=1, at=4.0, back_by=9.0, reason="batch keeps 1 slot(s)"),
        },
        waiting={"wait": "is next: needs 1 slot, and 0 are free"},
    ),
)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", lambda: VIEW)
    monkeypatch.setattr("sluice_ops.operations.snapshot.the_site", lambda: SITE)
    return CliRunner()


def test_jobs_with_slots_come_before_the_queue(runner: CliRunner) -> None:
    jobs = json.loads(runner.invoke(app, ["batch", "--json"]).stdout)["jobs"]
    assert [(job["job"], job["state"], job["slots"], job["reason"]) for job in jobs] == [
        ("lost", "running", 1, "batch keeps 1 slot(s)"),
        ("ends", "ending", 0, "batch keeps 1 slot(s)"),
        ("wait", "queued", 0, "is next: needs 1 slot, and 0 are free"),
        ("new", "queued", 0, "the controller has not seen the job yet"),
    ]
    assert [(job["since"], job["back_by"]) for job in jobs] == [
        (3.0, 9.0),
        (4.0, 9.0),
        (2.0, None),
        (5.0, None),
    ]


def test_each_batch_tenant_has_its_limits_and_what_its_jobs_have(runner: CliRunner) -> None:
    tenants = json.loads(runner.invoke(app, ["batch", "--json"]).stdout)["tenants"]
    assert tenants == [
        {
            "tenant": "reports",
            "minimum": 1,
            "maximum": 2,
            "priority": 10,
            "slots": 1,
            "running": 1,
            "queued": 0,
        },
        {
            "tenant": "training",
            "minimum": 0,
            "maximum": None,
            "priority": 0,
            "slots": 0,
            "running": 1,
            "queued": 2,
        },
    ]


def test_the_table_says_why_a_job_waits(runner: CliRunner) -> None:
    text = runner.invoke(app, ["batch"]).stdout
    assert "is next: needs 1 slot, and 0 are free" in text
    assert "airflow:reports/r1" in text


def test_without_jobs_the_command_says_so(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", View)
    assert "No batch job runs or waits." in runner.invoke(app, ["batch"]).stdout


def back(seconds: float | None, number: int = 0) -> Reclaim:
    return Reclaim(
        slot=UnitId(f"slot-batch-0-{number}"),
        host=HostName("h1"),
        at=1.0,
        by="counts",
        limit=60,
        seconds=seconds,
    )


def test_the_command_tells_how_fast_slots_went_back(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No slot of batch has gone back yet; the limit is 60 s." in runner.invoke(app, ["batch"]).stdout
    seen = View(
        batch_reclaims=Reclaims(
            going=(back(None),), ended=tuple(back(float(number), number) for number in range(1, 101))
        )
    )
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", lambda: seen)
    assert (
        "The last 100 slots of batch went back within 50 s (p50) and 99 s (p99); the limit is 60 s, and 40 "
        "were later than theirs. 1 go back now."
    ) in runner.invoke(app, ["batch"]).stdout
    reclaims = json.loads(runner.invoke(app, ["batch", "--json"]).stdout)["reclaims"]
    assert (reclaims["p50"], reclaims["p99"], reclaims["late"], reclaims["going"]) == (50.0, 99.0, 40, 1)
    assert [each["seconds"] for each in reclaims["last"][:3]] == [100.0, 99.0, 98.0]
    assert len(reclaims["last"]) == 20
