"""Error texts of a few lines for people: the root cause, without Java's stack."""

import errno
from typing import Any

import psycopg

WRONG_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InsufficientPrivilege,
)
"""PostgreSQL's errors if tables, columns or rights differ from those of this version.

`sluice.commands.publish` creates them.
"""
TRACEBACK = "Traceback (most recent call last):"
MAX_LINES = 6
MAX_WIDTH = 400
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
SPARKS_WORDS = ("No space left on device", "Disk quota exceeded")


class DiskFullError(Exception):
    """The disk of the checkpoints is full. The tier waits for free space."""


def error_text(error: BaseException) -> str:
    """Return an error as at most 6 lines of text, the root cause first."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return _short(_root(java))
    text = str(error) or repr(error)
    if isinstance(error, WRONG_SCHEMA):
        return _short(
            f"PostgreSQL: {text.splitlines()[0]}; tables or rights are not those of this version; "
            "run `sluice publish`"
        )
    is_own = type(error).__module__.startswith(("sluice.", "sluice_ops."))
    return _short(text if is_own else f"{type(error).__name__}: {text}")


def _root(java: Any) -> str:
    depth = 0
    while java.getCause() is not None and depth < 20:  # noqa: PLR2004 — a chain of causes may be circular
        java = java.getCause()
        depth += 1
    return f"{java.getClass().getSimpleName()}: {java.getMessage()}"


def _short(text: str) -> str:
    if TRACEBACK in text:
        text = _python_error(text)
    lines = [line.rstrip() for line in with_exit_cause(text).splitlines()]
    kept = [
        line
        for line in lines
        if line.strip()
        and not line.lstrip().startswith(
            ("at ", "... ", "JVM stacktrace", "== SQL", "Caused by: org.apache.spark.api")
        )
    ]
    return "\n".join(line[:MAX_WIDTH] for line in kept[:MAX_LINES])


def _python_error(text: str) -> str:
    """Return the error itself: the first line after the stack of the last Python traceback.

    Py4J puts its own words before `Traceback`, on the same line. Return the whole text if no such
    line follows.
    """
    after = text.rpartition(TRACEBACK)[2].splitlines()
    return next((line for line in after if line and not line[0].isspace()), text)


EXIT_CAUSES = {
    "exited with code 75": (
        "Kafka did not take a record in time; every record that may be missing in the output is written "
        "again when Kafka answers"
    ),
    "exited with code 77": "another incarnation has the right to write the tier's streams",
    "exited with code 76": (
        "Kafka refused a record, and the log of the executor's slot has the reason; every record that "
        "may be missing in the output is written again"
    ),
}
"""Spark's words for the exit code of an executor, and the cause of the exit."""


def with_exit_cause(text: str) -> str:
    """Put the cause of an executor's exit before Spark's text, if the exit code is known. Pure."""
    return next((f"{cause}: {text}" for exit_code, cause in EXIT_CAUSES.items() if exit_code in text), text)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error was caused by a full disk, which is no failure of the tier. Pure."""
    return (
        isinstance(error, DiskFullError)
        or getattr(error, "errno", None) in DISK_FULL_ERRNOS
        or any(words in str(error) for words in SPARKS_WORDS)
    )
