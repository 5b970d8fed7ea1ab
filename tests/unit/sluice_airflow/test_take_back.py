"""Instances of a burst are terminated unless its run succeeded.

A run that a person ended is a failed run.
"""

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from simulation.ec2 import MemoryCloud, instance
from simulation.memory import MemoryChannel

from sluice_airflow.errors import AwayError, EndedByPersonError
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.operators import burst, steps
from sluice_airflow.operators.burst import (
    LAUNCHING_SECONDS,
    LaunchOperator,
    ReapOperator,
    TakeBackOperator,
    TerminateOperator,
)
from sluice_airflow.operators.steps import AbortOperator
from sluice_ops.cloud.errors import NOT_PERMITTED, CloudAwayError, CloudError, NoCredentialsError
from sluice_ops.cloud.reaper import Reaped
from sluice_ops.model import paths
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.site.ec2_config import Ec2Config


@pytest.mark.parametrize(
    ("end", "launch", "expectation", "expected_waits"),
    [
        ("success", "success", pytest.raises(AirflowSkipException, match="leave_ec2 terminates"), []),
        ("upstream_failed", "success", nullcontext(), []),
        ("upstream_failed", "failed", nullcontext(), []),
        ("skipped", "success", pytest.raises(EndedByPersonError, match="i-1"), []),
        ("skipped", "failed", pytest.raises(EndedByPersonError, match="i-1"), [LAUNCHING_SECONDS]),
    ],
)
def test_instances_are_terminated_unless_the_run_succeeded(
    monkeypatch, end, launch, expectation, expected_waits
):
    waited, tokens = [], []
    monkeypatch.setattr(burst, "states_of", lambda _context, *_tasks: [end, launch])
    monkeypatch.setattr(burst, "change_of", lambda _context: "burst_to_ec2.r1")
    # other threads of the process sleep, too, so only this module gets another clock
    monkeypatch.setattr(burst, "time", SimpleNamespace(sleep=waited.append, time=time.time))
    take_back = TakeBackOperator(task_id="terminate")
    own, other = instance("i-1", "burst_to_ec2.r1"), instance("i-2", "another")
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: SimpleNamespace(instances=lambda: [own, other]))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(MemoryChannel()))
    monkeypatch.setattr(take_back, "terminate", lambda free, *_: tokens.extend(each.token for each in free))
    with expectation:
        take_back.execute({})
    assert waited == expected_waits, "an interrupted launch may still start instances"
    assert tokens == ([] if end == "success" else ["burst_to_ec2.r1"])


def test_a_refused_dry_run_has_nothing_to_undo(monkeypatch):
    monkeypatch.setattr(steps.StepOperator, "execute", lambda *_: pytest.fail("a step was posted"))
    abort = AbortOperator(task_id="abort", change={"kind": "drain", "host": "h1"})
    with pytest.raises(AirflowSkipException, match="nothing to undo: a dry run changes nothing"):
        abort.execute({"params": {"dry_run": True}})


def test_a_run_that_a_person_ended_sends_no_alert(monkeypatch):
    sent = []
    notifier = SluiceNotifier(did="", do="")
    monkeypatch.setattr(notifier, "send", lambda alert, **_: sent.append(alert))
    notifier.notify({"exception": EndedByPersonError("a person has ended the run")})
    assert sent == []


def test_a_leave_retires_the_hosts_of_the_terminated_instances(monkeypatch):
    calls = []
    channel, cloud = MemoryChannel(), SimpleNamespace(instances=lambda: [instance("i-00000001")])
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: cloud)
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(burst, "asked_by", lambda _context: "airflow:leave_ec2/r1")
    monkeypatch.setattr(burst, "retire_soon", lambda *call: calls.append(call) or ["ec2-1"])
    monkeypatch.setattr(burst.time, "time", lambda: 5400.0)
    config = Ec2Config(price_per_hour={"m5.large": 0.12})
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SimpleNamespace(ec2=config))
    terminate = TerminateOperator(task_id="terminate", change={"kind": "leave", "tier": "", "k": ""})
    monkeypatch.setattr(terminate, "terminate", lambda *_: None)
    assert terminate.execute({}) == ["i-00000001"]
    told = "i-00000001 (m5.large, on-demand, eu-central-1a) ran for 1.50 hours and cost 0.18 (0.12 an hour)"
    assert calls == [(channel, cloud, "airflow:leave_ec2/r1", {"ec2-00000001": told})]


def test_a_launch_and_a_termination_keep_receipts(monkeypatch):
    channel, cloud = MemoryChannel(), MemoryCloud()
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: cloud)
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    monkeypatch.setattr(burst, "change_of", lambda _context: "burst_to_ec2.r1")
    context = {"ti": SimpleNamespace(xcom_pull=lambda **_: 2)}
    assert len(LaunchOperator(task_id="launch").execute(context)) == 2
    ids = [each.id for each in cloud.instances()]
    assert channel.children(paths.INSTANCES) == ids
    channel.delete(paths.INSTANCES)
    monkeypatch.setattr(burst.time, "time", lambda: 5400.0)
    monkeypatch.setattr(burst, "retire_soon", lambda *_: [])
    monkeypatch.setattr(burst, "asked_by", lambda _context: "anna")
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SimpleNamespace(ec2=Ec2Config()))
    assert TerminateOperator(task_id="terminate", change={"kind": "leave"}).execute({}) == ids
    receipts = channel.read_many([paths.instance(each) for each in ids], InstanceReceipt)
    assert [read.value.ended_at for read in receipts] == [5400.0, 5400.0]


def refusing(error):
    """Return a cloud that refuses every question."""

    def refuse():
        raise error

    return SimpleNamespace(instances=refuse)


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (NoCredentialsError("no AWS credentials"), AirflowSkipException),
        (CloudError("not permitted", NOT_PERMITTED), AirflowSkipException),
        (CloudError("wrong region", "InvalidParameter"), AirflowFailException),
        (CloudAwayError("EC2 does not answer"), AwayError),
    ],
)
def test_a_reap_is_skipped_only_where_ec2_may_not_be_asked(monkeypatch, error, ending):
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: refusing(error))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext())
    monkeypatch.setattr(burst, "asked_by", lambda _context: "airflow:reap_ec2/r1")
    with pytest.raises(ending, match=str(error)):
        ReapOperator(task_id="reap").execute({})


def test_a_reap_asks_once_and_fails_if_it_may_not_terminate(monkeypatch):
    asked = []

    def refuse(_ids):
        message = "not permitted"
        raise CloudError(message, NOT_PERMITTED)

    cloud = SimpleNamespace(instances=lambda: asked.append(1) or [], terminate=refuse)
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: cloud)
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(MemoryChannel()))
    monkeypatch.setattr(burst, "asked_by", lambda _context: "airflow:reap_ec2/r1")
    with pytest.raises(AirflowFailException, match="not permitted"):
        ReapOperator(task_id="reap").execute({})
    assert len(asked) == 1


def test_a_reap_tells_what_it_did(monkeypatch):
    monkeypatch.setattr(SluiceHook, "cloud", lambda _hook: SimpleNamespace(instances=list))
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext())
    monkeypatch.setattr(burst, "asked_by", lambda _context: "airflow:reap_ec2/r1")
    monkeypatch.setattr(burst, "reap", lambda *_: Reaped({"i-1": "why"}, ["ec2-1"]))
    assert ReapOperator(task_id="reap").execute({}) == {"terminated": {"i-1": "why"}, "retired": ["ec2-1"]}
