"""Shifts: when each begins, also where the clock changes, and which shifts are refused."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from sluice_ops.model.ids import Tenant
from sluice_ops.model.share import Share
from sluice_ops.site.shift_config import ShiftConfig
from sluice_ops.site.site_file import Site, SiteError, load

THREE = """
  night: {schedule: "0 22 * * mon-fri", timezone: Europe/Berlin, shares: {enrich: 1, batch: 1}}
  weekend: {schedule: "0 22 * * sat", timezone: Europe/Berlin, shares: {enrich: 1, batch: 2}}
  day: {schedule: "0 6 * * mon-fri", timezone: Europe/Berlin, not_on: [2026-12-25, 2026-12-28]}
"""


def site_of(folder: Path, shifts: str) -> Site:
    path = folder / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\nshares: {{batch: {{target: 0}}}}\nshifts:{shifts}")
    return load(path)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_three_shifts_at_different_times_are_accepted(tmp_path: Path) -> None:
    site = site_of(tmp_path, THREE)
    assert [*site.shifts] == ["night", "weekend", "day"]
    assert site.lending_shifts == ("night", "weekend")


def test_the_example_of_the_page_on_shifts_is_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "shifts.md").read_text()
    example = page.partition("```yaml\nshifts:")[2].partition("```")[0]
    site = site_of(tmp_path, example)
    assert ([*site.shifts], site.lending_shifts) == (["night", "weekend", "day"], ("night", "weekend"))


@pytest.mark.parametrize(
    ("shifts", "reason"),
    [
        (
            (
                "{night: {schedule: 0 22 * * *, timezone: Europe/Berlin}, "
                "weekend: {schedule: 0 22 * * sat, timezone: Europe/Berlin}}"
            ),
            "night and weekend both begin at 2028-01-01 22:00 Europe/Berlin, so each would undo the other's",
        ),
        (
            (
                "{a: {schedule: 0 6 * * *}, b: {schedule: 0 9 * * *}, "
                "c: {schedule: 30 14 * * *, timezone: Asia/Kolkata}}"
            ),
            "b and c both begin at 2028-01-01 14:30 Asia/Kolkata, ",
        ),
        (
            (
                "{early: {schedule: 30 2 * * *, timezone: Europe/Berlin}, "
                "late: {schedule: 30 3 * * *, timezone: Europe/Berlin}}"
            ),
            "early and late both begin at 2028-03-26 03:30 Europe/Berlin, ",
        ),
        (
            "{often: {schedule: '*/30 * * * *'}, day: {schedule: 0 14 * * *}}",
            "often and day both begin at 2028-01-01 14:00 UTC, ",
        ),
        (
            "{often: {schedule: '* 9 * * *'}, day: {schedule: 5 9 * * *}}",
            "often and day both begin at 2028-01-01 09:05 UTC, ",
        ),
        (
            "{leap: {schedule: 0 0 29 2 *}, day: {schedule: 0 0 * * *}}",
            "leap and day both begin at 2028-02-29 00:00 UTC, ",
        ),
        (
            "{night: {schedule: 0 22 * * *, not_on: [2028-12-24]}, eve: {schedule: 0 22 24 12 *}}",
            "night and eve both begin at 2028-12-24 22:00 UTC, ",
        ),
    ],
)
def test_two_shifts_at_the_same_time_are_refused_by_name(tmp_path: Path, shifts: str, reason: str) -> None:
    with pytest.raises(SiteError) as error:
        site_of(tmp_path, f" {shifts}")
    assert str(error.value).removeprefix(f"{tmp_path / 'site.yaml'}").startswith(f": shifts: {reason}")


@pytest.mark.parametrize("name", ["late shift", "1st", "nächte", "a.b", "x" * 51])
def test_a_name_that_no_dag_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SiteError, match=rf"shifts\.{name}: '{name}' is not a shift's name, because "):
        site_of(tmp_path, f' {{"{name}": {{schedule: 0 22 * * *}}}}')


def test_a_date_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"shifts\.night\.not_on\.0: .*; the value is '25\.12\.2026'"):
        site_of(tmp_path, " {night: {schedule: 0 22 * * *, not_on: [25.12.2026]}}")


@pytest.mark.parametrize(
    ("now", "last"),
    [
        ("2027-03-28T01:29", "2027-03-27T01:30"),
        ("2027-03-28T01:31", "2027-03-28T01:30"),  # 02:30 does not exist, and comes at 03:30
        ("2027-03-29T00:29", "2027-03-28T01:30"),
        ("2027-10-31T00:31", "2027-10-30T00:30"),  # the first 02:30 of the night does not count
        ("2027-10-31T01:29", "2027-10-30T00:30"),
        ("2027-10-31T01:31", "2027-10-31T01:30"),
    ],
)
def test_a_shift_begins_once_on_the_days_when_the_clock_changes(now: str, last: str) -> None:
    shift = ShiftConfig(schedule="30 2 * * *", timezone="Europe/Berlin")
    assert shift.last(utc(now)) == utc(last)


def test_a_date_in_not_on_counts_in_the_shifts_time_zone(tmp_path: Path) -> None:
    day = site_of(tmp_path, THREE).shifts["day"]
    assert day.last(utc("2026-12-25T12:00")) == utc("2026-12-24T05:00")
    assert day.last(utc("2026-12-28T12:00")) == utc("2026-12-24T05:00")
    assert day.last(utc("2026-12-29T12:00")) == utc("2026-12-29T05:00")
    tokyo = ShiftConfig(schedule="0 6 * * *", timezone="Asia/Tokyo", not_on=(date(2026, 12, 25),))
    assert tokyo.last(utc("2026-12-25T00:00")) == utc("2026-12-23T21:00")


@pytest.mark.parametrize(
    ("share", "shares", "gives"),
    [
        ({"target": 0}, {}, False),
        ({"target": 0}, {"batch": 1}, True),
        ({"target": 0}, {"batch": "20%"}, True),
        ({"target": 0}, {"batch": "0%"}, False),
        ({"target": 0}, {"batch": {"minimum": 1}}, True),
        ({"target": 2}, {}, True),
        ({"target": 2}, {"batch": 0}, True),
        ({"minimum": 0, "target": 2}, {"batch": 0}, False),
        ({"minimum": 0, "target": 2}, {"batch": {"maximum": 0}}, False),
    ],
)
def test_a_shift_gives_slots_if_its_numbers_leave_some(share: object, shares: object, *, gives: bool) -> None:
    shift = ShiftConfig.model_validate({"schedule": "0 22 * * *", "shares": shares})
    assert shift.gives(Tenant("batch"), Share.model_validate(share)) is gives
