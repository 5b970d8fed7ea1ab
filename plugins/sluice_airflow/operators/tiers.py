"""A tier in Airflow: launch says that it is wanted, supervise watches it for as long as it is.

Agents and the controller keep drivers running, within seconds and without Airflow. These tasks are where a person sees it, reads a
driver's last error, is alerted, and where a tier that was given up is started again.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.execution_time.context import NEVER_EXPIRE

from sluice_airflow.errors import TierFailedError, kinds
from sluice_airflow.hooks.channel import ChannelHook
from sluice_airflow.operators.steps import asked_by
from sluice_airflow.triggers.operations import TierTrigger
from sluice_airflow.triggers.tier_watch import TierEvent, read_incarnations, read_status, read_wanted
from sluice_ops.channel import Channel
from sluice_ops.model.status import TierState
from sluice_ops.operations import requests

WATCH_SECONDS = 7 * 24 * 3600.0
"""The trigger is made anew after a week: nothing is deferred for ever."""
REPORTED = "reported"
"""The newest incarnation whose failure has been told."""
RESTARTED = "restarted"
"""The newest incarnation that there was when the tier was last started again."""
LOSS = "loss"
"""The number of the newest loss that has been told."""
BEHIND = "behind"
"""Since when the tier was behind too far when that was told last."""


def start_again(channel: Channel, tier: str, by: str, restarted: int) -> int | None:
    """Have a tier that was given up started again, once for each time; return the newest incarnation that had been tried, if it was."""
    status = read_status(channel, tier)
    if status is None or status.state is not TierState.FAILED:
        return None
    newest = max(read_incarnations(channel, tier), default=0)
    if newest <= restarted:
        return None
    requests.want(channel, tier, by=by, running=True, again=True)
    return newest


class LaunchTierOperator(BaseOperator):
    """Says in the channel that the tier is wanted; a tier that was given up gets a new attempt."""

    template_fields: Sequence[str] = ("tier",)
    ui_color = "#d9efd9"

    def __init__(self, *, tier: str, **kwargs: Any) -> None:
        """Launch `tier`."""
        super().__init__(**kwargs)
        self.tier = tier

    def execute(self, context: Context) -> None:
        """Post what is wanted; posting it twice is the same as once."""
        with kinds(), ChannelHook().open() as channel:
            if (tried := start_again(channel, self.tier, asked_by(context), restarted=-1)) is not None:
                self.log.info("%s was given up after incarnation %s; it is started again", self.tier, tried)
                return
            before = read_wanted(channel, self.tier)
            requests.want(channel, self.tier, by=asked_by(context), running=True)
            self.log.info(
                "%s is wanted, as before (by %s); it goes on"
                if before.running
                else "%s is wanted now, which nobody did before%s",
                self.tier,
                before.by if before.running else "",
            )


class SuperviseTierOperator(BaseOperator):
    """Shows a tier's failure as its own, with the driver's last error, and is retried to watch on.

    Ending this task, its run or the triggerer leaves the tier running: what stops it is what is wanted of it.
    """

    template_fields: Sequence[str] = ("tier",)
    ui_color = "#d9efd9"

    def __init__(self, *, tier: str, **kwargs: Any) -> None:
        """Supervise `tier`."""
        super().__init__(**kwargs)
        self.tier = tier

    def execute(self, context: Context) -> None:
        """Go on from the failures that were told by earlier tries; the first try takes those before it as known."""
        store = context["task_state_store"]
        with kinds(), ChannelHook().open() as channel:
            newest = max(read_incarnations(channel, self.tier), default=0)
            reported = _number(store.get(REPORTED))
            if reported is None:
                reported = newest - 1 if newest else 0
                store.set(REPORTED, reported, retention=NEVER_EXPIRE)
            restarted = _number(store.get(RESTARTED)) or 0
            wanted = read_wanted(
                channel, self.tier
            ).running  # who has stopped it since the last try keeps the say
            tried = start_again(channel, self.tier, asked_by(context), restarted) if wanted else None
            if tried is not None:
                self.log.info("%s was given up after incarnation %s; it is started again", self.tier, tried)
                restarted = tried
                store.set(RESTARTED, restarted, retention=NEVER_EXPIRE)
        self._watch(
            reported, restarted, _number(store.get(LOSS)) or 0, float(_number(store.get(BEHIND)) or 0)
        )

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """End, watch on, or fail with what the driver said."""
        told = TierEvent.model_validate(event)
        store = context["task_state_store"]
        if told.kind == "unwanted":
            self.log.info(
                "%s is not wanted any more: %s. Nothing is left to supervise", self.tier, told.sentence
            )
            return
        if told.kind == "again":
            self._watch(told.incarnation, _number(store.get(RESTARTED)) or 0, told.loss, told.behind)
        if told.kind == "lost":
            store.set(LOSS, told.loss, retention=NEVER_EXPIRE)
            message = f"records are lost, and the tier goes on: {told.sentence}; `sluice audit` shows all, `--settle {told.loss}` ends it"
            self.log.error("%s", message)
            raise TierFailedError(message)
        if told.kind == "behind":
            store.set(BEHIND, int(told.behind) + 1, retention=NEVER_EXPIRE)
            message = f"it cannot keep up, and the tier goes on: {told.sentence}; `sluice status` shows what is held back for it"
            self.log.error("%s", message)
            raise TierFailedError(message)
        store.set(REPORTED, told.incarnation, retention=NEVER_EXPIRE)
        self.log.error("%s. The driver's last error:\n%s", told.sentence, told.error)
        raise TierFailedError(f"{told.sentence}: {told.error}")  # noqa: TRY003, EM102

    def _watch(self, reported: int, restarted: int, loss: int, behind: float) -> None:
        until = time.time() + WATCH_SECONDS
        self.defer(
            trigger=TierTrigger(self.tier, reported, restarted, until, loss, behind),
            method_name="resume",
            timeout=timedelta(seconds=WATCH_SECONDS + 3600),
        )


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float, str)) else None
