"""The life of an incarnation: it obeys the owner record, drives its engine, and reports
its state.
"""

import time
from typing import TYPE_CHECKING

import structlog

from sluice.driver.control.wait_for_services import ServiceWait
from sluice.failures import error_text
from sluice.sinks.fence import FencedError
from sluice_ops.model.incarnation import TRIAL_SECONDS, Directive, Flowed, Receipt, State

if TYPE_CHECKING:
    from sluice.driver.control.control_channel import ChannelFollower
    from sluice.driver.counters import Flow
    from sluice.driver.engine.contract import Engine
    from sluice.driver.process.heartbeat import Pulse
    from sluice.driver.spark.workers import Workers
    from sluice.driver.state.hook_state import InternalStates

log = structlog.get_logger()

QUICK_SECONDS = 0.05
"""Time between two checks of the query until it has caught up."""
STEADY_SECONDS = 0.25
"""Time between two checks after that."""
LEFT_SECONDS = 1.0
"""Time between two checks for the receipt of the former owner."""
EXIT_CODES = {State.STOPPED: 0, State.FAILED: 1, State.FENCED: 3}


class Life:
    """One incarnation from the start of its Spark session to its end."""

    def __init__(  # noqa: PLR0913, PLR0917 — the parts that it connects
        self,
        follower: "ChannelFollower",
        engine: "Engine",
        states: "InternalStates",
        flow: "Flow",
        workers: "Workers",
        pulse: "Pulse",
    ) -> None:
        """Connect the parts; nothing runs yet.

        `flow` has the counters, `pulse` notes each turn of the loop.
        """
        self._follower = follower
        self._engine = engine
        self._states = states
        self._flow = flow
        self._workers = workers
        self._pulse = pulse
        self._services = ServiceWait(follower)
        self._owned_since: float | None = None
        """Since when this incarnation has owned the tier and run. Monotonic clock."""
        self._counts_at_hold = (0, 0, 0)
        """The counts at the last hold: records in, out, and to quarantine."""
        self._beside_owner = False
        """Whether this incarnation runs beside an owner whose internal state it will take."""
        self._was_paused = False
        """Whether the tier was paused on request while this incarnation lived."""
        self._receipt_at_start: Receipt | None = None
        """The furthest receipt of the other incarnations when this one last started to run."""
        self._receipt_looked_at = 0.0
        """When the receipt of the former owner was last looked for. Monotonic clock."""
        self._refused_epoch: int | None = None
        """The epoch that the fence refused: the next incarnation has taken over, and the owner
        record does not show it yet.
        """

    def live(self) -> int:
        """Obey the owner record until it says exit; return the process's exit code."""
        try:
            while (directive := self._follower.directive()) is not Directive.EXIT:
                self._pulse.turn()
                self._step(directive)
                catching_up = (
                    self._follower.report.state is State.RUNNING and not self._follower.report.caught_up
                )
                self._follower.wait(QUICK_SECONDS if catching_up else STEADY_SECONDS)
            self._follower.enter(State.STOPPED, stopped_at=self._receipt())
        except FencedError as error:
            self._follower.enter(State.FENCED, error=error_text(error))
        except Exception as error:
            log.exception("the incarnation failed")
            # a process that was asked to stop may lose its slots first, which is no failure
            self._follower.enter(
                State.STOPPED if self._follower.leaving else State.FAILED, error=error_text(error)
            )
        return EXIT_CODES[self._follower.report.state]

    def _step(self, directive: Directive) -> None:
        if self._follower.report.state is State.WARMING and directive is not Directive.STANDBY:
            self._follower.enter(State.READY)  # the warm-up ends early, for there is no more time
        state = self._follower.report.state
        if directive is Directive.STANDBY:
            self._stand_by(state)
        elif directive is Directive.RUN:
            self._serve(state)
        elif state is not State.PAUSED:
            self._hold(state)
            self._was_paused = True

    def _serve(self, state: State) -> None:
        if self._refused_epoch == self._follower.epoch:
            return
        try:
            self._workers.pause_only(self._follower.paused_workers, self._follower.active_workers)
            self._follower.note(
                workers=self._workers.receipts(), spare_workers=tuple(sorted(self._workers.spares))
            )
            self._look_at_first_tasks()
            if state is not State.RUNNING and not self._services.done(self._run):
                return
            self._engine.check()
            self._engine.tick()
            self._take_over()
            self._measure()
            self._report_flow()
        except FencedError as error:
            refused = self._follower.epoch
            self._follower.read_owner()
            if (
                self._follower.directive() is Directive.RUN
                and self._follower.epoch == refused
                and not self._follower.hands_over
            ):
                raise
            log.info("another incarnation has taken over; this one pauses", refused=str(error))
            self._refused_epoch = self._follower.epoch if self._follower.hands_over else refused
            self._hold(self._follower.report.state)

    def _look_at_first_tasks(self) -> None:
        self._workers.look_at_first_tasks(records_wait=self._records_may_wait())
        self._follower.note(first_tasks=self._workers.first_tasks)

    def _records_may_wait(self) -> bool:
        """Tell whether workers that have read no record may yet have records to read.

        While records are not measured: during the warm-up, and after one that read records.
        """
        if self._follower.report.state is State.READY:
            return any(self._workers.first_tasks.values())
        return self._flow.looked is None or any(self._flow.waiting.values())

    def _stand_by(self, state: State) -> None:
        if state is State.STARTING:
            self._follower.enter(State.WARMING)
        if state in {State.STARTING, State.WARMING}:
            if self._services.done(self._warm):
                self._follower.enter(State.READY)
        elif state is State.RUNNING:
            self._hold(state)
        elif state is State.READY:
            self._look_at_first_tasks()

    def _warm(self) -> None:
        begun = time.monotonic()
        self._engine.warm(self._still_waiting)
        log.info("the warm-up is over", seconds=round(time.monotonic() - begun, 1))

    def _still_waiting(self) -> bool:
        self._pulse.turn()
        self._look_at_first_tasks()
        self._follower.read_owner()
        return self._follower.directive() is Directive.STANDBY

    def _run(self) -> None:
        self._beside_owner = self._states.wanted and not self._follower.owns
        left = self._follower.furthest_stop_receipt() if self._states.wanted else None
        if left is not None and left != self._receipt_at_start:
            self._states.take(left.internal)
        self._receipt_at_start = left
        receipt = self._engine.run()
        self._follower.note(started_from=receipt, caught_up=False, measured=False, pressure=None)
        self._follower.enter(State.RUNNING)

    def _hold(self, state: State) -> None:
        receipt = self._halt() if state is State.RUNNING else None
        self._follower.note(away=None, hung=None)  # a paused incarnation waits for no service
        self._follower.enter(State.PAUSED, stopped_at=receipt)
        self._engine.idle_work()

    def _receipt(self) -> Receipt | None:
        if self._follower.report.state is State.RUNNING:
            return self._halt()
        return self._follower.report.stopped_at

    def _halt(self) -> Receipt:
        """Stop the query, and return its receipt with the tier's internal state."""
        with self._pulse.resting():
            return self._stop()

    def _stop(self) -> Receipt:
        self._states.hooks.pause()
        receipt = self._engine.hold()
        self._report_flow(held=True)
        content = self._states.hooks.get_internal_state()
        internal = self._states.leave(
            self._follower.incarnation, self._engine.internal_state(receipt) if content is None else content
        )
        return receipt.model_copy(update={"internal": internal})

    def _take_over(self) -> None:
        """Take the internal state of the former owner once that has stopped, if this incarnation
        ran beside it.
        """
        now = time.monotonic()
        if not self._beside_owner or not self._follower.owns or now < self._receipt_looked_at + LEFT_SECONDS:
            return
        self._receipt_looked_at = now
        left = self._follower.furthest_stop_receipt()
        if left is not None and left != self._receipt_at_start:
            self._states.take(left.internal)
            self._beside_owner = False

    def _report_flow(self, *, held: bool = False) -> None:
        """Report the counts: once after TRIAL_SECONDS as owner, after each failure of the query,
        and when held.
        """
        now, flow, reported = time.monotonic(), self._flow, self._follower.report.flowed
        if self._follower.owns and not held:
            self._owned_since = self._owned_since or now
        if self._owned_since is None:
            return
        seconds = now - self._owned_since
        tried = reported is not None and reported.seconds >= TRIAL_SECONDS
        counted = (sum(flow.records_in.values()), sum(flow.records_out.values()), flow.quarantined)
        if (
            held
            or flow.restarts > (reported.restarts if reported is not None else 0)
            or (seconds >= TRIAL_SECONDS and not tried)
        ):
            records_in, records_out, quarantined = (
                count - before for count, before in zip(counted, self._counts_at_hold, strict=True)
            )
            self._follower.note(
                flowed=Flowed(
                    seconds=round(seconds, 1),
                    records_in=records_in,
                    records_out=records_out,
                    quarantined=quarantined,
                    waiting=sum(flow.lag.values()),
                    restarts=flow.restarts,
                    error=flow.failure,
                )
            )
        if held:
            self._owned_since, self._counts_at_hold = None, counted

    def _measure(self) -> None:
        if not self._follower.report.caught_up and self._engine.caught_up():
            self._follower.note(caught_up=True)
            log.info("the incarnation has caught up")
        if settled := self._engine.settled():
            logs = self._engine.logs()
            self._follower.note(
                settled=Receipt(positions=settled, streams=logs.streams, epochs=logs.epochs, at=time.time())
            )
        silent = self._engine.silence()
        if silent is not None and self._follower.report.silent_seconds is None:
            self._follower.note(silent_seconds=round(silent, 3))
        gap = self._engine.gap()
        if gap is not None:
            self._workers.note_gap(round(gap, 3))
            # After a stop or a pause that somebody asked for, the time without output is no fault.
            planned = self._follower.after_stop or self._was_paused
            if self._follower.report.gap_seconds is None and not planned:
                self._follower.note(gap_seconds=round(gap, 3))
        if self._flow.looked is not None:
            self._follower.note(measured=True, pressure=self._flow.pressure)
        self._follower.note(
            metered=self._flow.metered,
            rate_taken=self._flow.rate_taken,
            unread=self._flow.unread,
            away=self._flow.waits_for,
            narrow=self._flow.narrow,
        )
        self._follower.note(hung=None if self._flow.hung is None else self._flow.hung.sentence)
