"""A file system whose changes take as long as a test says.

The FUSE server is that of `tests/power_loss.py`, but loses nothing.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.power_loss import Mounted, Server, answer_all, mount, served


class SlowServer(Server):
    """Answers the kernel's requests one after the other, and sleeps after each change."""

    def __init__(self, device: int) -> None:
        """Serve an empty folder without delay."""
        self.seconds = 0.0
        super().__init__(device)

    def changed(self) -> None:
        """Sleep, so that all processes that use the file system wait."""
        time.sleep(self.seconds)


class SlowDisk(Mounted):
    """The mounted file system, for a test."""

    def delay(self, seconds: float) -> None:
        """Delay each change by `seconds` from now on."""
        assert self.tell(str(seconds)) == "slow\n"


@contextmanager
def slow_disk(folder: Path) -> Iterator[SlowDisk]:
    """Mount a slow disk, at first without delay, at an empty folder."""
    with served(folder, "tests.slow_disk") as process:
        yield SlowDisk(folder, process)


def main(folder: Path) -> None:
    """Serve a folder; each line from stdin sets the delay of a change, in seconds."""
    device = mount(folder)
    server = SlowServer(device)

    def set_delay(line: str) -> str:
        server.seconds = float(line)
        return "slow"

    answer_all(device, server, set_delay)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
