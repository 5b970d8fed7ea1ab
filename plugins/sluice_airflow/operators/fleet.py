"""The tasks of runbooks of several changes.

`rolling_reboot` has one change for each batch of hosts, `upgrade_pipeline` and `drain_to_empty`
one for each tier. `new_hosts` has a canary and a rebalance.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from sluice_airflow.errors import (
    NothingPostedError,
    PipelineFailedError,
    StepFailedError,
    translated_errors,
)
from sluice_airflow.operators.approval import is_answer
from sluice_airflow.operators.base import LOOK_SECONDS, asked_by, began
from sluice_airflow.operators.changes import SluiceChangeOperator
from sluice_airflow.run_seconds import seconds_of_changes
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.change import DRAIN_TO_EMPTY, REBOOT_HOSTS, UPGRADE, ChangeKind, ChangeSpec, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.pipeline_drain import PipelineDrain
from sluice_ops.model.pipeline_upgrade import PipelineUpgrade
from sluice_ops.model.rolling import RollingReboot
from sluice_ops.operations import pipeline_drain, pipeline_upgrade, requests, rolling
from sluice_ops.operations.ends import StoppedError
from sluice_ops.planning import pipeline_drain as draining
from sluice_ops.planning import pipeline_upgrade as planning
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.placement.cluster import RefusedError
from sluice_ops.planning.rolling import Batch, Begun, Complete, Stop, Wait


class SpreadOperator(SluiceChangeOperator):
    """Moves workers onto a host that a canary has proved, as `rebalance_workers` does."""

    kind = KINDS["rebalance"]

    def _go_on(
        self, channel: Channel, context: Context, change: ChangeId, spec: ChangeSpec
    ) -> dict[str, Any]:
        self.deadline = float(context["params"]["deadline"])
        return super()._go_on(channel, context, change, spec)


class _SeveralChangesOperator(SluiceChangeOperator):
    """Carries out several changes, one after the other.

    Its state is in the channel alone. So the task goes on after the death of its worker, of the
    scheduler or of the triggerer, and no change is made twice.
    """

    def resume(self, context: Context, event: Any, form_of: str | None = None) -> dict[str, Any]:
        """Go on after a step of a change, after a wait, or after a person has answered the form of
        the change `form_of`. The channel has everything else.
        """
        with translated_errors(), self.hook.open() as channel:
            if isinstance(event, dict) and is_answer(event):
                self.hear(channel, event, form_of)
            return self._go(channel, context)

    def _go(self, channel: Channel, context: Context) -> dict[str, Any]:
        """Carry out the changes of the run; at its end, log where its seconds went."""
        try:
            result = self._go_through(channel, context)
        except AirflowFailException:
            self._log_seconds_of_run(channel, context)
            raise
        self._log_seconds_of_run(channel, context)
        return result

    def _log_seconds_of_run(self, channel: Channel, context: Context) -> None:
        with suppress(ChannelAwayError, ConflictError):  # another try would begin a run that has ended
            by, begun_at = asked_by(context), began(context).timestamp()
            if (sentence := seconds_of_changes(channel, by, begun_at, time.time())) is not None:
                self.log.info("%s", sentence)

    def log_seconds(self, channel: Channel, operation: str, began: float) -> None:
        """Log nothing of a single change: the run's end has the seconds of all."""

    def _go_through(self, channel: Channel, context: Context) -> dict[str, Any]:
        """Carry out changes until none is left; defer while one takes long."""
        raise NotImplementedError


class RollingRebootOperator(_SeveralChangesOperator):
    """Reboots the hosts at a place in batches."""

    kind = KINDS[REBOOT_HOSTS]
    template_fields: Sequence[str] = ("place", "at_once", "only_needed")

    def __init__(
        self, *, place: str, at_once: int | str = 1, only_needed: bool | str = False, **kwargs: Any
    ) -> None:
        """Reboot the hosts at `place`, `at_once` together; `deadline` is that of each batch.

        `only_needed`: only hosts with an update that needs a reboot.
        """
        super().__init__(**kwargs)
        self.place = place
        self.at_once = at_once
        self.only_needed = only_needed

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin, or continue what an earlier try or run has begun."""
        dry_run = bool(context["params"]["dry_run"])
        with translated_errors(), self.hook.open() as channel:
            try:
                begun = rolling.begin(
                    channel,
                    self.place,
                    run=_run(context),
                    by=asked_by(context),
                    only_needed=str(self.only_needed) == "True",
                    now=time.time(),
                    dry_run=dry_run,
                )
            except RefusedError as error:
                raise NothingPostedError(str(error)) from error
            for sentence in rolling.first_sentences(begun):
                self.log.info("%s", sentence)
            if not dry_run and begun.reboot.batch:
                return self._go(channel, context)  # the batches were planned before this one began
            planned = rolling.plan(channel, begun.reboot, int(self.at_once), asked_by(context))
            for each in planned:
                self.log.info("Batch of %s: %s", ", ".join(each.hosts), each.result.sentence)
            refused = rolling.refusal(planned)
            if dry_run:
                return self._end_dry_run(context, begun, planned, refused)
            if refused is not None:
                raise StepFailedError(rolling.stopped(refused, self.place))
            return self._go(channel, context)

    def _go_through(self, channel: Channel, context: Context) -> dict[str, Any]:
        """Carry out batches until none is left; defer while one takes long."""
        self.deadline = float(context["params"]["deadline"])
        while True:
            try:
                reboot, is_under_way = rolling.continue_(channel, self.place, _run(context))
            except StoppedError as error:
                raise StepFailedError(rolling.stopped(str(error), self.place)) from error
            if is_under_way:
                self._carry_out_batch(channel, context, reboot)
                continue
            now = time.time()
            turn = rolling.next_turn(channel, reboot, int(self.at_once), self.hook.site().reboot_window, now)
            match turn:
                case Batch():
                    taken = rolling.take(channel, reboot, turn, now)
                    self.log.info("Batch %d: %s", turn.number, ", ".join(turn.hosts))
                    self._carry_out_batch(channel, context, taken)
                case Wait():
                    until = datetime.fromtimestamp(turn.until, UTC)
                    self.log.info("Waiting until %s UTC: %s", f"{until:%Y-%m-%d %H:%M:%S}", turn.reason)
                    self.defer(trigger=DateTimeTrigger(moment=until), method_name="resume")
                case Stop():
                    raise StepFailedError(rolling.stopped(turn.sentence, self.place))
                case Complete():
                    rolling.complete(channel, reboot)
                    self.log.info("Done: %s", turn.sentence)
                    return {"sentence": turn.sentence}

    def _carry_out_batch(self, channel: Channel, context: Context, reboot: RollingReboot) -> None:
        change, spec = rolling.change_of(reboot), rolling.spec_of(reboot, reboot.batch)
        try:
            self._go_on(channel, context, change, spec)
        except StepFailedError as error:
            if rolling.when_to_ask_again(channel, reboot) is not None:
                return
            sentence = rolling.failed_batch(reboot, str(error))
            raise StepFailedError(rolling.stopped(sentence, self.place)) from error

    def _end_dry_run(
        self, context: Context, begun: Begun, planned: list[rolling.Planned], refused: str | None
    ) -> dict[str, Any]:
        plan = {"batches": [each.as_json() for each in planned], "left_out": dict(begun.left_out)}
        context["ti"].xcom_push("plan", plan)
        if refused is not None:
            raise StepFailedError(refused)
        return plan


class UpgradePipelineOperator(_SeveralChangesOperator):
    """Upgrades every tier to a release, one after the other; after a failed trial, all go back."""

    kind = KINDS[UPGRADE]
    template_fields: Sequence[str] = ("release", "canary")

    def __init__(self, *, release: str = "", canary: str = "", **kwargs: Any) -> None:
        """Upgrade to `release`, by default the newest, and begin with the tier `canary`.

        `deadline` is that of each tier.
        """
        super().__init__(tier="", **kwargs)
        self.release = release
        self.canary = canary

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin, or continue what an earlier try or run has begun."""
        dry_run = bool(context["params"]["dry_run"])
        with translated_errors(), self.hook.open() as channel:
            try:
                begun = pipeline_upgrade.begin(
                    channel,
                    self.release or None,
                    self.canary or None,
                    run=_run(context),
                    by=asked_by(context),
                    now=time.time(),
                    dry_run=dry_run,
                )
            except RefusedError as error:
                raise NothingPostedError(str(error)) from error
            for sentence in begun.sentences:
                self.log.info("%s", sentence)
            return self._plan(channel, context, begun) if dry_run else self._go(channel, context)

    def _go_through(self, channel: Channel, context: Context) -> dict[str, Any]:
        """Upgrade, or go back, until nothing is left to do; defer while a step takes long."""
        self.deadline = float(context["params"]["deadline"])
        while True:
            try:
                state = pipeline_upgrade.continue_(channel, _run(context))
            except StoppedError as error:
                raise PipelineFailedError(str(error)) from error
            if (change := pipeline_upgrade.under_way(state)) is not None:
                self._carry_out_tier(channel, context, state, change)
                continue
            turn = pipeline_upgrade.next_turn(channel, state)
            if isinstance(turn, planning.Next):
                self.log.info(
                    "%s %s to %s", turn.tier, "goes back" if state.failed else "is upgraded", turn.release
                )
                taken = pipeline_upgrade.take(channel, state, turn)
                self._carry_out_tier(channel, context, taken, turn)
                continue
            pipeline_upgrade.finish(channel, state)
            if isinstance(turn, planning.Returned):
                raise StepFailedError(turn.sentence)  # the controller has told the failed change
            self.log.info("Done: %s", turn.sentence)
            return {"sentence": turn.sentence}

    def _carry_out_tier(
        self, channel: Channel, context: Context, state: PipelineUpgrade, turn: planning.Next
    ) -> None:
        """Carry out the change of a tier. If it failed, the next turn reads why, and goes back."""
        change, spec = pipeline_upgrade.change_of(state), pipeline_upgrade.spec_of(state, turn)
        try:
            self._go_on(channel, context, change, spec)
        except StepFailedError as error:
            if pipeline_upgrade.is_unanswered(channel, state):
                sentence = pipeline_upgrade.stopped(channel, state, f"{turn.tier}: {error}")
                raise PipelineFailedError(sentence) from error

    def _plan(self, channel: Channel, context: Context, begun: pipeline_upgrade.Begun) -> dict[str, Any]:
        planned = pipeline_upgrade.plan(channel, begun.upgrade, asked_by(context))
        plan = {"release": begun.upgrade.release, "tiers": [*begun.upgrade.before]}
        context["ti"].xcom_push("plan", plan)
        if planned is not None:
            self.log.info("First, %s: %s", planned[0], planned[1].sentence)
            if not planned[1].ok:
                raise StepFailedError(planned[1].sentence)
        return plan


WORKER_LOOKS = 15
"""A drain that waits looks so often in a worker. Then it frees the worker for `LATER_SECONDS`."""
LATER_SECONDS = 15.0


class DrainToEmptyOperator(_SeveralChangesOperator):
    """Pauses each tier once it is empty, and returns the receipt; if one is not, all resume."""

    kind = KINDS[DRAIN_TO_EMPTY]
    template_fields: Sequence[str] = ()
    takes_back = False
    """Whether the drain of this run is taken back, if it has not ended."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin, or continue what an earlier try or run has begun."""
        dry_run = bool(context["params"]["dry_run"])
        with translated_errors(), self.hook.open() as channel:
            try:
                begun = pipeline_drain.begin(
                    channel,
                    self.hook.measured(),
                    run=_run(context),
                    by=asked_by(context),
                    deadline=float(context["params"]["deadline"]),
                    now=time.time(),
                    dry_run=dry_run,
                )
            except RefusedError as error:
                raise NothingPostedError(str(error)) from error
            for sentence in begun.sentences:
                self.log.info("%s", sentence)
            if dry_run:
                planned = pipeline_drain.plan(channel, begun.drain, asked_by(context))
                self.log.info("First: %s", planned.sentence)
                context["ti"].xcom_push(key="plan", value=planned.model_dump(mode="json"))
                if not planned.ok:
                    raise StepFailedError(planned.sentence)
                return {"sentence": planned.sentence}
            return self._go(channel, context)

    def _go_through(self, channel: Channel, context: Context) -> dict[str, Any]:
        """Pause, or take back, until nothing is left to do; defer while it takes long."""
        self.deadline = float(context["params"]["deadline"])
        waits = 0
        while True:
            try:
                state = pipeline_drain.continue_(channel, _run(context), time.time())
            except StoppedError as error:
                raise PipelineFailedError(str(error)) from error
            if state.kind is not None:
                self._carry_out_pause(channel, context, state, state.kind)
                continue
            if self.takes_back and not state.failed:
                pipeline_drain.note(channel, state, draining.Fail("its run was ended"))
                continue
            measured = draining.Measured() if state.failed else self.hook.measured()
            turn = pipeline_drain.next_turn(channel, state, measured, time.time())
            if isinstance(turn, draining.Wait):
                self.log.info("Waits: %s", turn.reason)
                waits += 1
                if waits > WORKER_LOOKS:
                    later = datetime.fromtimestamp(time.time() + LATER_SECONDS, UTC)
                    self.defer(trigger=DateTimeTrigger(moment=later), method_name="resume")
                time.sleep(LOOK_SECONDS)
                continue
            pipeline_drain.note(channel, state, turn)
            match turn:
                case draining.Fail():
                    self.log.error("The pauses are taken back: %s", turn.why)
                case draining.Returned():
                    raise PipelineFailedError(turn.sentence)
                case draining.Empty():
                    self.log.info("%s", turn.sentence)
                    return {"sentence": turn.sentence, **turn.receipt.model_dump(mode="json")}

    def _carry_out_pause(
        self, channel: Channel, context: Context, state: PipelineDrain, kind: ChangeKind
    ) -> None:
        """Carry out the last change. If it failed, the next turn reads why, and takes back."""
        self.log.info("%s: %s", kind, ", ".join(state.tiers))
        change, spec = pipeline_drain.change_of(state), pipeline_drain.spec_of(state, kind)
        if self.takes_back and kind == DRAIN_TO_EMPTY:  # it may wait for approval still
            abort = self._operation(context, change, Step.ABORT, spec, requests.ABORT_SECONDS)
            if not (aborted := self._carry_out(channel, context, abort)).ok:
                raise PipelineFailedError(draining.stopped(state, aborted.sentence))
            return
        try:
            self._go_on(channel, context, change, spec)
        except StepFailedError as error:
            if pipeline_drain.is_unanswered(channel, state):
                raise PipelineFailedError(draining.stopped(state, str(error))) from error


class TakeDrainBackOperator(DrainToEmptyOperator):
    """Takes the drain of this run back if the run ended before it: a person ended it."""

    takes_back = True

    def execute(self, context: Context) -> dict[str, Any]:
        """Resume what the run has paused; nothing if its drain has ended."""
        with translated_errors(), self.hook.open() as channel:
            read = channel.read(paths.PIPELINE_DRAIN, PipelineDrain)
            if read is None or read.value.run != _run(context) or read.value.ended:
                return {}
            return self._go(channel, context)


def _run(context: Context) -> str:
    return requests.change_id(f"{context['dag'].dag_id}.{context['run_id']}")
