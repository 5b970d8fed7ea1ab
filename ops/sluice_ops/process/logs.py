"""The logs of long-running processes. Those of Sluice have one line for each event, on stderr.

A traceback names no values of variables, because they may be passwords.
"""

import logging
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


def is_about_cache(line: str) -> bool:
    """Return True if a line of a JVM's log is about its cache only, so it explains no failure."""
    return "AOT" in line
