"""Inject the faults of game days: each once, and no longer than planned.

A file remembers the last fault. So a later agent does not inject it again, and continues a process
that is still stopped.
"""

import os
import signal
import time

import structlog

from sluice_ops.agent.host.processes import Process, live_process
from sluice_ops.agent.host.store import FaultRecord, HostFolder, ProcessFile, log_write_errors
from sluice_ops.model.assignment import FaultDone, FaultOrder

log = structlog.get_logger()

FROZEN_SECONDS = 20.0
"""A stopped process is continued after so long, if it is still alive. The agent looks at least
every ten seconds.
"""


class Faults:
    """Carries out the orders in `assignment.fault`."""

    def __init__(self, folder: HostFolder) -> None:
        self._folder = folder
        self._record = folder.fault()

    @property
    def done(self) -> FaultDone | None:
        """The last fault, for the agent's report."""
        return None if self._record is None else self._record.done

    def inject(self, order: FaultOrder) -> None:
        """Send the signal of an order, unless it was sent before.

        The order is written down first: an agent that kills itself must not do so again.
        """
        if self._record is not None and self._record.done.id == order.id:
            return
        if self._record is not None and self._record.frozen is not None:
            _continue(self._record.frozen)
        victim = live_process(os.getpid()) if order.unit is None else self._folder.unit(order.unit).main()
        record = _record(order, victim if victim is not None and victim.alive else None)
        try:
            self._folder.write_fault(record)
        except OSError as error:
            log.warning(
                "the fault of a game day waits: fault.json cannot be written; free disk space, the agent "
                "retries",
                fault=order.id,
                error=str(error),
            )
            return
        self._record = record
        if victim is None or record.done.error:
            log.warning("no fault is injected", fault=order.id, reason=record.done.error)
            return
        number = signal.SIGSTOP if order.freezes else signal.SIGKILL
        log.warning(
            "the agent injects a fault, as a game day requests",
            fault=order.id,
            unit=order.unit or "the agent",
            pid=victim.pid,
            signal=number.name,
        )
        victim.send(number)

    def thaw(self) -> None:
        """Continue a process that has been stopped for long enough."""
        record = self._record
        if record is None or record.frozen is None or time.monotonic() < record.thaws_at:
            return
        _continue(record.frozen)
        self._record = record.model_copy(update={"frozen": None})
        with log_write_errors("the end of a game day's fault (fault.json)"):
            self._folder.write_fault(self._record)


def _continue(stopped: ProcessFile) -> None:
    process = Process(stopped.pid, stopped.started)
    if process.alive:
        log.warning("the process that a game day stopped is continued", pid=process.pid)
        process.send(signal.SIGCONT)


def _record(order: FaultOrder, victim: Process | None) -> FaultRecord:
    """Return what is remembered of an order before its signal is sent."""
    if victim is None:
        done = FaultDone(id=order.id, at=time.time(), error=f"{order.unit} does not run there any more")
        return FaultRecord(done=done)
    frozen = ProcessFile(pid=victim.pid, started=victim.started) if order.freezes else None
    return FaultRecord(
        done=FaultDone(id=order.id, at=time.time()),
        frozen=frozen,
        thaws_at=time.monotonic() + FROZEN_SECONDS,
    )
