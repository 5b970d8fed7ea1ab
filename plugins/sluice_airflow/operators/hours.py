"""Announces complete hours as asset events, so that jobs can start.

An hour is complete when all records that arrived before its end have left every tier.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from sluice_airflow.assets import hour_complete
from sluice_airflow.errors import AwayError, translated_errors
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.base import SluiceOperator
from sluice_airflow.triggers.tier_watch import read_stopped
from sluice_ops.queries.figures import Figures

HOUR = timedelta(hours=1)
LATE_SECONDS = 3000.0
"""An hour that is not complete this long after its end alerts. A later run announces it."""
LOOK_BACK = 20
"""How many past events are searched for the last announced hour: a person may have made events by
hand.
"""
POLL_SECONDS = 10.0
MOST_HOURS = 24 * 31
"""The most hours that one event announces."""


class HourLateError(AirflowFailException):
    """The hour is not complete. Permanent for this run."""


def least_complete(figures: Figures) -> tuple[str, float | None]:
    """Return the tier that is complete up to the earliest time, with that time; None if the time is
    unknown.
    """
    return min(
        ((tier.tier, tier.complete) for tier in figures.audit),
        key=lambda each: each[1] or 0.0,
        default=("the audit", None),
    )


def beginning(until: datetime, announced: datetime | None) -> datetime:
    """Return the begin of the first hour before `until` that was not announced; at first, only the
    last hour.
    """
    return until - HOUR if announced is None else max(announced, until - MOST_HOURS * HOUR)


class CompleteTrigger(BaseTrigger):
    """Wait until all records that arrived before a given time have left every tier."""

    def __init__(self, until: float, late: float, sluice_conn_id: str | None = None) -> None:
        """Wait until all tiers are complete up to `until`; give up at the wall-clock time
        `late`.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.until = until
        self.late = late
        self.sluice_conn_id = sluice_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow makes this trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "until": self.until,
            "late": self.late,
            "sluice_conn_id": self.sluice_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the audit's figures, also while PostgreSQL is away."""
        end = time.monotonic() + self.late - time.time()
        hook = SluiceHook(self.sluice_conn_id)
        while True:
            figures = await asyncio.to_thread(hook.figures)
            tier, complete = least_complete(figures)
            if complete is not None and complete >= self.until:
                yield TriggerEvent({"why": None})
                return
            if time.monotonic() >= end:
                yield TriggerEvent({"why": figures.missing or _completeness(tier, complete)})
                return
            await asyncio.sleep(POLL_SECONDS)


class HourOperator(SluiceOperator):
    """Waits for the last full hour, and announces each complete hour that was not announced
    before.
    """

    ui_color = "#e6dcf2"

    def __init__(
        self,
        *,
        outlets: Mapping[Asset, str] | None = None,
        sluice_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Use the asset as outlet for new events, and as inlet for reading past events.

        The assets in `outlets`, tables with the names of their tiers, get the same events. If the
        tier's state goes by event time, its event has the time up to which no event is missing.
        """
        self.writers = dict(outlets or {})
        self.asset = hour_complete(sluice_conn_id)
        super().__init__(
            sluice_conn_id=sluice_conn_id, inlets=[self.asset], outlets=[self.asset, *self.writers], **kwargs
        )

    def execute(self, context: Context) -> None:
        """Announce the hour at once if it is complete, or else defer to the triggerer."""
        figures, until = self._figures(), last_full_hour(context)
        _, complete = least_complete(figures)
        if complete is None or complete < until.timestamp():
            late = time.time() + LATE_SECONDS
            self.log.info("Not all tiers are complete up to %s yet; waiting", _clock(until.timestamp()))
            trigger = CompleteTrigger(until.timestamp(), late, self.sluice_conn_id)
            self.defer(trigger=trigger, method_name="resume", timeout=timedelta(seconds=LATE_SECONDS + 600))
        self._announce(context, until, figures)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Announce the hour, or fail and name the tier that lags.

        If a tier is stopped or paused on purpose, skip: a later run announces this hour together
        with its own.
        """
        until = last_full_hour(context)
        if event["why"] is not None:
            with translated_errors(), self.hook.open() as channel:
                stopped = read_stopped(channel)
            if stopped:
                named = ", ".join(f"{tier} (by {by})" for tier, by in stopped.items())
                message = (
                    f"not complete up to {_clock(until.timestamp())}: "
                    f"these tiers are stopped or paused: {named}"
                )
                raise AirflowSkipException(message)
            message = (
                f"not all records that arrived before {_clock(until.timestamp())} have left every tier: "
                f"{event['why']}"
            )
            raise HourLateError(message)
        self._announce(context, until, self._figures())

    def _figures(self) -> Figures:
        """Return the audit's figures. AwayError: PostgreSQL does not answer."""
        figures = self.hook.figures()
        if figures.missing is not None:
            message = f"{figures.missing}. Airflow retries this task"
            raise AwayError(message)
        return figures

    def _announce(self, context: Context, until: datetime, figures: Figures) -> None:
        events = context["inlet_events"][self.asset].ascending(False).limit(LOOK_BACK)
        announced = [end for event in events if (end := announced_until(event.extra)) is not None]
        begin = beginning(until, max(announced, default=None))
        if begin >= until:
            message = f"all hours up to {_clock(until.timestamp())} were announced before"
            raise AirflowSkipException(message)
        lateness = {
            tier.tier: tier.complete - tier.events
            for tier in figures.audit
            if tier.complete is not None and tier.events is not None
        }
        for asset in self.outlets:
            extra: dict[str, Any] = {"from": begin.isoformat(), "until": until.isoformat()}
            if (late := lateness.get(self.writers.get(asset, ""))) is not None:
                extra["events_until"] = (until - timedelta(seconds=late)).isoformat()
            context["outlet_events"][asset].extra = extra
        self.log.info("Complete from %s until %s", _clock(begin.timestamp()), _clock(until.timestamp()))


def announced_until(extra: dict[str, Any] | None) -> datetime | None:
    """Return the end of an event's hours; None if the event has none: a person may have written
    anything.
    """
    try:
        end = datetime.fromisoformat(str((extra or {}).get("until")))
    except ValueError:
        return None
    return end if end.tzinfo is not None else end.replace(tzinfo=UTC)


def last_full_hour(context: Context) -> datetime:
    """Return the end of the last full hour before the run was due."""
    due = context["dag_run"].run_after
    return due.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _completeness(tier: str, complete: float | None) -> str:
    if complete is not None:
        return f"{tier} is complete up to {_clock(complete)}"
    return (
        f"the audit does not know yet up to when {tier} is complete. "
        "A tier behind a feedback stream never has such a time: pause this DAG for such a pipeline"
    )


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
