"""A tier's tasks: `launch` requests that the tier runs, and `supervise` watches it as long as that
request holds.

Agents and controller keep drivers running, also without Airflow. In these tasks a person sees a
failure and the driver's last error, alerts are sent, and a tier that the controller gave up is
started again.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import NEVER_EXPIRE, Context  # type: ignore[attr-defined]  # not in the stub

from sluice_airflow import lineage
from sluice_airflow.assets import is_table
from sluice_airflow.errors import TierFailedError, translated_errors
from sluice_airflow.links import LINKS, DriverLogLink
from sluice_airflow.operators.base import WATCH_SECONDS, SluiceOperator, asked_by
from sluice_airflow.triggers.operations import TierTrigger
from sluice_airflow.triggers.tier_watch import TierEvent, read_incarnations, read_status, read_wanted
from sluice_ops.channel import Channel
from sluice_ops.model.status import TierState
from sluice_ops.operations import requests

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

REPORTED = "reported"
"""Key of the newest incarnation whose failure was reported."""
RESTARTED = "restarted"
"""Key of the incarnation that was the newest when the tier was last started again."""
LOSS = "loss"
"""Key of the newest loss that was reported."""
BEHIND = "behind"
"""Key of the time at which the last reported lag began."""


def start_again(channel: Channel, tier: str, by: str, restarted: int) -> int | None:
    """Request a new start of a tier that the controller gave up, once for each time that it did.

    Return the newest incarnation before that start, or None if no start was needed.
    """
    status = read_status(channel, tier)
    if status is None or status.state is not TierState.FAILED:
        return None
    newest = max(read_incarnations(channel, tier), default=0)
    if newest <= restarted:
        return None
    requests.want(channel, tier, by=by, running=True, again=True)
    return newest


class TierOperator(SluiceOperator):
    """A task of one tier, with a link to the log of the tier's driver."""

    template_fields: Sequence[str] = ("tier",)
    operator_extra_links = (*LINKS, DriverLogLink())
    ui_color = "#d9efd9"

    def __init__(self, *, tier: str, **kwargs: Any) -> None:
        """Work on `tier`."""
        super().__init__(**kwargs)
        self.tier = tier

    def get_openlineage_facets_on_start(self) -> "OperatorLineage[Any, Any]":
        """Return the tier's streams and tables, for the events of a task's start and end."""
        return lineage.of_tier(self.tier, self.sluice_conn_id)


class LaunchTierOperator(TierOperator):
    """Requests that the tier runs; a tier that the controller gave up is started again."""

    def execute(self, context: Context) -> None:
        """Write the request to the control channel; writing it twice has no further effect.

        Airflow then makes an event of each outlet that the task still has. A table has none here:
        its event means complete hours.
        """
        self.outlets = [asset for asset in self.outlets if not is_table(asset)]
        with translated_errors(), self.hook.open() as channel:
            if (tried := start_again(channel, self.tier, asked_by(context), restarted=-1)) is not None:
                self.log.info(
                    "The controller gave %s up after incarnation %s; a new start is requested",
                    self.tier,
                    tried,
                )
                return
            before = read_wanted(channel, self.tier)
            requests.want(channel, self.tier, by=asked_by(context), running=True)
            if before.running:
                self.log.info(
                    "Start of %s was requested before, by %s; the tier runs on", self.tier, before.by
                )
            else:
                self.log.info("Start of %s is requested", self.tier)


class SuperviseTierOperator(TierOperator):
    """Fails when its tier fails, with the driver's last error in the log; the retry watches on.

    The tier runs on when this task, its run or the triggerer is ended. Only `sluice stop` stops the
    tier.
    """

    def execute(self, context: Context) -> None:
        """Continue after the failures that earlier tries reported; the first try skips all failures
        before it.
        """
        store = context["task_state_store"]
        with translated_errors(), self.hook.open() as channel:
            newest = max(read_incarnations(channel, self.tier), default=0)
            reported = _number(store.get(REPORTED))
            if reported is None:
                reported = newest - 1 if newest else 0
                store.set(REPORTED, reported, retention=NEVER_EXPIRE)
            restarted = _number(store.get(RESTARTED)) or 0
            # a person who stopped the tier since the last try has the last word
            wanted = read_wanted(channel, self.tier).running
            tried = start_again(channel, self.tier, asked_by(context), restarted) if wanted else None
            if tried is not None:
                self.log.info(
                    "The controller gave %s up after incarnation %s; a new start is requested",
                    self.tier,
                    tried,
                )
                restarted = tried
                store.set(RESTARTED, restarted, retention=NEVER_EXPIRE)
        self._watch(
            reported, restarted, _number(store.get(LOSS)) or 0, float(_number(store.get(BEHIND)) or 0)
        )

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """End if the tier was stopped, watch on after a week, or fail with the event's sentence."""
        fired = TierEvent.model_validate(event)
        store = context["task_state_store"]
        if fired.kind == "unwanted":
            self.log.info("%s: %s. Supervision ends", self.tier, fired.sentence)
            return
        if fired.kind == "again":
            self._watch(fired.incarnation, _number(store.get(RESTARTED)) or 0, fired.loss, fired.behind)
        if fired.kind == "lost":
            store.set(LOSS, fired.loss, retention=NEVER_EXPIRE)
            message = (
                f"records are lost, and the tier runs on: {fired.sentence}. List all losses: "
                f"`sluice audit`. After reprocessing, settle this loss: `sluice audit --settle {fired.loss}`"
            )
            self.log.error("%s", message)
            raise TierFailedError(message)
        if fired.kind == "behind":
            store.set(BEHIND, int(fired.behind) + 1, retention=NEVER_EXPIRE)
            message = (
                f"the tier cannot keep up, and runs on: {fired.sentence}. "
                "`sluice status` shows which intake is throttled"
            )
            self.log.error("%s", message)
            raise TierFailedError(message)
        store.set(REPORTED, fired.incarnation, retention=NEVER_EXPIRE)
        self.log.error("%s. The driver's last error:\n%s", fired.sentence, fired.error)
        raise TierFailedError(f"{fired.sentence}: {fired.error}")  # noqa: TRY003, EM102

    def _watch(self, reported: int, restarted: int, loss: int, behind: float) -> None:
        until = time.time() + WATCH_SECONDS
        self.defer(
            trigger=TierTrigger(self.tier, reported, restarted, until, loss, behind, self.sluice_conn_id),
            method_name="resume",
            timeout=timedelta(seconds=WATCH_SECONDS + 3600),
        )


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float, str)) else None
