"""The logs of long-running processes. Those of Sluice have one line for each event, on stderr.

A traceback names no values of variables, because they may be passwords.
"""

import logging
import re
import sys
from collections import deque
from itertools import islice
from typing import Any

import structlog

from sluice_ops.model.logs import LogPart, LogRequest

OWN_EVENTS = 2000
"""The last events of its own log that a process keeps in memory."""


class OwnLog:
    """The last events of this process's log, for people on other machines."""

    def __init__(self) -> None:
        """Begin without an event."""
        self._events: deque[str] = deque(maxlen=OWN_EVENTS)
        self._count = 0

    def remember(self, _logger: object, _method: str, event: Any) -> Any:
        """Keep an event as it is written; a processor of structlog, the last one."""
        self._events.append(f"{event}\n")
        self._count += 1
        return event

    def __call__(self, request: LogRequest) -> LogPart:
        """Return the last lines, or the events after a position.

        If the position is of an earlier process, return all events.
        """
        return self._last(request.lines) if request.after is None else self._after(request.after)

    def _last(self, lines: int) -> LogPart:
        events, count = list(self._events), self._count
        last = "".join(events).splitlines(keepends=True)[-lines:] if lines else []
        return LogPart.fitting("".join(last), count)

    def _after(self, position: int) -> LogPart:
        events, count = list(self._events), self._count
        new = count - position if position <= count else count
        return LogPart.fitting("".join(islice(events, max(0, len(events) - new), None)), count)


def configure_logs(own: OwnLog | None = None) -> None:
    """Write this process's events to stderr, and none of the ZooKeeper client's.

    `own` remembers the last events. The process logs a lost ZooKeeper connection itself, once.
    """
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
            *([] if own is None else [own.remember]),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


_START_NOTICE = re.compile(
    r"\s*(NOTE: )?Picked up \w*(JAVA|JDK)\w*:"
    r"|WARNING: (Using incubator modules|A (restricted|terminally deprecated) method)"
    r"|WARNING: .* has been called by |WARNING: Please consider reporting this|WARNING: Use --enable-"
    r"|WARNING: Restricted methods will be blocked"
)
"""What a JVM writes at its start, whatever happens later."""


def is_jvm_notice(line: str) -> bool:
    """Return True if a line is a notice of a JVM about its start or cache: it explains nothing."""
    return "AOT" in line or _START_NOTICE.match(line) is not None
