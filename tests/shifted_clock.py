"""`python -m tests.shifted_clock FILE MODULE …`: run a module whose wall clock is FILE's seconds
ahead.

Only the wall clock of this process is shifted, not its monotonic clock.
"""

import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path

REAL_TIME = time.time


class Clock:
    """A wall clock that is as many seconds ahead as a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ahead = 0.0

    def time(self) -> float:
        with suppress(ValueError):  # the test is writing the file
            self._ahead = float(self._file.read_text())
        return REAL_TIME() + self._ahead


def main() -> None:
    """Run the module as its own program."""
    clock = Clock(Path(sys.argv[1]))
    time.time = clock.time
    time.time_ns = lambda: int(clock.time() * 1e9)
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
