"""The first task of a burst refuses what EC2 would refuse, before anything is launched.

Its dry run reports the planned instances and has the controller plan the burst; no other step is
posted.
"""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped
from simulation.ec2 import ENDPOINTS

from sluice_airflow.errors import StepFailedError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import burst
from sluice_airflow.operators.burst import QuotaOperator
from sluice_ops.cloud.ec2 import Cloud
from sluice_ops.cloud.errors import NOT_PERMITTED
from sluice_ops.model.change import Result, Step
from sluice_ops.operations.requests import StepResult
from sluice_ops.planning.changes.break_even import BreakEven
from sluice_ops.site.ec2_config import Ec2Config
from tests.unit.sluice_ops.cloud.test_launch_checks import Account


def dry_run(monkeypatch, *, ok):
    """Run the task, and check the request to the controller.

    Return the values that the task pushed.
    """
    pushed, requested, checked = {}, [], []

    def run(_channel, change, spec, by, _seconds, *, dry_run):
        requested.append((change, spec.kind, spec.tier, spec.launch.instances, by, dry_run))
        return [
            StepResult(
                Step.PREFLIGHT,
                Result(ok=ok, sentence="said", finished_at=1.0, details={"plan": {"moves": []}}),
            )
        ]

    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: SimpleNamespace(instances=list))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext())
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SimpleNamespace(ec2=Ec2Config()))
    monkeypatch.setattr(burst, "instances_needed", lambda _channel, spec, *_: spec.k)
    monkeypatch.setattr(burst, "receipts_now", lambda *_: [])
    monkeypatch.setattr(burst, "check_launch", lambda _cloud, count: checked.append(count) or [])
    monkeypatch.setattr(burst, "comes_in_time", lambda *_: BreakEven(too_late=True, sentence="too late"))
    monkeypatch.setattr(burst, "readings_of", lambda *_: None)
    monkeypatch.setattr(burst, "change_of", lambda _context: "burst_to_ec2.r1")
    monkeypatch.setattr(burst, "asked_by", lambda _context: "airflow:burst_to_ec2/r1")
    monkeypatch.setattr(burst.requests, "run", run)
    context = {"params": {"dry_run": True}, "ti": SimpleNamespace(xcom_push=pushed.__setitem__)}
    with pytest.raises(DownstreamTasksSkipped if ok else StepFailedError):
        QuotaOperator(task_id="quota", tier="enrich", k="2").execute(context)
    assert requested == [("burst_to_ec2.r1", "burst", "enrich", 2, "airflow:burst_to_ec2/r1", True)]
    assert checked == [2]
    return pushed


def test_a_dry_run_reports_the_instances_and_the_plan(monkeypatch):
    plan = {
        "instances": 2,
        "instance_types": ["m5.large"],
        "cost_per_hour": None,
        "cost_per_million": None,
        "break_even": {"too_late": True, "sentence": "too late"},
        "tier": "enrich",
        "k": 2,
        "sentence": "said",
        "plan": {"moves": []},
    }
    assert dry_run(monkeypatch, ok=True) == {"plan": plan}


def test_a_burst_that_comes_too_late_is_warned_of_and_not_refused(monkeypatch, capsys):
    dry_run(monkeypatch, ok=True)
    assert any("[warning  ] too late" in line for line in capsys.readouterr().out.splitlines())


def test_a_refused_plan_fails_the_dry_run(monkeypatch):
    assert dry_run(monkeypatch, ok=False) == {}


@pytest.mark.parametrize("is_dry_run", [False, True])
@pytest.mark.parametrize(
    ("account", "reason"),
    [
        (Account({}, permission="InvalidAMIID.NotFound"), "InvalidAMIID.NotFound"),
        (Account({}, permission=NOT_PERMITTED), "Allow ec2:RunInstances, ec2:CreateTags"),
        (Account({"L-1216C47A": 0}), "the account has 0 vCPUs for on-demand instances"),
    ],
    ids=["wrong AMI", "no permission", "quota zero"],
)
def test_what_ec2_would_refuse_fails_the_first_task(monkeypatch, account, reason, is_dry_run):
    """The account permits no request for instances but a dry run."""
    pushed = {}
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: Cloud(ENDPOINTS, Ec2Config(), account))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext())
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SimpleNamespace(ec2=Ec2Config()))
    monkeypatch.setattr(burst, "instances_needed", lambda _channel, spec, *_: spec.k)
    monkeypatch.setattr(burst, "receipts_now", lambda *_: [])
    monkeypatch.setattr(burst, "change_of", lambda _context: "burst_to_ec2.r1")
    context = {"params": {"dry_run": is_dry_run}, "ti": SimpleNamespace(xcom_push=pushed.__setitem__)}
    with pytest.raises(AirflowFailException, match=re.escape(reason)):
        QuotaOperator(task_id="quota", tier="enrich", k="2").execute(context)
    assert pushed == {}
