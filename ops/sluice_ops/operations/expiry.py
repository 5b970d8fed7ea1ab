"""End times as people write them, such as `2h`, `06:00` or `2026-11-22T06:00`.

Used by the CLI and by Airflow's forms.
"""

import re
from datetime import datetime, time, timedelta, tzinfo

_LENGTH = re.compile(r"^(\d+(?:\.\d+)?)\s*([a-z]*)$")
_UNITS = {
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
LONGEST = timedelta(days=366)
"""The longest time: a number that applies for longer belongs into the site file."""


class ExpiryError(ValueError):
    """The text is no end time, or is out of range; the message says how to write it."""


def ending(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the end time that a text names: a length from now, a clock, or a date with a clock.

    `zone` is the time zone of clocks; None is the machine's. ExpiryError for any other text, for a
    time that has passed, and for more than 366 days from now.
    """
    lowered = text.strip().lower()
    end = now + _length(lowered) if _LENGTH.match(lowered) else _end(text.strip(), now, zone)
    if not now < end <= now + LONGEST:
        message = (
            f"{text!r} is {'past' if end <= now else 'more than a year from now'}; "
            "name a time in the future, such as 2h or 06:00"
        )
        raise ExpiryError(message)
    return end


def _length(text: str) -> timedelta:
    match = _LENGTH.match(text)
    number, unit = ("", "") if match is None else match.groups()
    if unit not in _UNITS:
        message = (
            f"{text!r}: {f'{unit!r} is no unit' if unit else 'the unit is missing'}; write 30m, 2h or 1d"
        )
        raise ExpiryError(message)
    try:
        return float(number) * _UNITS[unit]
    except OverflowError:
        return 2 * LONGEST


def _end(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    here = now.astimezone(zone)
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return _moment(text, zone)
    if clock.tzinfo is not None:
        message = f"{text!r}: a clock with a time zone needs a date; write it like 2026-11-22T06:00+02:00"
        raise ExpiryError(message)
    today = _with_zone(datetime.combine(here.date(), clock), zone)
    return (
        today if today > now else _with_zone(datetime.combine(here.date() + timedelta(days=1), clock), zone)
    )


def _moment(text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time; write 2h, 06:00 or 2026-11-22T06:00"
        raise ExpiryError(message) from error
    return moment if moment.tzinfo is not None else _with_zone(moment, zone)


def _with_zone(naive: datetime, zone: tzinfo | None) -> datetime:
    """Give a time its zone; with the machine's zone, the summer time of the date applies."""
    try:
        return naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
    except (ValueError, OverflowError) as error:
        message = (
            f"{naive:%Y-%m-%d %H:%M} is beyond the calendar; name a time in the future, such as 2h or 06:00"
        )
        raise ExpiryError(message) from error
