"""An installation: its free disk space, and the errors of its platform."""

import shutil
from pathlib import Path

INSTALL_AGENT = "install Sluice with the extra `agent` (in a checkout: `make install`)"
"""The next step where Java, Spark or one of their packages is missing."""
LEAST = 5 * 1024
"""MiB of free disk that a first start needs: jars, databases, and streams and logs of some days."""
LOW = 1024
"""MiB of free disk below which nothing starts: Kafka and PostgreSQL crash on a full disk."""


class PlatformError(Exception):
    """A request to the platform failed; the message names the object, the cause and the
    next step.
    """


class PlatformAwayError(Exception):
    """A part of the platform does not answer; the message names the part."""


def free(home: Path) -> int:
    """Return the free MiB on the disk of `home`, which need not exist yet."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    return shutil.disk_usage(folder).free // (1024 * 1024)
