"""The log of a long-running process: one line for each event, on stderr.

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
