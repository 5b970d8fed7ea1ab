"""The logs of long-running processes. Those of Sluice have one line for each event, on stderr.

A traceback names no values of variables, because they may be passwords.
"""

import logging
import re
import sys

import structlog


def configure_logs() -> None:
    """Write this process's events to stderr, and none of the ZooKeeper client's.

    The process logs a lost ZooKeeper connection itself, once.
    """
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
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
