"""What a burst has launched is terminated unless the run came to its end, and the run is a failed one whoever ended it."""

from contextlib import nullcontext

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from sluice_airflow.errors import EndedByPersonError
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.operators import burst, steps
from sluice_airflow.operators.burst import LAUNCHING_SECONDS, TakeBackOperator
from sluice_airflow.operators.steps import AbortOperator


@pytest.mark.parametrize(
    ("end", "launch", "ends", "waits"),
    [
        ("success", "success", pytest.raises(AirflowSkipException, match="leave_ec2 terminates"), []),
        ("upstream_failed", "success", nullcontext(), []),
        ("upstream_failed", "failed", nullcontext(), []),
        ("skipped", "success", pytest.raises(EndedByPersonError, match="i-1"), []),
        ("skipped", "failed", pytest.raises(EndedByPersonError, match="i-1"), [LAUNCHING_SECONDS]),
    ],
)
def test_what_was_launched_is_taken_back_unless_the_run_came_to_its_end(
    monkeypatch, end, launch, ends, waits
):
    waited, tokens = [], []
    monkeypatch.setattr(burst, "states_of", lambda _context, *_tasks: [end, launch])
    monkeypatch.setattr(burst, "change_of", lambda _context: "burst_to_ec2.r1")
    monkeypatch.setattr(burst.time, "sleep", waited.append)
    take_back = TakeBackOperator(task_id="terminate")
    monkeypatch.setattr(take_back, "terminate", lambda token: tokens.append(token) or ["i-1"])
    with ends:
        take_back.execute({})
    assert waited == waits, "a launch that was cut short may still be answered"
    assert tokens == ([] if end == "success" else ["burst_to_ec2.r1"])


def test_a_dry_run_that_was_refused_has_nothing_to_undo(monkeypatch):
    monkeypatch.setattr(steps.StepOperator, "execute", lambda *_: pytest.fail("a step was posted"))
    abort = AbortOperator(task_id="abort", change={"kind": "drain", "host": "h1"})
    with pytest.raises(AirflowSkipException, match="nothing to undo: a dry run changes nothing"):
        abort.execute({"params": {"dry_run": True}})


def test_that_a_person_has_ended_a_run_alerts_nobody(monkeypatch):
    sent = []
    notifier = SluiceNotifier(did="", do="")
    monkeypatch.setattr(notifier, "send", sent.append)
    notifier.notify({"exception": EndedByPersonError("a person has ended the run")})
    assert sent == []
