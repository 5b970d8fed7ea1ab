"""Late shifts: only the shift with the latest past hour begins."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from sluice_airflow import forms
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import steps
from sluice_airflow.operators.steps import BeginShiftOperator, StepOperator
from sluice_ops.model.change import Step
from sluice_ops.site.site_file import ShiftConfig

SHIFTS = {
    "night": ShiftConfig(schedule="0 22 * * *"),
    "day": ShiftConfig(schedule="0 6 * * *", timezone="Europe/Berlin"),
}
"""In winter, the shift `day` begins at 05:00 UTC."""


def at(day, hour, minute=0):
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)


SITE = SimpleNamespace(shifts=SHIFTS)


@pytest.fixture(autouse=True)
def site(monkeypatch):
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SITE)


@pytest.mark.parametrize(
    ("shift", "due", "now", "since"),
    [
        ("night", at(1, 22), at(1, 22), None),
        ("night", at(1, 22), at(2, 4, 59), None),
        ("night", at(1, 22), at(2, 5, 1), "day"),
        ("day", at(2, 5), at(2, 21, 59), None),
        ("day", at(2, 5), at(2, 22, 1), "night"),
        ("day", at(2, 5), at(9, 8), "night"),
    ],
)
def test_a_later_shift_has_begun_once_its_hour_is_past(shift, due, now, since):
    assert forms.shift_since(SITE, shift, due, now) == since


@pytest.mark.parametrize(("run_type", "skipped"), [("scheduled", True), ("manual", False)])
def test_missed_scheduled_shifts_are_skipped_and_manual_ones_run(monkeypatch, run_type, skipped):
    executed = []
    monkeypatch.setattr(StepOperator, "execute", lambda _self, context: executed.append(context) or {})
    monkeypatch.setattr(steps, "datetime", SimpleNamespace(now=lambda _zone: at(2, 9)))
    begin = BeginShiftOperator(
        task_id="preflight", step=Step.PREFLIGHT, change={"kind": "shift", "shift": "night"}
    )
    context = {"dag_run": SimpleNamespace(run_type=run_type, run_after=at(1, 22))}
    if skipped:
        with pytest.raises(
            AirflowSkipException, match="due at 2026-01-01 22:00 UTC, and the shift day has begun since"
        ):
            begin.execute(context)
    else:
        begin.execute(context)
    assert bool(executed) is not skipped
