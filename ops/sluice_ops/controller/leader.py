"""The process around `decide`: elected, fenced by an epoch, woken by watches, and stopping at once when its session is in doubt."""

import gc
import threading
import time
from collections.abc import Callable, Iterable
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
from sluice_ops.controller.controller_metrics import ControllerMetrics
from sluice_ops.controller.decide import Decision, decide
from sluice_ops.controller.joining import Joining
from sluice_ops.controller.pass_state import Moment
from sluice_ops.controller.prune import prune
from sluice_ops.controller.split_writes import portions
from sluice_ops.model import paths
from sluice_ops.model.access import Credential
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.ids import HostName
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.process.durations import TimestampAges
from sluice_ops.process.watchdog import Limits, Watchdog
from sluice_ops.snapshot.mirror import Mirror
from sluice_ops.snapshot.stamps import stamps
from sluice_ops.snapshot.view import MENDED_BY, View, look, rests_on

log = structlog.get_logger()

PERIOD_SECONDS = 10.0
"""The longest sleep. By then a part of what is known has grown old and is read anew."""
HEAL_NODES = 1000
"""How many nodes are read anew in each period: all of them on a hundred hosts, and on ten thousand a part, for reading takes its time."""
BUSY_SECONDS = 1.0
"""The longest sleep while something is under way."""
LOST_SECONDS = 12.0
"""How long a host's agent may be away, its session ended, before the host counts as lost: an agent that was killed is back by then."""
CONFLICT_SECONDS = 0.02
"""Before it is decided again, when something has changed meanwhile; twice as long each time in a row."""
FAILED_SECONDS = 10.0
"""After an error that nobody foresaw, before it stands for election again: another one, perhaps of another version, has its turn."""
PRUNE_SECONDS = 60.0
TOLD_CHARACTERS = 300
"""Of an error that nobody foresaw, on one line; the rest is in the log."""
HANGS = Limits(busy=120.0, idle=6.0)
"""How long the working loop may make no turn. A pass over ten thousand hosts runs for seconds; one whose thread only sleeps, and not in
ZooKeeper's client, never goes on."""
ELECTION_SECONDS = 2.0
"""How often a standby looks up from the queue, to see whether it is told to stop."""


NEW_OBJECTS = 100_000
"""How many are made before Python looks for cycles among them. A pass on thousands of hosts makes that many, without a cycle, and with the
usual 700 a third of its time went into looking."""


def collect_seldom() -> None:
    """Have this process look for garbage as seldom as suits passes over many hosts."""
    gc.set_threshold(NEW_OBJECTS)


@dataclass(frozen=True)
class Term:
    """One leadership: what was written under it, and by which session it was won."""

    epoch: int
    version: int
    session: int | None


class Deposed(Exception):  # noqa: N818 - it is news, not an error
    """Its session is gone or another one leads: decide nothing more, stand for election again."""


FORESEEN = (Deposed, ChannelAwayError, ConflictError, KazooException)
"""After these it stands for election again at once."""


class Controller:
    """Stands for election, and while it leads makes one pass after the other."""

    def __init__(
        self,
        channel: Channel,
        name: str,
        rules: Callable[[], Rules],
        lost_seconds: float = LOST_SECONDS,
        credential: Credential | None = None,
    ) -> None:
        """Work on `channel` under the rules that the site file has at each pass; hosts that join need its `credential`."""
        self._channel = channel
        self._name = name
        self._rules = rules
        self._waker = Waker(channel)
        self._mirror = Mirror(channel)
        self._joining = None if credential is None else Joining(channel, self._mirror, credential)
        self._absences = Absences(lost_seconds)
        self._ages = TimestampAges()
        self._settled: View | None = None
        self._lock: Lock = channel.kazoo.Lock(paths.LEADER, name)
        self._stopping = threading.Event()
        self._watchdog = Watchdog("controller", HANGS, ("kazoo",), give_up=self._lose)
        self._said = ""
        self._healed = self._forgot = time.monotonic()
        self.metrics = ControllerMetrics()

    def stop(self) -> None:
        """End after the pass that is under way. May be called from a signal handler."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Make the next pass now."""
        self._waker.set()

    def run(self) -> None:
        """Stand by, lead, stand by again, until told to stop."""
        self._watchdog.start()
        try:
            while not self._stopping.is_set():
                self._stand()
        finally:
            self._watchdog.stop()

    def _stand(self) -> None:
        """Stand by and lead once."""
        try:
            self._serve()
        except FORESEEN as reason:
            self._say(f"does not lead: {reason or type(reason).__name__}")
            self._rest(BUSY_SECONDS)
        except Exception as error:
            # To end would be no better: whoever starts it again starts the same on the same channel, and so on without a pause.
            self._said = f"has failed: {_told(error)}"
            log.exception(self._said, name=self._name, again_in_seconds=FAILED_SECONDS)
            self._mirror.stale(None)
            self._rest(FAILED_SECONDS)

    def _rest(self, seconds: float) -> None:
        with self._watchdog.resting():
            self._stopping.wait(seconds)

    def _lose(self) -> None:
        """Give up the session, and with it the lead: the loop hangs, and another one is to go on at once."""
        self._channel.kazoo.stop()

    def _serve(self) -> None:
        """Wait for the leader's lock, then lead for as long as this session holds it."""
        if not self._channel.connected:
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)
        self._give_back()
        self._say("stands by")
        try:
            self._look()  # a standby knows all that the leader knows, and goes on from there at once
            gc.freeze()  # and nobody looks for garbage in what it knows
            while not self._acquired():
                if self._stopping.is_set():
                    return
                self._look()
            term = self._take_office(self._channel.session)
            try:
                self._lead(term)
            except FORESEEN:
                raise
            except Exception as error:
                self._admit(term, error)
                raise
        finally:
            self.metrics.stands_by()
            self._give_back()

    def _admit(self, term: Term, error: Exception) -> None:
        """Say what has failed where everybody looks: of the tiers, what was said before."""
        where = "its log says where (`sluice logs controller`)"
        sentence = (
            f"decides nothing: controller {self._name} has failed and tries again, {where}: {_told(error)}"
        )
        try:
            before = self._channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
            last = ControllerStatus(leader="", epoch=0, at=0, sentence="") if before is None else before.value
            said = last.model_copy(
                update={"leader": self._name, "epoch": term.epoch, "at": time.time(), "sentence": sentence}
            )
            version = ANY_VERSION if self._channel.exists(paths.CONTROLLER_STATUS) else None
            self._channel.multi(
                [Guard(paths.EPOCH, term.version), Write(paths.CONTROLLER_STATUS, said, version)]
            )
        except FORESEEN as reason:
            log.warning("what has failed is not in the status", reason=str(reason))

    def _acquired(self) -> bool:
        try:
            self._watchdog.turn()
            return bool(self._lock.acquire(timeout=ELECTION_SECONDS))
        except LockTimeout:
            return False

    def _give_back(self) -> None:
        """Leave the queue. Without a connection that is done before the next attempt, or else the session's end does it.

        One lock for all attempts: it finds its own place in the queue again after an outage, and so never waits for itself.
        """
        if self._channel.connected:
            try:
                self._lock.release()
            except KazooException as error:
                log.warning("the leader's lock is given back later", error=repr(error))

    def _take_office(self, session: int | None) -> Term:
        """Raise the epoch: from here on nothing that an earlier leader has still to write is accepted."""
        found = self._channel.read(paths.EPOCH, EpochRecord)
        epoch, version = self._lost_epoch() if found is None else (found.value.epoch, found.version)
        epoch += 1
        self._channel.multi([Write(paths.EPOCH, EpochRecord(epoch=epoch, leader=self._name), version)])
        self._absences.forget()
        self._settled = None
        log.info("leads", name=self._name, epoch=epoch)
        return Term(epoch, 0 if version is None else version + 1, session)

    def _lost_epoch(self) -> tuple[int, int | None]:
        """Return the last epoch that anybody has told of, and the version of the node that does not say it; none where there is no node.

        What fences is the version, which goes on growing when the node is written over. It is for people that the number does too.
        """
        version = self._channel.version(paths.EPOCH)
        told = self._channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        if version is not None:
            log.warning("the epoch cannot be read: it is written anew", path=paths.EPOCH, name=self._name)
        return (0 if told is None else told.value.epoch), version

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
                self._look_into(term, conflict)
                self._rest(min(BUSY_SECONDS, CONFLICT_SECONDS * 2 ** min(conflicts, 10)))
                conflicts += 1
                continue
            except TooLargeError as error:
                self._admit(term, error)
                self._say(f"decides nothing: {error}")
                self._rest(FAILED_SECONDS)
                continue
            except ChannelAwayError as away:
                # Within the session the lock stays; whether it is the same session then, the next pass finds out.
                self._say(f"decides nothing: {away}")
                self._rest(BUSY_SECONDS)
                continue
            conflicts = 0
            with self._watchdog.resting():
                self._waker.wait(min(BUSY_SECONDS if under_way else PERIOD_SECONDS, self._absences.due()))

    def _look(self) -> View:
        now = time.monotonic()
        self._mirror.heal(round(HEAL_NODES * min(1.0, (now - self._healed) / PERIOD_SECONDS)))
        self._healed = now
        view = look(self._mirror, self._mirror)
        if now - self._forgot > PERIOD_SECONDS:
            self._forgot = now
            self._mirror.forget()
        self._ages.track(stamps(view))
        return view

    def _pass(self, term: Term) -> bool:
        """Look, decide, write; return whether something is under way."""
        session = self._channel.session
        if session is None:
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)
        if session != term.session:
            message = "its session has ended"
            raise Deposed(message)
        with self.metrics.phase("look"):
            view = self._look()
        with self.metrics.phase("decide"):
            moment = Moment(
                now=time.time(),
                lost=self._absences.lost(view),
                rules=self._rules(),
                braked_return=self._absences.coming(),
                known_seconds=self._ages.ages(),
                baseline=self._settled,
            )
            held = self._held(view)
            decision = held or decide(view, moment)
        if held is None and not decision.writes:
            self._settled = view
        writes = [*decision.writes, *self._status(view, decision, term)]
        if writes:
            with self.metrics.phase("write"):
                self._write(writes, view, term)
        self.metrics.passed(view, decision, term.epoch)
        self._say(decision.sentence)
        return decision.under_way or bool(decision.writes)

    def _held(self, view: View) -> Decision | None:
        """Decide nothing while something that every decision rests on cannot be read: a guess could stop what runs."""
        unreadable = [path for path in self._mirror.unreadable() if rests_on(path)]
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
        for portion in portions(writes, view):
            try:
                self._channel.multi([Guard(paths.EPOCH, term.version), *portion])
            finally:
                self._forget(portion)

    def _forget(self, writes: Iterable[Write]) -> None:
        """Read anew what was written, or was to be: no later pass may decide on what was there before."""
        for write in writes:
            self._mirror.written(write.path)
            if write.version is None or write.value is None:
                self._mirror.stale(write.path.rsplit("/", 1)[0])

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
        for said in (status, _short(status)):
            if before is not None and before.model_copy(update={"at": said.at}) == said:
                return []
            write = Write(paths.CONTROLLER_STATUS, said, version)
            if len(write.data) <= LARGEST_BYTES:
                return [write]
        log.error(
            "the status is too large for ZooKeeper, and is left as it was",
            path=paths.CONTROLLER_STATUS,
            bytes=len(write.data),
        )
        return []

    def _look_into(self, term: Term, conflict: ConflictError) -> None:
        """Something has changed under the decision: read anew; when it was the epoch, another one leads."""
        found = self._channel.read(paths.EPOCH, EpochRecord)
        if found is None or found.version != term.version:
            lost = f"{paths.EPOCH} is gone, or cannot be read: whoever leads next writes it anew"
            message = lost if found is None else f"{found.value.leader} has taken office since"
            raise Deposed(message)
        log.info("decides again: something changed meanwhile", conflict=str(conflict))
        if paths.CONTROLLER_STATUS in self._mirror.unreadable():
            status = ControllerStatus(
                leader=self._name,
                epoch=term.epoch,
                at=time.time(),
                sentence="what was here could not be read",
            )
            self._channel.multi(
                [Guard(paths.EPOCH, term.version), Write(paths.CONTROLLER_STATUS, status, ANY_VERSION)]
            )
            self._mirror.written(paths.CONTROLLER_STATUS)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            log.info(sentence, name=self._name)


def _short(status: ControllerStatus) -> ControllerStatus:
    """Leave out what may be long, where all of it is too large for a node."""
    tiers = {
        name: tier.model_copy(update={"sentence": tier.sentence[:TOLD_CHARACTERS], "error": None})
        for name, tier in status.tiers.items()
    }
    sentence = f"what is said of the tiers is too long for {paths.CONTROLLER_STATUS}, and cut short: {status.sentence}"
    return status.model_copy(update={"sentence": sentence[: 10 * TOLD_CHARACTERS], "tiers": tiers})


def _told(error: Exception) -> str:
    """Put an error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:TOLD_CHARACTERS]


class Absences:
    """Since when each host's agent is away, on this process' own clock; a new leader counts anew."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Count a host as lost after so many seconds."""
        self._seconds = seconds
        self._clock = clock
        self._since: dict[HostName, float] = {}
        self._told: frozenset[HostName] = frozenset()
        self._back = -inf
        self._coming = False

    def forget(self) -> None:
        """Count anew."""
        self._since.clear()
        self._told = frozenset()
        self._back = -inf

    def lost(self, view: View) -> frozenset[HostName]:
        """Return the hosts that count as lost now."""
        now = self._clock()
        away = {name for name, host in view.hosts.items() if not host.live}
        if view.status is not None and not away.issuperset(view.status.braked):
            self._back = now
        self._coming = now < self._back + self._seconds
        self._since = {name: self._since.get(name, now) for name in away}
        self._told = frozenset(name for name, since in self._since.items() if now - since >= self._seconds)
        return self._told

    def coming(self) -> bool:
        """Tell whether one that the brake held was back a moment before `lost` was asked: others may follow."""
        return self._coming

    def due(self) -> float:
        """Return in how many seconds the next host counts as lost, or none is coming any more: at once where that was so since `lost`."""
        begun = [since for name, since in self._since.items() if name not in self._told]
        if self._coming:
            begun.append(self._back)
        return max(0.0, min(begun, default=inf) + self._seconds - self._clock())
