"""Until when something is to hold, as people write it: `2h`, `06:00`, `2026-11-22T06:00`. Used by the CLI and by Airflow's forms."""

import re
from datetime import datetime, time, timedelta, tzinfo

_LASTING = re.compile(r"^(\d+(?:\.\d+)?)\s*([a-z]*)$")
_UNITS = {
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
LONGEST = timedelta(days=366)
"""What is to hold for longer is no exception any more: it belongs into the site file."""


class UntilError(ValueError):
    """It cannot be understood, or is not to come; the message says how to write it."""


def ending(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the end of a time that is written as its length or as its end; `zone` is that of clocks, None the machine's."""
    said = text.strip().lower()
    end = now + _length(said) if _LASTING.match(said) else _end(text.strip(), now, zone)
    if not now < end <= now + LONGEST:
        message = f"{text!r} is {'past' if end <= now else 'more than a year from now'}: name a time to come, such as 2h or 06:00"
        raise UntilError(message)
    return end


def _length(said: str) -> timedelta:
    found = _LASTING.match(said)
    number, unit = ("", "") if found is None else found.groups()
    if unit not in _UNITS:
        message = (
            f"{said!r}: {f'{unit!r} is no unit' if unit else 'the unit is missing'}: write 30m, 2h or 1d"
        )
        raise UntilError(message)
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
        message = f"{text!r}: a clock without a date is read where this is run; write the date too, as in 2026-11-22T06:00+02:00"
        raise UntilError(message)
    today = _placed(datetime.combine(here.date(), clock), zone)
    return today if today > now else _placed(datetime.combine(here.date() + timedelta(days=1), clock), zone)


def _moment(text: str, zone: tzinfo | None) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time: write 2h, 06:00 or 2026-11-22T06:00"
        raise UntilError(message) from error
    return found if found.tzinfo is not None else _placed(found, zone)


def _placed(naive: datetime, zone: tzinfo | None) -> datetime:
    """Read a clock where it hangs; the machine's own zone knows when its summer begins."""
    try:
        return naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
    except (ValueError, OverflowError) as error:
        message = (
            f"{naive:%Y-%m-%d %H:%M} is at the end of all calendars: name a time to come, such as 2h or 06:00"
        )
        raise UntilError(message) from error
