"""Which hours are complete: all that arrived before their end has gone through every tier. Told as an asset event, to start jobs."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice_airflow.assets import HOUR_COMPLETE
from sluice_airflow.errors import AwayError, kinds
from sluice_airflow.hooks.channel import ChannelHook
from sluice_airflow.triggers.tier_watch import read_stopped
from sluice_ops.queries.figures import Figures, read_figures

HOUR = timedelta(hours=1)
LATE_SECONDS = 3000.0
"""A person is told when an hour is not complete for so long after its end; the next run tells of it when it is."""
LOOK_BACK = 20
"""Events that are looked at for what was told last: a person may have made some by hand."""
POLL_SECONDS = 10.0
MOST_HOURS = 24 * 31
"""Told of in one event, after a long time without any."""


class HourLateError(AirflowFailException):
    """An hour is not complete. Permanent for this run."""


def furthest_behind(figures: Figures) -> tuple[str, float | None]:
    """Return the tier that is complete up to the earliest moment, with that moment; None while it is not known."""
    return min(
        ((tier.tier, tier.complete) for tier in figures.audit),
        key=lambda each: each[1] or 0.0,
        default=("the audit", None),
    )


def beginning(until: datetime, told: datetime | None) -> datetime:
    """Return from when on the hours before `until` were not told of yet; the first time it is the last hour alone."""
    return until - HOUR if told is None else max(told, until - MOST_HOURS * HOUR)


class CompleteTrigger(BaseTrigger):
    """Waits until everything that arrived before a moment has gone through every tier."""

    def __init__(self, until: float, late: float) -> None:
        """Wait for the moment `until`, as long as the clock is before `late`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.until = until
        self.late = late

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Tell the triggerer how to make this again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"until": self.until, "late": self.late}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask now and then; PostgreSQL may be away meanwhile."""
        end = time.monotonic() + self.late - time.time()
        while True:
            figures = await asyncio.to_thread(read_figures)
            tier, complete = furthest_behind(figures)
            if complete is not None and complete >= self.until:
                yield TriggerEvent({"why": None})
                return
            if time.monotonic() >= end:
                yield TriggerEvent({"why": figures.missing or _how_far(tier, complete)})
                return
            await asyncio.sleep(POLL_SECONDS)


class HourOperator(BaseOperator):
    """Waits for the last full hour, and tells of each hour that is complete and was not told of."""

    ui_color = "#e6dcf2"

    def __init__(self, **kwargs: Any) -> None:
        """Its asset is both what it tells and where it looks up what it told."""
        super().__init__(inlets=[HOUR_COMPLETE], outlets=[HOUR_COMPLETE], **kwargs)

    def execute(self, context: Context) -> None:
        """Tell at once when it is complete, else leave the waiting to the triggerer."""
        figures, until = read_figures(), last_full_hour(context)
        if figures.missing is not None:
            message = f"{figures.missing}. This task is tried again by itself"
            raise AwayError(message)
        _, complete = furthest_behind(figures)
        if complete is None or complete < until.timestamp():
            late = time.time() + LATE_SECONDS
            self.log.info("Not complete up to %s yet; waiting", _clock(until.timestamp()))
            trigger = CompleteTrigger(until.timestamp(), late)
            self.defer(trigger=trigger, method_name="resume", timeout=timedelta(seconds=LATE_SECONDS + 600))
        self._tell(context, until)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Tell, or fail with who is behind; while a tier is stopped on purpose, the next run tells of the hour with its own."""
        until = last_full_hour(context)
        if event["why"] is not None:
            with kinds(), ChannelHook().open() as channel:
                stopped = read_stopped(channel)
            if stopped:
                named = ", ".join(f"{tier} (by {by})" for tier, by in stopped.items())
                message = f"not complete up to {_clock(until.timestamp())}, for these are stopped or paused: {named}"
                raise AirflowSkipException(message)
            message = (
                f"what arrived before {_clock(until.timestamp())} has not all gone through: {event['why']}"
            )
            raise HourLateError(message)
        self._tell(context, until)

    def _tell(self, context: Context, until: datetime) -> None:
        events = context["inlet_events"][HOUR_COMPLETE].ascending(False).limit(LOOK_BACK)
        told = [moment for event in events if (moment := told_until(event.extra)) is not None]
        begin = beginning(until, max(told, default=None))
        if begin >= until:
            message = f"all up to {_clock(until.timestamp())} was told of before"
            raise AirflowSkipException(message)
        context["outlet_events"][HOUR_COMPLETE].extra = {
            "from": begin.isoformat(),
            "until": until.isoformat(),
        }
        self.log.info("Complete from %s until %s", _clock(begin.timestamp()), _clock(until.timestamp()))


def told_until(extra: dict[str, Any] | None) -> datetime | None:
    """Return up to when an event told; None where it does not say so: a person may write anything."""
    try:
        found = datetime.fromisoformat(str((extra or {}).get("until")))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def last_full_hour(context: Context) -> datetime:
    """Return the end of the last hour that was over when the run was due."""
    due = context["dag_run"].run_after
    return due.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _how_far(tier: str, complete: float | None) -> str:
    if complete is not None:
        return f"{tier} is complete up to {_clock(complete)}"
    return f"up to when {tier} is complete nobody knows yet; behind a stream that leads back, nobody ever does: pause this DAG there"


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
