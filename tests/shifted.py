"""`python -m tests.shifted FILE MODULE …`: run a module under a wall clock that is always as many seconds ahead as the file says.

Only wall time is shifted, and only for this one process: its monotonic clock, and all other processes, go on as they do.
"""

import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path

TRUE = time.time


class Clock:
    """A wall clock that goes by a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ahead = 0.0

    def time(self) -> float:
        with suppress(ValueError):  # it is being written
            self._ahead = float(self._file.read_text())
        return TRUE() + self._ahead


def main() -> None:
    """Run the module as if it had been started by itself."""
    clock = Clock(Path(sys.argv[1]))
    time.time = clock.time
    time.time_ns = lambda: int(clock.time() * 1e9)
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
