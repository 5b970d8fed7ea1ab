"""The controller process around `decide`: reads the channel, calls `decide`, and writes the result.

Controllers elect one leader through a ZooKeeper lock. The leader writes under its epoch, so
ZooKeeper refuses the writes of an older leader. Watches start a pass as soon as a node changes. A
leader stops deciding as soon as its ZooKeeper session is in doubt.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

import structlog
from kazoo.exceptions import KazooException, LockTimeout
from kazoo.recipe.lock import Lock

from sluice_ops.channel import (
    ANY_VERSION,
    Channel,
    ChannelAwayError,
    ConflictError,
    Guard,
    TooLargeError,
    Write,
)
from sluice_ops.channel.client import LARGEST_BYTES, Waker
from sluice_ops.controller.alerting.certificates import Certificates
from sluice_ops.controller.alerting.delivery import Delivery
from sluice_ops.controller.alerting.turn import Alerting
from sluice_ops.controller.controller_metrics import ControllerMetrics
from sluice_ops.controller.decide import Decision, decide
from sluice_ops.controller.joining import Joining
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.controller.prune import prune
from sluice_ops.controller.removal import removals
from sluice_ops.controller.scaling import Scaling
from sluice_ops.controller.split_writes import split_writes
from sluice_ops.model import paths
from sluice_ops.model.access import Credential
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.ids import HostName
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.process.durations import TimestampAges
from sluice_ops.process.watchdog import LoopLimits, Watchdog
from sluice_ops.snapshot.mirror import Mirror
from sluice_ops.snapshot.stamps import stamps
from sluice_ops.snapshot.view import MENDED_BY, View, is_needed_by_all, read_view

log = structlog.get_logger()

PERIOD_SECONDS = 10.0
"""The longest sleep between two passes. After this time the mirror reads its oldest nodes again."""
HEAL_NODES = 1000
"""How many nodes the mirror reads again in each period.

This is every node of a site with a hundred hosts. With ten thousand hosts this is a part, because
reading all nodes takes too long.
"""
BUSY_SECONDS = 1.0
"""The longest sleep between two passes while a change or a tier is under way."""
LOST_SECONDS = 12.0
"""How long a host's agent may be without a ZooKeeper session before the host counts as lost.

An agent that was killed is back within this time.
"""
CONFLICT_SECONDS = 0.02
"""Wait before the pass is repeated after a write conflict.

The wait doubles with each conflict in a row.
"""
FAILED_SECONDS = 10.0
"""Wait after an unexpected error before this controller stands for election again.

Another controller, perhaps of another version, can become leader in this time.
"""
PRUNE_SECONDS = 60.0
ERROR_CHARACTERS = 300
"""How much of an unexpected error the status shows, on one line. The log has the full error."""
HANGS = LoopLimits(busy=120.0, idle=6.0)
"""How long the main loop may make no turn before the watchdog ends the session.

A pass over ten thousand hosts runs for seconds. A thread that only sleeps outside ZooKeeper's
client hangs for good.
"""
ELECTION_SECONDS = 2.0
"""How often a standby in the election queue checks whether it has to stop."""

GC_THRESHOLD = 100_000
"""How many new objects Python allows before it looks for reference cycles.

A pass over thousands of hosts makes that many objects and no cycles. With Python's default of 700,
a third of the pass was garbage collection.
"""


def collect_rarely() -> None:
    """Let Python collect garbage rarely, which suits passes over many hosts."""
    gc.set_threshold(GC_THRESHOLD)


@dataclass(frozen=True)
class Term:
    """One leadership: its epoch, the version of the epoch's node, and the session that leads."""

    epoch: int
    version: int
    session: int | None
    began: float
    """On the monotonic clock."""


class Deposed(Exception):  # noqa: N818 - an event, not an error
    """The controller does not lead any more: its session has ended, or another controller leads.

    The controller decides nothing more and stands for election again.
    """


EXPECTED = (Deposed, ChannelAwayError, ConflictError, KazooException)
"""After these errors the controller stands for election again at once."""


class Controller:
    """Stands for election, and makes one pass after the other while it leads."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        channel: Channel,
        name: str,
        rules: Callable[[], Rules],
        lost_seconds: float = LOST_SECONDS,
        credential: Credential | None = None,
        delivery: Delivery | None = None,
        certificates: Sequence[str] = (),
    ) -> None:
        """Work on `channel` under the current rules of the site file.

        `rules` is called in each pass. Without `credential`, hosts cannot join through this
        controller. `delivery` sends the alerts; by default, apprise does. `certificates` are the
        files of certificates whose ends are watched.
        """
        self._channel = channel
        self._name = name
        self._rules = rules
        self._waker = Waker(channel)
        self._mirror = Mirror(channel)
        self._joining = None if credential is None else Joining(channel, self._mirror, credential)
        self._absences = Absences(lost_seconds)
        self._scaling = Scaling(channel)
        self._alerting = Alerting(channel, delivery or Delivery(), Certificates(certificates))
        self._ages = TimestampAges()
        self._baseline: View | None = None
        self._lock: Lock = channel.kazoo.Lock(paths.LEADER, name)
        self._stopping = threading.Event()
        self._watchdog = Watchdog("controller", HANGS, ("kazoo",), give_up=self._end_session)
        self._last_sentence = ""
        self._healed_at = self._forgot_at = time.monotonic()
        self.metrics = ControllerMetrics()

    def stop(self) -> None:
        """End after the present pass. May be called from a signal handler."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Start the next pass now."""
        self._waker.set()

    def run(self) -> None:
        """Stand by and lead in turns until `stop` is called."""
        self._watchdog.start()
        try:
            while not self._stopping.is_set():
                self._stand_once()
        finally:
            self._watchdog.stop()

    def _stand_once(self) -> None:
        """Stand by and lead once; log an error and wait after it."""
        try:
            self._serve()
        except EXPECTED as reason:
            self._say(f"controller does not lead: {reason or type(reason).__name__}")
            self._rest(BUSY_SECONDS)
        except Exception as error:
            # Exiting would not help: a restarted process would fail on the same channel, without a
            # pause.
            self._last_sentence = f"controller has failed: {_on_one_line(error)}"
            log.exception(self._last_sentence, name=self._name, again_in_seconds=FAILED_SECONDS)
            self._mirror.invalidate(None)
            self._rest(FAILED_SECONDS)

    def _rest(self, seconds: float) -> None:
        with self._watchdog.resting():
            self._stopping.wait(seconds)

    def _end_session(self) -> None:
        """End the ZooKeeper session, and with it the leadership: the main loop hangs.

        Another controller then becomes leader at once.
        """
        self._channel.kazoo.stop()

    def _serve(self) -> None:
        """Wait for the leader's lock, then lead for as long as this session holds it."""
        if not self._channel.connected:
            message = "ZooKeeper does not answer"
            raise ChannelAwayError(message)
        self._leave_queue()
        self._say("controller stands by")
        try:
            self._look()  # fills the mirror, so that this standby can lead at once
            gc.freeze()  # keeps the garbage collector away from the mirror's objects
            while not self._is_elected():
                if self._stopping.is_set():
                    return
                self._look()
            term = self._become_leader(self._channel.session)
            try:
                self._lead(term)
            except EXPECTED:
                raise
            except Exception as error:
                self._report_error(term, error)
                raise
        finally:
            self._alerting.stop()
            self.metrics.stands_by()
            self._leave_queue()

    def _report_error(self, term: Term, error: Exception) -> None:
        """Write an error into the controller's status; the tiers' statuses stay as they are."""
        sentence = (
            f"decides nothing: controller {self._name} failed and retries; "
            f"for the full error: sluice logs controller; error: {_on_one_line(error)}"
        )
        try:
            before = self._channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
            last = ControllerStatus(leader="", epoch=0, at=0, sentence="") if before is None else before.value
            status = last.model_copy(
                update={"leader": self._name, "epoch": term.epoch, "at": time.time(), "sentence": sentence}
            )
            version = ANY_VERSION if self._channel.exists(paths.CONTROLLER_STATUS) else None
            self._channel.multi(
                [Guard(paths.EPOCH, term.version), Write(paths.CONTROLLER_STATUS, status, version)]
            )
        except EXPECTED as reason:
            log.warning("the controller's error could not be written to the status", reason=str(reason))

    def _is_elected(self) -> bool:
        try:
            self._watchdog.turn()
            return bool(self._lock.acquire(timeout=ELECTION_SECONDS))
        except LockTimeout:
            return False

    def _leave_queue(self) -> None:
        """Leave the election queue.

        Without a connection, this happens before the next attempt, or ZooKeeper does it when the
        session ends. One lock object serves all attempts: after an outage it finds its own place in
        the queue again, so it never waits for itself.
        """
        if self._channel.connected:
            try:
                self._lock.release()
            except KazooException as error:
                log.warning(
                    "the leader lock could not be released; the next attempt releases it", error=repr(error)
                )

    def _become_leader(self, session: int | None) -> Term:
        """Raise the epoch: from now on ZooKeeper refuses all writes of earlier leaders."""
        epoch_node = self._channel.read(paths.EPOCH, EpochRecord)
        epoch, version = (
            self._lost_epoch() if epoch_node is None else (epoch_node.value.epoch, epoch_node.version)
        )
        epoch += 1
        self._channel.multi([Write(paths.EPOCH, EpochRecord(epoch=epoch, leader=self._name), version)])
        self._absences.forget()
        self._scaling.forget()
        self._alerting.forget()
        self._baseline = None
        log.info("controller leads", name=self._name, epoch=epoch)
        return Term(epoch, 0 if version is None else version + 1, session, time.monotonic())

    def _lost_epoch(self) -> tuple[int, int | None]:
        """Return the last known epoch from the status, and the version of the epoch node.

        The version is None if the node is missing. The version does the fencing: it grows when the
        node is overwritten. The number grows too, for people who read it.
        """
        version = self._channel.version(paths.EPOCH)
        status = self._channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        if version is not None:
            log.warning(
                "the epoch cannot be read; this leader writes it again", path=paths.EPOCH, name=self._name
            )
        return (0 if status is None else status.value.epoch), version

    def _lead(self, term: Term) -> None:
        epoch = Guard(paths.EPOCH, term.version)
        pruned = time.monotonic()
        conflicts = 0
        while not self._stopping.is_set():
            self._watchdog.turn()
            try:
                under_way = self._pass(term)
                if time.monotonic() - pruned > PRUNE_SECONDS:
                    pruned = time.monotonic()
                    prune(self._channel, self._look(), epoch)
                if self._joining is not None:
                    self._joining.serve(epoch)
            except ConflictError as conflict:
                self.metrics.conflict()
                self._resolve_conflict(term, conflict)
                self._rest(min(BUSY_SECONDS, CONFLICT_SECONDS * 2 ** min(conflicts, 10)))
                conflicts += 1
                continue
            except TooLargeError as error:
                self._report_error(term, error)
                self._say(f"decides nothing: {error}")
                self._rest(FAILED_SECONDS)
                continue
            except ChannelAwayError as away:
                # The lock stays while the session lives. The next pass checks whether the session
                # is the same.
                self._say(f"decides nothing: {away}")
                self._rest(BUSY_SECONDS)
                continue
            conflicts = 0
            with self._watchdog.resting():
                self._waker.wait(min(BUSY_SECONDS if under_way else PERIOD_SECONDS, self._absences.due()))

    def _look(self) -> View:
        now = time.monotonic()
        self._mirror.invalidate_oldest(round(HEAL_NODES * min(1.0, (now - self._healed_at) / PERIOD_SECONDS)))
        self._healed_at = now
        view = read_view(self._mirror, self._mirror)
        if now - self._forgot_at > PERIOD_SECONDS:
            self._forgot_at = now
            self._mirror.forget_missing()
        self._ages.track(stamps(view))
        return view

    def _pass(self, term: Term) -> bool:
        """Look, decide and write; return whether a change or a tier is under way."""
        session = self._channel.session
        if session is None:
            message = "ZooKeeper does not answer"
            raise ChannelAwayError(message)
        if session != term.session:
            message = "its ZooKeeper session has ended"
            raise Deposed(message)
        with self.metrics.phase("look"):
            view = self._look()
        with self.metrics.phase("decide"):
            inputs = PassInputs(
                now=time.time(),
                lost=self._absences.lost(view),
                rules=self._rules(),
                braked_return=self._absences.braked_return(),
                known_seconds=self._ages.ages(),
                led_seconds=time.monotonic() - term.began,
                baseline=self._baseline,
            )
            blocked = self._blocked(view)
            decision = blocked or decide(view, inputs)
        if blocked is None and not decision.writes:
            self._baseline = view
        writes = [*decision.writes, *self._status(view, decision, term)]
        if writes:
            with self.metrics.phase("write"):
                self._write(writes, view, term)
        self.metrics.passed(view, decision, term.epoch)
        if blocked is None:
            self._scaling.turn(view, inputs, Guard(paths.EPOCH, term.version))
        self._alert(view, decision, inputs, term, blocked=blocked is not None)
        if removed := removals(self._channel, view):
            self._channel.multi([Guard(paths.EPOCH, term.version), *removed])
        self._say(decision.sentence)
        return decision.under_way or bool(decision.writes)

    def _alert(
        self, view: View, decision: Decision, inputs: PassInputs, term: Term, *, blocked: bool
    ) -> None:
        """Look for alerts. An unexpected error there stops no decision."""
        try:
            self._alerting.turn(view, decision, inputs, Guard(paths.EPOCH, term.version), blocked=blocked)
        except (*EXPECTED, TooLargeError):
            raise
        except Exception:
            log.exception("the alerts could not be looked at; the controller goes on", name=self._name)

    def _blocked(self, view: View) -> Decision | None:
        """Return a decision without writes while a node that every decision needs cannot be read.

        A guess at the node's value could stop units that run. None if all these nodes can be read.
        """
        unreadable = [path for path in self._mirror.unreadable() if is_needed_by_all(path)]
        if not unreadable:
            return None
        sentence = f"decides nothing: {listed(unreadable)} cannot be read; {MENDED_BY}"
        before = view.status
        return Decision(
            (),
            sentence,
            {} if before is None else before.tiers,
            under_way=False,
            braked=() if before is None else before.braked,
        )

    def _write(self, writes: list[Write], view: View, term: Term) -> None:
        for request in split_writes(writes, view):
            try:
                self._channel.multi([Guard(paths.EPOCH, term.version), *request])
            finally:
                self._reread(request)

    def _reread(self, writes: Iterable[Write]) -> None:
        """Have the mirror read these nodes again, so that no later pass decides on old values."""
        for write in writes:
            self._mirror.invalidate_written(write.path)
            if write.version is None or write.value is None:
                self._mirror.invalidate(write.path.rsplit("/", 1)[0])

    def _status(self, view: View, decision: Decision, term: Term) -> list[Write]:
        status = ControllerStatus(
            leader=self._name,
            epoch=term.epoch,
            at=time.time(),
            sentence=decision.sentence,
            tiers=decision.tiers,
            braked=decision.braked,
        )
        before = view.status
        version = view.versions.get(paths.CONTROLLER_STATUS)
        for candidate in (status, _shortened(status)):
            if before is not None and before.model_copy(update={"at": candidate.at}) == candidate:
                return []
            write = Write(paths.CONTROLLER_STATUS, candidate, version)
            if len(write.data) <= LARGEST_BYTES:
                return [write]
        log.error(
            "the status is too large for ZooKeeper; the old status stays",
            path=paths.CONTROLLER_STATUS,
            bytes=len(write.data),
        )
        return []

    def _resolve_conflict(self, term: Term, conflict: ConflictError) -> None:
        """Handle a node that changed during the pass: the next pass reads it again.

        Raise Deposed if the node is the epoch: another controller leads now.
        """
        epoch_node = self._channel.read(paths.EPOCH, EpochRecord)
        if epoch_node is None or epoch_node.version != term.version:
            lost = f"{paths.EPOCH} is missing or cannot be read; the next leader writes it again"
            message = lost if epoch_node is None else f"{epoch_node.value.leader} has become leader"
            raise Deposed(message)
        log.info("a node changed during the pass; the pass is repeated", conflict=str(conflict))
        if paths.CONTROLLER_STATUS in self._mirror.unreadable():
            status = ControllerStatus(
                leader=self._name,
                epoch=term.epoch,
                at=time.time(),
                sentence="the old status could not be read; the next pass writes a new one",
            )
            self._channel.multi(
                [Guard(paths.EPOCH, term.version), Write(paths.CONTROLLER_STATUS, status, ANY_VERSION)]
            )
            self._mirror.invalidate_written(paths.CONTROLLER_STATUS)

    def _say(self, sentence: str) -> None:
        if sentence != self._last_sentence:
            self._last_sentence = sentence
            log.info(sentence, name=self._name)


def _shortened(status: ControllerStatus) -> ControllerStatus:
    """Cut sentences and leave errors out, for a status that is too large for a node."""
    tiers = {
        name: tier.model_copy(update={"sentence": tier.sentence[:ERROR_CHARACTERS], "error": None})
        for name, tier in status.tiers.items()
    }
    sentence = f"the status is too long for {paths.CONTROLLER_STATUS} and was cut short: {status.sentence}"
    return status.model_copy(update={"sentence": sentence[: 10 * ERROR_CHARACTERS], "tiers": tiers})


def _on_one_line(error: Exception) -> str:
    """Return the error's type and text on one line, cut to `ERROR_CHARACTERS`."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:ERROR_CHARACTERS]


class Absences:
    """Measures how long each host's agent has been away, on this process' monotonic clock.

    A new leader starts to count again.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Count a host as lost after this many seconds. `clock` must be monotonic."""
        self._seconds = seconds
        self._clock = clock
        self._since: dict[HostName, float] = {}
        self._lost: frozenset[HostName] = frozenset()
        self._returned_at = -inf
        self._braked_return = False

    def forget(self) -> None:
        """Start to count again, as a new leader."""
        self._since.clear()
        self._lost = frozenset()
        self._returned_at = -inf

    def lost(self, view: View) -> frozenset[HostName]:
        """Return the hosts that are lost now."""
        now = self._clock()
        away = {name for name, host in view.hosts.items() if not host.live}
        if view.status is not None and not away.issuperset(view.status.braked):
            self._returned_at = now
        self._braked_return = now < self._returned_at + self._seconds
        self._since = {name: self._since.get(name, now) for name in away}
        self._lost = frozenset(name for name, since in self._since.items() if now - since >= self._seconds)
        return self._lost

    def braked_return(self) -> bool:
        """Tell whether a braked host was back just before `lost`: others may follow."""
        return self._braked_return

    def due(self) -> float:
        """Return the seconds until the next host counts as lost, or until `braked_return` is over.

        0 if this has happened since the last call of `lost`.
        """
        starts = [since for name, since in self._since.items() if name not in self._lost]
        if self._braked_return:
            starts.append(self._returned_at)
        return max(0.0, min(starts, default=inf) + self._seconds - self._clock())
