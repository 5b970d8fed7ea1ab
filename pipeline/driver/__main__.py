"""`python -m pipeline.driver TIER INCARNATION HEAP`: started by the agent of the host on which the incarnation's driver is placed.

HEAP is that of its JVM, in MiB. Environment: SLUICE_HOME, SLUICE_ENDPOINTS, SLUICE_SITE, SLUICE_HOST, SLUICE_HOST_ADDRESS.
"""

import os
import sys
from pathlib import Path

from pipeline.driver.jvm import launch


def main() -> int:
    """Start the JVM, and while it starts import all that drives it."""
    words = sys.argv[1:]
    if len(words) != 3 or not words[1].isdigit() or not words[2].isdigit():  # noqa: PLR2004 — the three of the usage
        sys.stderr.write("usage: python -m pipeline.driver TIER INCARNATION HEAP\n")
        return 2
    jvm = launch(int(words[2]), Path(os.environ["SLUICE_HOME"]))

    from pipeline.driver.run import run  # noqa: PLC0415 — takes a second, in which the JVM is under way

    return run(words[0], int(words[1]), jvm)


if __name__ == "__main__":
    sys.exit(main())
