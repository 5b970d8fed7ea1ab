"""`python -m sluice.driver TIER INCARNATION HEAP SHARED`: started by the agent of the host on which the incarnation's driver is placed.

HEAP is that of its JVM, in MiB; SHARED is the folder that all hosts share.
Environment: SLUICE_HOME, SLUICE_ENDPOINTS, SLUICE_SITE, SLUICE_HOST, SLUICE_HOST_ADDRESS.
"""

import sys
from pathlib import Path

from sluice.driver.spark.jvm import launch


def main() -> int:
    """Start the JVM, and while it starts import all that drives it."""
    words = sys.argv[1:]
    if len(words) != 4 or not words[1].isdigit() or not words[2].isdigit():  # noqa: PLR2004 — the four of the usage
        sys.stderr.write("usage: python -m sluice.driver TIER INCARNATION HEAP SHARED\n")
        return 2
    jvm = launch(int(words[2]), Path(words[3]))

    from sluice.driver.process.run import run  # noqa: PLC0415 — takes a second, in which the JVM is under way

    return run(words[0], int(words[1]), jvm)


if __name__ == "__main__":
    sys.exit(main())
