"""Turning what went wrong into a few lines that a person can read: the root cause, without Java's stack."""

import errno
from typing import Any

import psycopg

OLDER = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InsufficientPrivilege)
"""What PostgreSQL says where its tables, and the rights to them, are not as this version's `sluice.commands.publish` makes them."""
LINES = 6
WIDTH = 400
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
SPARKS_WORDS = ("No space left on device", "Disk quota exceeded")


class NoRoomError(Exception):
    """The disk of the checkpoints is full. Whoever needs it waits for room."""


def plainly(error: BaseException) -> str:
    """Say what went wrong, root cause first."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return _short(_root(java))
    text = str(error) or repr(error)
    if isinstance(error, OLDER):
        return _short(
            f"PostgreSQL: {text.splitlines()[0]}; its tables are not those of this version: run `python -m sluice.commands.publish`"
        )
    known = type(error).__module__.startswith(("sluice.", "sluice_ops."))
    return _short(text if known else f"{type(error).__name__}: {text}")


def _root(java: Any) -> str:
    seen = 0
    while java.getCause() is not None and seen < 20:  # noqa: PLR2004 — guards against a chain that is a circle
        java = java.getCause()
        seen += 1
    return f"{java.getClass().getSimpleName()}: {java.getMessage()}"


def _short(text: str) -> str:
    if "Traceback (most recent call last)" in text:
        text = _python(text)
    lines = [line.rstrip() for line in meaning(text).splitlines()]
    kept = [
        line
        for line in lines
        if line.strip()
        and not line.lstrip().startswith(
            ("at ", "... ", "JVM stacktrace", "== SQL", "Caused by: org.apache.spark.api")
        )
    ]
    return "\n".join(line[:WIDTH] for line in kept[:LINES])


def _python(text: str) -> str:
    """Keep the last line of a Python traceback: the error itself."""
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t"))]
    last = [number for number, line in enumerate(lines) if line.startswith("Traceback")][-1]
    after = [line for line in lines[last + 1 :] if line.strip()]
    return after[0] if after else lines[-1]


MEANS = {
    "exited with code 75": "Kafka did not take a record in time; all that may not be out is put again as soon as it answers",
    "exited with code 77": "another incarnation has the right to write the tier's streams",
    "exited with code 76": "Kafka refused a record, the log of the executor's slot says why; all that may not be out is put again",
}
"""How such an end reads in Spark's words, and what it means."""


def meaning(text: str) -> str:
    """Put what an executor's end means before what Spark says of it, where that is known. Pure."""
    return next((f"{meant}: {text}" for sign, meant in MEANS.items() if sign in text), text)


def lacks_room(error: BaseException) -> bool:
    """Tell whether something failed because a disk is full: that is no failure of the tier's. Pure."""
    return (
        isinstance(error, NoRoomError)
        or getattr(error, "errno", None) in FULL
        or any(words in str(error) for words in SPARKS_WORDS)
    )
