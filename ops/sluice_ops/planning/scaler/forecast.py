"""The rate that comes from outside at this time of the week, learnt from past weeks."""

from base64 import b64decode, b64encode

from sluice_ops.model.scaler import Week

HOUR = 3600.0
HOURS = 168
"""The hours of a week."""
ENOUGH_SECONDS = 1800.0
"""An hour counts if so much of it was measured. Unit: seconds."""
LONGEST_LOOK = 60.0
"""The longest time for which one look counts. Unit: seconds."""
_LEVELS = 254
"""The steps of a rate between 0 and the peak."""


def learn(week: Week | None, rate: float, now: float, seconds: float) -> Week:
    """Return the week after one more look at the rate; `seconds` is the time since the last."""
    hour = int(now // HOUR)
    if week is None or week.hour != hour:
        week = Week(hour=hour) if week is None else _with_hour(week, hour)
    seconds = min(seconds, LONGEST_LOOK)
    return Week(
        peak=week.peak,
        hours=week.hours,
        hour=hour,
        records=week.records + rate * seconds,
        seconds=week.seconds + seconds,
    )


def expected(week: Week | None, now: float, horizon: float) -> float:
    """Return the largest rate that past weeks had from now to the horizon; 0 if unknown."""
    if week is None or not week.peak:
        return 0.0
    rates, end = _rates(week), now + horizon
    middles = [(hour + 0.5) * HOUR for hour in range(int(now // HOUR), int(end // HOUR) + 1)]
    return max(_at(rates, time) for time in (now, end, *(middle for middle in middles if now < middle < end)))


def _with_hour(week: Week, hour: int) -> Week:
    """Return the week with the hour that has ended.

    The new rate of an hour is the mean of its old rate and the measured one.
    """
    rates = _rates(week)
    if week.seconds >= ENOUGH_SECONDS:
        mean, place = week.records / week.seconds, week.hour % HOURS
        old = rates[place]
        rates[place] = mean if old is None else (old + mean) / 2
    peak = max((rate for rate in rates if rate is not None), default=0.0)
    levels = (0 if rate is None else 1 + round(_LEVELS * rate / peak) if peak else 1 for rate in rates)
    return Week(peak=peak, hours=b64encode(bytes(levels)).decode(), hour=hour)


def _rates(week: Week) -> list[float | None]:
    levels = b64decode(week.hours) or bytes(HOURS)
    return [None if level == 0 else (level - 1) / _LEVELS * week.peak for level in levels]


def _at(rates: list[float | None], time: float) -> float:
    """Return the rate at a time, between those in the middle of two hours."""
    after = int(time / HOUR + 0.5)
    earlier, later = rates[(after - 1) % HOURS], rates[after % HOURS]
    if earlier is None or later is None:
        return rates[int(time // HOUR) % HOURS] or 0.0
    return earlier + (later - earlier) * (time / HOUR + 0.5 - after)
