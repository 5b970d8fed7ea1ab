"""End times as people write them, and the refusals of unusable ones."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.operations.expiry import ExpiryError, ending

NOW = datetime(2026, 11, 22, 5, 30, tzinfo=UTC)
BUCHAREST = ZoneInfo("Europe/Bucharest")


@pytest.mark.parametrize(
    ("text", "zone", "end"),
    [
        ("30m", UTC, "2026-11-22T06:00+00:00"),
        ("2h", UTC, "2026-11-22T07:30+00:00"),
        ("1.5 h", UTC, "2026-11-22T07:00+00:00"),
        ("1d", UTC, "2026-11-23T05:30+00:00"),
        ("06:00", UTC, "2026-11-22T06:00+00:00"),
        ("05:30", UTC, "2026-11-23T05:30+00:00"),
        ("06:00", BUCHAREST, "2026-11-23T06:00+02:00"),
        ("2026-11-22T06:00", UTC, "2026-11-22T06:00+00:00"),
        ("2026-11-22T08:00", BUCHAREST, "2026-11-22T08:00+02:00"),
        ("2026-11-22T08:00+02:00", UTC, "2026-11-22T06:00+00:00"),
        ("2026-11-22T06:00Z", BUCHAREST, "2026-11-22T06:00+00:00"),
    ],
)
def test_a_duration_a_time_of_day_and_a_date_are_accepted(text, zone, end):
    assert ending(text, NOW, zone) == datetime.fromisoformat(end)


def test_a_time_of_day_keeps_its_hour_when_summer_time_ends():
    before = datetime(2026, 10, 24, 20, 0, tzinfo=UTC)
    assert ending("06:00", before, BUCHAREST) == datetime(2026, 10, 25, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2", "the unit is missing; write 30m, 2h or 1d"),
        ("2 weeks", "'weeks' is no unit; write 30m, 2h or 1d"),
        ("0h", "is past; name a time in the future"),
        ("2026-11-22T05:00", "is past; name a time in the future"),
        ("2028-01-01", "more than a year from now"),
        ("99999999999999999999d", "more than a year from now"),
        ("06:00+02:00", "needs a date"),
        ("noon", "is no time; write 2h, 06:00 or 2026-11-22T06:00"),
        ("25:00", "is no time"),
        ("0001-01-01T00:00", "past; name a time in the future"),
        ("", "is no time"),
        ("-2h", "is no time"),
    ],
)
def test_an_unusable_end_time_is_refused_with_the_correct_form(text, reason):
    with pytest.raises(ExpiryError) as refused:
        ending(text, NOW, UTC)
    assert reason in str(refused.value)


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)), st.times())  # noqa: DTZ001 - UTC follows
def test_a_time_of_day_is_within_the_next_24_hours(now, clock):
    now = now.replace(tzinfo=UTC)
    end = ending(clock.isoformat(), now, UTC)
    assert timedelta(0) < end - now <= timedelta(days=1)
    assert end.time() == clock


def test_a_time_that_no_time_zone_can_express_is_refused():
    with pytest.raises(ExpiryError, match="name a time in the future"):
        ending("0001-01-01T00:00", NOW, None)
