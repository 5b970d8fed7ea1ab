"""The times of the site file: when each shift begins, and when the controller may repair.

A shift begins at a time, and its shares hold until another shift begins. So shifts have no length
and cannot overlap, but two may begin at the same time.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter
from pydantic import AfterValidator, Field, field_validator

from sluice_ops.model.ids import Tenant, named_by_people
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Numbers, Share, is_zero

CHECKED_YEAR = 2028
"""The year in which no two shifts may begin at the same time.

It has a 29 February. With the current year, a valid site file could be refused at a restart.
"""


def _shift_name(name: str) -> str:
    return named_by_people(name, "a shift's name, because the shift's DAG is named after it", "night")


ShiftName = Annotated[str, AfterValidator(_shift_name)]
"""The name of a shift; `NAME_shift` is the id of its DAG."""


class Schedule(Frozen):
    """The times at which a shift, or a window for repairs, begins."""

    schedule: str
    """A cron schedule: minute, hour, day of the month, month, day of the week.

    A time that the clock skips comes an hour later. A time that the clock shows twice counts once,
    the second time.
    """
    timezone: str = "UTC"
    """The time zone of the schedule, such as `Europe/Bucharest`."""
    not_on: tuple[date, ...] = ()
    """Dates on which it does not begin, in its time zone: `[2026-12-25, 2027-01-01]`.

    The shift before it holds on. Default: none.
    """

    def last(self, now: datetime) -> datetime:
        """Return the last time before `now`, in UTC, at which it was to begin."""
        times = croniter(self.schedule, now.astimezone(ZoneInfo(self.timezone)).replace(tzinfo=None))
        while True:
            local = times.get_prev(datetime)
            if local.date() not in self.not_on and (begin := self._in_utc(local)) < now:
                return begin

    def next(self, now: datetime) -> datetime:
        """Return the first time after `now`, in UTC, at which it begins."""
        times = croniter(self.schedule, now.astimezone(ZoneInfo(self.timezone)).replace(tzinfo=None))
        while True:
            local = times.get_next(datetime)
            if local.date() not in self.not_on and (begin := self._in_utc(local)) > now:
                return begin

    def times_in(self, year: int) -> Iterator[datetime]:
        """Yield the scheduled times of a year, in UTC, also those on dates in `not_on`."""
        minutes, hours, *_ = croniter(self.schedule).expanded
        times = [
            timedelta(hours=hour, minutes=minute)
            for hour in (range(24) if hours == ["*"] else hours)
            for minute in (range(60) if minutes == ["*"] else minutes)
        ]
        for day in _days(" ".join(self.schedule.split()[2:]), year):
            yield from (self._in_utc(day + time) for time in times)

    def local(self, time: datetime) -> datetime:
        """Return a time in the shift's time zone."""
        return time.astimezone(ZoneInfo(self.timezone))

    def _in_utc(self, local: datetime) -> datetime:
        """Return a local time in UTC, as Airflow's scheduler does.

        For a time that the clock skips or shows twice, `fold` gives two offsets, and the later time
        counts. Only a schedule for every hour begins in Airflow at both times.
        """
        aware = local.replace(tzinfo=ZoneInfo(self.timezone))
        offsets = (moment.utcoffset() or timedelta() for moment in (aware, aware.replace(fold=1)))
        return (local - min(offsets)).replace(tzinfo=UTC)

    @field_validator("schedule")
    @classmethod
    def _comes(cls, schedule: str) -> str:
        try:
            croniter(schedule).get_next()
            valid = len(schedule.split()) == 5  # noqa: PLR2004 - fields of a cron schedule
        except CroniterError:
            valid = False
        if not valid:
            message = (
                f"{schedule!r} is not a cron schedule, or names a time that never comes: "
                'write five fields, such as "0 22 * * *" for 22:00 each day'
            )
            raise ValueError(message)
        return schedule

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            message = f"{name!r} is not a time zone: write a name such as Europe/Bucharest"
            raise ValueError(message) from error
        return name


class ShiftConfig(Schedule):
    """The shares from a scheduled time on, until another shift begins."""

    shares: dict[str, Numbers] = Field(default_factory=dict)
    """Tenant → slots, or per cent of the cluster: a target (`3`), or some of `{target: 3, minimum:
    2, maximum: 6}`.

    A tenant without an entry returns to its share in `shares` of the site.
    """

    def gives(self, tenant: Tenant, share: Share) -> bool:
        """Tell whether a tenant with this share in the site file has slots in the shift."""
        numbers = self.shares.get(tenant, Numbers())
        minimum, target, maximum = (
            of_site if of_shift is None else of_shift
            for of_site, of_shift in (
                (share.minimum, numbers.minimum),
                (share.target, numbers.target),
                (share.maximum, numbers.maximum),
            )
        )
        return not is_zero(maximum) and not (is_zero(target) and is_zero(minimum))


@cache
def _days(fields: str, year: int) -> tuple[datetime, ...]:
    """Return the days of a year that the last three fields of a cron schedule name."""
    midnights = croniter(f"0 0 {fields}", datetime.fromisoformat(f"{year - 1}-12-31")).all_next(datetime)
    return tuple(takewhile(lambda midnight: midnight.year == year, midnights))


def check_times(shifts: Mapping[str, ShiftConfig]) -> None:
    """Raise ValueError if two shifts begin at the same time: each would undo the other's shares."""
    if len(shifts) == 1:
        return
    begins: dict[datetime, str] = {}
    for name, shift in shifts.items():
        for time in shift.times_in(CHECKED_YEAR):
            other = begins.setdefault(time, name)
            if other != name:
                message = (
                    f"{other} and {name} both begin at {shift.local(time):%Y-%m-%d %H:%M} {shift.timezone}, "
                    "so each would undo the other's shares; give them different times, or different days, "
                    "such as mon-fri and sat,sun"
                )
                raise ValueError(message)
