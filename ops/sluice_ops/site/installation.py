"""Room on the disk: how much there is, and how much there should be."""

import shutil
from pathlib import Path

LEAST = 5 * 1024
"""MiB free that a first start should find: jars, databases, streams and logs of some days."""
LOW = 1024
"""MiB below which nothing is started: Kafka and PostgreSQL stop hard on a full disk."""


def free(home: Path) -> int:
    """Return MiB that are free where the home is, or will be."""
    folder = next(step for step in (home, *home.parents) if step.exists())
    return shutil.disk_usage(folder).free // (1024 * 1024)


CHECKOUT = Path(__file__).resolve().parents[3]


class PlatformError(Exception):
    """The platform cannot do what was asked; the message names the thing, what is wrong and what to do next."""


class PlatformAwayError(Exception):
    """A part of the platform does not answer; the message says which."""
