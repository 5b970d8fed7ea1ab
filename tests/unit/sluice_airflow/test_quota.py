"""The dry run of a burst says what would be launched, and has the controller plan with it; nothing else is posted."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import DownstreamTasksSkipped

from sluice_airflow.errors import StepFailedError
from sluice_airflow.operators import burst
from sluice_airflow.operators.burst import QuotaOperator
from sluice_ops.model.change import Result, Step
from sluice_ops.operations.requests import StepResult
from sluice_ops.site.site_file import Ec2Config


def dry_run(monkeypatch, *, ok):
    """Run the task; return what it pushed, and what the controller was asked."""
    pushed, asked = {}, []

    @contextmanager
    def ec2():
        yield SimpleNamespace(instances=list)

    def run(_channel, change, spec, by, _seconds, *, dry_run):
        asked.append((change, spec.kind, spec.tier, spec.k, by, dry_run))
        return [
            StepResult(
                Step.PREFLIGHT,
                Result(ok=ok, sentence="said", finished_at=1.0, details={"plan": {"moves": []}}),
            )
        ]

    monkeypatch.setattr(burst, "cloud", ec2)
    monkeypatch.setattr(burst, "ChannelHook", lambda: SimpleNamespace(open=nullcontext))
    monkeypatch.setattr(burst, "needed", lambda _channel, _tier, k, _running, _config: k)
    monkeypatch.setattr(burst, "change_of", lambda _context: "burst_to_ec2.r1")
    monkeypatch.setattr(burst, "asked_by", lambda _context: "airflow:burst_to_ec2/r1")
    monkeypatch.setattr(burst.forms, "the_site", lambda: SimpleNamespace(ec2=Ec2Config()))
    monkeypatch.setattr(burst.requests, "run", run)
    context = {"params": {"dry_run": True}, "ti": SimpleNamespace(xcom_push=pushed.__setitem__)}
    with pytest.raises(DownstreamTasksSkipped if ok else StepFailedError):
        QuotaOperator(task_id="quota", tier="enrich", k="2").execute(context)
    assert asked == [("burst_to_ec2.r1", "burst", "enrich", 2, "airflow:burst_to_ec2/r1", True)]
    return pushed


def test_it_is_planned_with_what_would_be_launched(monkeypatch):
    told = {
        "instances": 2,
        "instance_type": "m5.large",
        "tier": "enrich",
        "k": 2,
        "sentence": "said",
        "plan": {"moves": []},
    }
    assert dry_run(monkeypatch, ok=True) == {"plan": told}


def test_a_plan_that_is_refused_fails_it(monkeypatch):
    assert dry_run(monkeypatch, ok=False) == {}
