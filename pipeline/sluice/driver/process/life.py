"""The life of an incarnation: it follows the owner record, has its engine warm, run, hold and stop, and says how it is."""

import time
from typing import TYPE_CHECKING

import structlog

from sluice.driver.control.wait_for_services import Patience
from sluice.failures import error_text
from sluice.sinks.ledger import FencedError
from sluice_ops.model.incarnation import TRIAL_SECONDS, Directive, Flowed, Receipt, State

if TYPE_CHECKING:
    from sluice.driver.control.control_channel import Follow
    from sluice.driver.counters import Flow
    from sluice.driver.engine.contract import Engine
    from sluice.driver.process.heartbeat import Pulse
    from sluice.driver.spark.workers import Workers
    from sluice.driver.state.hook_state import InternalStates

log = structlog.get_logger()

QUICK_SECONDS = 0.05
"""Between two looks at the query until it has caught up."""
STEADY_SECONDS = 0.25
LEFT_SECONDS = 1.0
"""Between two looks for the receipt of the owner that was taken over from."""
EXIT_CODES = {State.STOPPED: 0, State.FAILED: 1, State.FENCED: 3}


class Life:
    """One incarnation, from its session on."""

    def __init__(  # noqa: PLR0913, PLR0917 — what it ties together
        self,
        follow: "Follow",
        engine: "Engine",
        states: "InternalStates",
        flow: "Flow",
        workers: "Workers",
        pulse: "Pulse",
    ) -> None:
        """Tie them together; in `flow` is counted what goes through, and `pulse` is told of each turn."""
        self._follow = follow
        self._engine = engine
        self._states = states
        self._flow = flow
        self._workers = workers
        self._pulse = pulse
        self._patience = Patience(follow)
        self._owned: float | None = None
        """Since when it has owned the tier and run, on the monotonic clock."""
        self._counted = (0, 0, 0)
        """What had gone through when it was held last: in, out, and to quarantine."""
        self._beside = False
        """It was begun beside an owner that has not left its internal state yet."""
        self._left: Receipt | None = None
        """What had been left when it last began to run."""
        self._looked = 0.0
        self._refused: int | None = None
        """The right that was not good enough: the next incarnation has taken over, and the owner record does not say so yet."""

    def live(self) -> int:
        """Do what is told until told to exit; return the process's exit code."""
        try:
            while (told := self._follow.told()) is not Directive.EXIT:
                self._pulse.turn()
                self._step(told)
                catching_up = self._follow.report.state is State.RUNNING and not self._follow.report.caught_up
                self._follow.wait(QUICK_SECONDS if catching_up else STEADY_SECONDS)
            self._follow.enter(State.STOPPED, stopped_at=self._receipt())
        except FencedError as error:
            self._follow.enter(State.FENCED, error=error_text(error))
        except Exception as error:
            log.exception("failed")
            # whoever is to end may lose its slots first, for which nobody has to be alerted
            self._follow.enter(
                State.STOPPED if self._follow.leaving else State.FAILED, error=error_text(error)
            )
        return EXIT_CODES[self._follow.report.state]

    def _step(self, told: Directive) -> None:
        if self._follow.report.state is State.WARMING and told is not Directive.STANDBY:
            self._follow.enter(State.READY)  # as warm as it was to be: there is no time left for more
        state = self._follow.report.state
        if told is Directive.STANDBY:
            self._stand_by(state)
        elif told is Directive.RUN:
            self._serve(state)
        elif state is not State.PAUSED:
            self._hold(state)

    def _serve(self, state: State) -> None:
        if self._refused == self._follow.epoch:
            return
        try:
            self._workers.tell(self._follow.paused_workers)
            self._follow.note(workers=self._workers.receipts())
            if state is not State.RUNNING and not self._patience.done(self._run):
                return
            self._engine.check()
            self._engine.tick()
            self._take_over()
            self._measure()
            self._tell()
        except FencedError as error:
            refused = self._follow.epoch
            self._follow.look()
            if (
                self._follow.told() is Directive.RUN
                and self._follow.epoch == refused
                and not self._follow.hands_over
            ):
                raise
            log.info("another has taken over", refused=str(error))
            self._refused = self._follow.epoch if self._follow.hands_over else refused
            self._hold(self._follow.report.state)

    def _stand_by(self, state: State) -> None:
        if state is State.STARTING:
            self._follow.enter(State.WARMING)
        if state in {State.STARTING, State.WARMING}:
            if self._patience.done(self._warm):
                self._follow.enter(State.READY)
        elif state is State.RUNNING:
            self._hold(state)

    def _warm(self) -> None:
        begun = time.monotonic()
        self._engine.warm(self._still_waiting)
        log.info("warm", seconds=round(time.monotonic() - begun, 1))

    def _still_waiting(self) -> bool:
        self._pulse.turn()
        self._follow.look()
        return self._follow.told() is Directive.STANDBY

    def _run(self) -> None:
        self._beside = self._states.wanted and not self._follow.owns
        left = self._follow.left() if self._states.wanted else None
        if left is not None and left != self._left:
            self._states.take(left.internal)
        self._left = left
        receipt = self._engine.run()
        self._follow.note(started_from=receipt, caught_up=False, measured=False, pressure=None)
        self._follow.enter(State.RUNNING)

    def _hold(self, state: State) -> None:
        receipt = self._halt() if state is State.RUNNING else None
        self._follow.note(away=None, hung=None)  # it waits for nothing but its turn
        self._follow.enter(State.PAUSED, stopped_at=receipt)
        self._engine.rest()

    def _receipt(self) -> Receipt | None:
        if self._follow.report.state is State.RUNNING:
            return self._halt()
        return self._follow.report.stopped_at

    def _halt(self) -> Receipt:
        """Have the query and the tier stop; return the receipt, with what the tier has left."""
        with self._pulse.resting():
            return self._stop()

    def _stop(self) -> Receipt:
        self._states.hooks.pause()
        receipt = self._engine.hold()
        self._tell(held=True)
        content = self._states.hooks.get_internal_state()
        left = self._states.leave(
            self._follow.me, self._engine.internal_state(receipt) if content is None else content
        )
        return receipt.model_copy(update={"internal": left})

    def _take_over(self) -> None:
        """Take what the owner has left, beside which this one ran, once that has stopped."""
        now = time.monotonic()
        if not self._beside or not self._follow.owns or now < self._looked + LEFT_SECONDS:
            return
        self._looked = now
        left = self._follow.left()
        if left is not None and left != self._left:
            self._states.take(left.internal)
            self._beside = False

    def _tell(self, *, held: bool = False) -> None:
        """Say what has gone through: once, after a while as the owner, and when its query has failed, or it is held."""
        now, flow, said = time.monotonic(), self._flow, self._follow.report.flowed
        if self._follow.owns and not held:
            self._owned = self._owned or now
        if self._owned is None:
            return
        seconds = now - self._owned
        tried = said is not None and said.seconds >= TRIAL_SECONDS
        counted = (sum(flow.records_in.values()), sum(flow.records_out.values()), flow.quarantined)
        if (
            held
            or flow.restarts > (said.restarts if said is not None else 0)
            or (seconds >= TRIAL_SECONDS and not tried)
        ):
            records_in, records_out, quarantined = (
                each - before for each, before in zip(counted, self._counted, strict=True)
            )
            self._follow.note(
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
            self._owned, self._counted = None, counted

    def _measure(self) -> None:
        if not self._follow.report.caught_up and self._engine.caught_up():
            self._follow.note(caught_up=True)
            log.info("caught up")
        if settled := self._engine.settled():
            logs = self._engine.logs()
            self._follow.note(
                settled=Receipt(positions=settled, streams=logs.streams, epochs=logs.epochs, at=time.time())
            )
        gap = self._engine.gap()
        if gap is not None and self._follow.report.gap_seconds is None:
            self._follow.note(gap_seconds=round(gap, 3))
        if self._flow.looked is not None:
            self._follow.note(measured=True, pressure=self._flow.pressure)
        self._follow.note(
            metered=self._flow.metered,
            unread=self._flow.unread,
            away=self._flow.waits_for,
            narrow=self._flow.narrow,
        )
        self._follow.note(hung=None if self._flow.hung is None else self._flow.hung.sentence)
