"""`python -m sluice.driver TIER INCARNATION HEAP SHARED`: runs one incarnation of a tier.

The agent of the incarnation's host starts it. HEAP is the heap of its JVM in MiB, SHARED the folder
that all hosts share. Environment: SLUICE_HOME, SLUICE_ENDPOINTS, SLUICE_SITE, SLUICE_HOST,
SLUICE_HOST_ADDRESS.
"""

import sys
from pathlib import Path

from sluice.driver.spark.jvm import launch


def main() -> int:
    """Start the JVM, and import the driver's code while the JVM starts."""
    words = sys.argv[1:]
    if len(words) != 4 or not words[1].isdigit() or not words[2].isdigit():  # noqa: PLR2004
        sys.stderr.write("usage: python -m sluice.driver TIER INCARNATION HEAP SHARED\n")
        return 2
    jvm = launch(int(words[2]), Path(words[3]))

    try:
        from sluice.driver.process.run import run  # noqa: PLC0415 — takes a second, while the JVM starts

        return run(words[0], int(words[1]), jvm)
    finally:
        jvm.discard()


if __name__ == "__main__":
    sys.exit(main())
