"""Shifts that do not begin: late ones, and those on a date in `not_on`; and when Airflow begins
the others.
"""

import re
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pendulum
import pytest
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.timetables import trigger
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable

from sluice_airflow import forms
from sluice_airflow.dags.shifts import FIRST_RUN_LATE
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import steps
from sluice_airflow.operators.steps import BeginShiftOperator, StepOperator
from sluice_ops.model import paths
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.site.shift_config import ShiftConfig
from tests.unit.sluice_airflow.memory import MemoryChannel

SHIFTS = {
    "night": ShiftConfig(schedule="0 22 * * *"),
    "day": ShiftConfig(schedule="0 6 * * *", timezone="Europe/Berlin"),
}
"""In winter, the shift `day` begins at 05:00 UTC."""


def at(day, hour, minute=0):
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)


LATE = timedelta(hours=14)
"""With this, eleven hours later no other shift has begun."""
SITE = SimpleNamespace(shifts=SHIFTS)


@pytest.fixture(autouse=True)
def site(monkeypatch):
    monkeypatch.setattr(SluiceHook, "site", lambda _hook: SITE)


@pytest.fixture
def channel(monkeypatch):
    channel = MemoryChannel()
    monkeypatch.setattr(SluiceHook, "open", lambda _hook: nullcontext(channel))
    return channel


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
    reason = forms.reason_to_skip(SITE, shift, due, now)
    assert (reason is None) if since is None else f"and the shift {since} has begun since" in reason


def test_a_shift_does_not_begin_on_its_dates_in_not_on():
    early = ShiftConfig(schedule="0 6 * * *", timezone="Asia/Tokyo", not_on=(date(2026, 1, 2),))
    site = SimpleNamespace(shifts={"night": SHIFTS["night"], "early": early})
    reasons = [forms.reason_to_skip(site, "early", at(day, 21), at(day, 21)) for day in (31, 1, 2)]
    skipped = "skipped: 2026-01-02 is in shifts.early.not_on of the site file. No share changes"
    assert reasons == [None, skipped, None]
    assert forms.reason_to_skip(site, "night", at(1, 20), at(1, 21, 30)) is None, "early did not begin"


@pytest.mark.parametrize(
    ("run_type", "due", "tiers", "skipped"),
    [
        ("scheduled", at(1, 22), True, "due at 2026-01-01 22:00 UTC, and the shift day has begun since"),
        ("scheduled", at(4, 22), True, "2026-01-04 is in shifts.night.not_on"),
        ("scheduled", at(1, 22) + LATE, True, None),
        ("scheduled", at(1, 22) + LATE, False, "no tier is published yet.*: sluice shift night"),
        ("manual", at(1, 22), False, None),
        ("manual", at(4, 22), True, None),
    ],
)
def test_scheduled_shifts_may_be_skipped_and_manual_ones_run(
    monkeypatch, channel, run_type, due, tiers, skipped
):
    executed = []
    if tiers:
        channel.put(paths.tier("enrich"), TierWanted())
    monkeypatch.setattr(StepOperator, "execute", lambda _self, context: executed.append(context) or {})
    monkeypatch.setattr(steps, "datetime", SimpleNamespace(now=lambda _zone: due + timedelta(hours=11)))
    monkeypatch.setitem(SHIFTS, "night", ShiftConfig(schedule="0 22 * * *", not_on=(date(2026, 1, 4),)))
    begin = BeginShiftOperator(
        task_id="preflight", step=Step.PREFLIGHT, change={"kind": "shift", "shift": "night"}
    )
    context = {"dag_run": SimpleNamespace(run_type=run_type, run_after=due)}
    if skipped:
        with pytest.raises(AirflowSkipException, match=skipped):
            begin.execute(context)
    else:
        begin.execute(context)
    assert bool(executed) is not bool(skipped)
    assert re.search(skipped or "^$", operator_fields(begin)["skipped_because"])
    assert bool(operator_fields(begin)["skipped_because"]) is bool(skipped)


def operator_fields(operator):
    """Return the fields that Airflow shows on the tab Rendered Templates after the task's end."""
    assert operator.overwrite_rtif_after_execution
    return _serialize_rendered_fields(operator)


@pytest.mark.parametrize(
    ("now", "first"),
    [
        (at(1, 21, 59), at(1, 22)),
        (at(1, 22, 4), at(1, 22)),
        (at(1, 23), at(2, 22)),
        (at(2, 0, 20), at(2, 22)),
    ],
)
def test_a_new_shift_begins_at_its_next_time_not_at_once(monkeypatch, now, first):
    timetable = CronTriggerTimetable("0 22 * * *", timezone="UTC", run_immediately=FIRST_RUN_LATE)
    timetable = CronTriggerTimetable.deserialize(timetable.serialize())
    monkeypatch.setattr(trigger, "utcnow", lambda: pendulum.instance(now))
    following = timetable.next_dagrun_info(
        last_automated_data_interval=None,
        restriction=TimeRestriction(earliest=None, latest=None, catchup=False),
    )
    assert following.run_after == first


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("schedule", ["30 2 * * *", "30 1 * * *", "0 22 * * mon-fri", "0 3 29 2 *"])
def test_airflow_begins_a_shift_at_the_times_that_sluice_expects(schedule, zone):
    shift = ShiftConfig(schedule=schedule, timezone=zone)
    expected = list(shift.times_in(2028))
    timetable = CronTriggerTimetable(schedule, timezone=zone)
    times, now = [], pendulum.datetime(2027, 12, 30)
    while (now := timetable._get_next(now)) <= expected[-1]:
        times.append(now)
    assert [time for time in times if shift.local(time).year == 2028] == expected


@pytest.mark.parametrize(
    ("day", "begin"),
    [
        ("2027-03-27", "2027-03-27T01:30"),
        ("2027-03-28", "2027-03-28T01:30"),
        ("2027-03-29", "2027-03-29T00:30"),
        ("2027-10-30", "2027-10-30T00:30"),
        ("2027-10-31", "2027-10-31T01:30"),
        ("2027-11-01", "2027-11-01T01:30"),
    ],
)
def test_a_shift_at_0230_fires_once_a_day_where_the_clock_changes(monkeypatch, day, begin):
    """Ask the scheduler's question every ten minutes of a day in Berlin, as it does without
    catch-up.
    """
    zone = pendulum.timezone("Europe/Berlin")
    timetable = CronTriggerTimetable("30 2 * * *", timezone="Europe/Berlin")
    start = pendulum.parse(day, tz=zone)
    restriction = TimeRestriction(earliest=None, latest=None, catchup=False)
    last = DataInterval.exact(timetable._get_prev(start))
    fired, now = [], start
    while now < start.add(days=1):
        monkeypatch.setattr(trigger, "utcnow", lambda now=now: now.in_timezone("UTC"))
        following = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        if following.run_after <= now:
            fired.append(following.run_after)
            last = following.data_interval
        now = now.add(minutes=10)
    assert fired == [datetime.fromisoformat(begin).replace(tzinfo=UTC)]
