"""Registers a running source in the control channel, so that people see it (decision 112).

A thread of its own writes to ZooKeeper. Records flow without ZooKeeper, too.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import structlog

from sluice.ingest.source import TakenOverError
from sluice_ops.channel import ANY_VERSION, Channel, ChannelAwayError, ConflictError, NotAllowedError, Write
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.ids import HostName
from sluice_ops.model.source import (
    EVERY_SECONDS,
    MOST_FAILURES,
    Failure,
    FileFigures,
    SourceFigures,
    SourceKind,
    SourceRecord,
    TakenOver,
    Trouble,
)
from sluice_ops.site.endpoints import Endpoints

log = structlog.get_logger()

TURN_SECONDS = 2.0
LEAVE_SECONDS = 5.0
"""The longest wait for ZooKeeper at the end of the process."""


class Measured(NamedTuple):
    """What a source has counted since its start."""

    records: int
    last: float | None
    refused: int
    waiting_bytes: int
    throttled: int = 0
    files: tuple[FileFigures, ...] = ()


def this_host() -> HostName:
    """Return the name of this machine: SLUICE_HOST, or what the machine calls itself."""
    return HostName(os.environ.get("SLUICE_HOST") or socket.gethostname())


def new_record(name: str, stream: str, kind: SourceKind, where: str) -> SourceRecord:
    """Return the record of a source of this process, which begins now."""
    return SourceRecord(
        name=name,
        stream=stream,
        kind=kind,
        where=where,
        host=this_host(),
        pid=os.getpid(),
        identity=uuid.uuid4().hex,
        since=time.time(),
    )


def failures_after(earlier: SourceRecord, *, is_there: bool, now: float) -> tuple[Failure, ...]:
    """Return the failures of a source that a process takes over from an earlier one.

    The earlier process has failed unless it is still there.
    """
    if is_there:
        return earlier.failures
    how = earlier.ended or "its process was gone, and left no message"
    return (*earlier.failures, Failure(at=now, how=how))[-MOST_FAILURES:]


class Registration:
    """Registers a source of this process, from the beginning of a `with` block to its end.

    Enter it once the source owns its name. If the block ends well, or after a signal, a person has
    stopped the source, and its node is deleted. After an error, the node says why.
    """

    def __init__(  # noqa: PLR0913 - what a source tells of itself
        self,
        where: Endpoints,
        record: SourceRecord,
        measure: Callable[[], Measured],
        trouble: Callable[[], Trouble | None],
        stop: threading.Event,
        *,
        metrics: str | None = None,
        follow: Callable[[Channel | None], None] = lambda _channel: None,
    ) -> None:
        """Prepare the registration. `stop` is set by a signal.

        `metrics` is the address of the source's metrics. `follow` is called every two seconds with
        the channel, or with None while ZooKeeper is away.
        """
        self._zookeeper, self._credential = where.zookeeper, where.credential(Role.SOURCE)
        self._record, self._measure, self._trouble = record, measure, trouble
        self._stop, self._metrics, self._follow = stop, metrics, follow
        self._over = threading.Event()
        self._ended: str | None = None
        """Why the process ends; None: somebody has asked for it."""
        self._is_taken = False
        """Whether another process has taken the source over."""
        self._session: int | None = None
        """The session in which the source is registered."""
        self._due, self._before = 0.0, (time.monotonic(), 0)
        self._is_other = self._is_away = False
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_taken = isinstance(error, TakenOverError)
        is_asked = error is None or (self._stop.is_set() and not self._is_taken)
        self._leave(None if is_asked else str(error) or repr(error))

    def hung(self) -> None:
        """Tell that the process ends because one of its loops hangs."""
        self._leave("one of its loops hung; the log has the stacks of all threads")

    def _leave(self, why: str | None) -> None:
        self._ended = why
        self._over.set()
        self._thread.join(LEAVE_SECONDS)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with Channel(self._zookeeper, self._credential) as channel:
                    self._turn(channel)
                    while not self._over.wait(TURN_SECONDS):
                        self._turn(channel)
                    self._end(channel)
            except (ChannelAwayError, ConflictError) as error:
                self._away(error)
                self._over.wait(TURN_SECONDS)

    def _turn(self, channel: Channel) -> None:
        try:
            self._follow(channel)
            trouble = self._trouble()
            is_changed = (trouble is None) != (self._record.trouble is None)
            is_new_session = self._session is not None and channel.session != self._session
            if is_changed or is_new_session or time.monotonic() >= self._due:
                self._record = self._record.model_copy(update={"trouble": trouble})
                self._report(channel)
                self._due = time.monotonic() + EVERY_SECONDS
                self._is_away = False
        except ConflictError:
            self._due = 0.0  # the session has ended, and with it the node
        except ChannelAwayError as error:
            self._away(error)
            self._due = time.monotonic() + EVERY_SECONDS

    def _away(self, error: Exception) -> None:
        """Go on without ZooKeeper; a refusal of this process leaves it readable."""
        if self._over.is_set():
            log.warning(
                "the end of the source was not written to ZooKeeper; if an alert misses the source, run "
                "`sluice ingest forget`",
                source=self._record.name,
                reason=str(error),
            )
            return
        if not isinstance(error, NotAllowedError):
            self._follow(None)
        if not self._is_away:
            log.warning(
                "the source is not registered in ZooKeeper, so `sluice status` does not show it; it goes on",
                source=self._record.name,
                reason=str(error),
            )
        self._is_away = True

    def _report(self, channel: Channel) -> None:
        """Write the record if it has changed, and the figures."""
        if self._is_other:
            return
        node, live = paths.source(self._record.id), paths.source_live(self._record.id)
        read, before = channel.read(node, SourceRecord), channel.read(live, SourceFigures)
        registered = None if read is None else read.value
        if registered is not None and registered.identity != self._record.identity:
            if self._session is not None:
                self._is_other = True
                log.warning(
                    "another process has registered this source", source=registered.name, host=registered.host
                )
                return
            is_there = before is not None and not _is_dead(registered)
            failures = failures_after(registered, is_there=is_there, now=time.time())
            self._record = self._record.model_copy(update={"failures": failures})
        if registered != self._record:
            channel.put(node, self._record)
        figures = self._figures()
        if channel.session != self._session or before is None or before.value.identity != figures.identity:
            if before is not None:
                channel.delete(live)
            channel.create(live, figures, ephemeral=True)
        else:
            channel.multi([Write(live, figures, ANY_VERSION)])
        if self._metrics is not None and channel.session != self._session:
            exporter = Exporter(role=Role.SOURCE, address=self._metrics, host=HostName(self._record.host))
            channel.create(paths.exporter(Role.SOURCE), exporter, ephemeral=True, sequence=True)
        self._session = channel.session

    def _figures(self) -> SourceFigures:
        measured, now = self._measure(), time.monotonic()
        at, records = self._before
        self._before = now, measured.records
        rate = (measured.records - records) / max(now - at, 0.001)
        return SourceFigures(identity=self._record.identity, at=time.time(), rate=rate, **measured._asdict())

    def _end(self, channel: Channel) -> None:
        """Leave what the end of this process means."""
        node = paths.source(self._record.id)
        read = channel.read(node, SourceRecord)
        is_own = read is not None and read.value.identity == self._record.identity
        if self._ended is None:
            if is_own:
                channel.delete(node)
            return
        if is_own:
            channel.put(node, self._record.model_copy(update={"ended": self._ended}))
        if self._is_taken and read is not None:
            taken = TakenOver(
                host=self._record.host, pid=self._record.pid, sentence=self._ended, at=time.time()
            )
            channel.put(paths.source_taken(self._record.id), taken)


def _is_dead(earlier: SourceRecord) -> bool:
    """Tell whether the process of a source ran on this machine and is gone.

    ZooKeeper keeps the node of a killed process for a few seconds. A container that is started
    again gives the next process the same number.
    """
    if earlier.host != this_host():
        return False
    if earlier.pid == os.getpid():
        return True
    try:
        os.kill(earlier.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
