"""A file system that takes as long for each change as a test says: the FUSE server of `tests/losing.py`, which loses nothing here."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.losing import Mounted, Server, answer_all, mount, served


class SlowServer(Server):
    """Answers the kernel, one request after the other, and takes its time after each change."""

    def __init__(self, device: int) -> None:
        """Begin with an empty folder, and without delay."""
        self.seconds = 0.0
        super().__init__(device)

    def changed(self) -> None:
        """Sleep, so that all who have asked wait."""
        time.sleep(self.seconds)


class SlowDisk(Mounted):
    """The file system, as a test has it."""

    def delay(self, seconds: float) -> None:
        """Have each change take so long from now on."""
        assert self.tell(str(seconds)) == "slow\n"


@contextmanager
def slow_disk(folder: Path) -> Iterator[SlowDisk]:
    """Mount one at an empty folder; it is quick at first."""
    with served(folder, "tests.slow_disk") as process:
        yield SlowDisk(folder, process)


def main(folder: Path) -> None:
    """Serve a folder; each line that comes says how long a change takes."""
    device = mount(folder)
    server = SlowServer(device)

    def told(line: str) -> str:
        server.seconds = float(line)
        return "slow"

    answer_all(device, server, told)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
