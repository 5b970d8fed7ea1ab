"""JVMs under a wall clock that a test steps while they run: by libfaketime, which the Debian package `libfaketime` has.

Only wall time is stepped. Monotonic clocks, and all other processes, go on as they do.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PACKAGE = "libfaketime"
NAME = "*/faketime/libfaketimeMT.so.1"
SEEN_SECONDS = 1
"""So often a process reads how far its clock is stepped."""
SHARED = Path("/dev/shm")  # noqa: S108 — where libfaketime leaves what a killed process had


def library() -> Path:
    """Return the library; as root on a machine with apt it is installed when it is missing, elsewhere the test fails and says so."""
    found = next(Path("/usr/lib").glob(NAME), None)
    if found is None and os.geteuid() == 0 and (apt := shutil.which("apt-get")) is not None:
        for words in (("update",), ("install", "--yes", "--no-install-recommends", PACKAGE)):
            subprocess.run([apt, *words], check=False, timeout=300)
        found = next(Path("/usr/lib").glob(NAME), None)
    if found is None:
        pytest.fail(f"executors under stepped clocks need libfaketime: apt install {PACKAGE}")
    return found


class Clock:
    """The wall clock of the JVMs that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        """Keep a JAVA_HOME, and how far the clock is stepped, in a folder."""
        self.home = folder / "java"
        self._ahead = folder / "ahead"
        self.pids = folder / "pids"
        self._settings = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._ahead),
            "FAKETIME_CACHE_DURATION": str(SEEN_SECONDS),  # without, each look at the clock opens the file
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # with it, no wait of a JVM waits: its threads spin
        }

    def wrap(self, java: Path) -> None:
        """Have a JAVA_HOME whose programs do as this script says, under the clock."""
        program = self.home / "bin" / "java"
        program.parent.mkdir(parents=True)
        under = " ".join(f'{key}="{value}"' for key, value in self._settings.items())
        program.write_text(java.read_text().replace("exec ", f'echo $$ >> "{self.pids}"\nexec env {under} '))
        program.chmod(0o755)
        self.step(0)

    def step(self, seconds: int) -> None:
        """Step the clock so far from the true time; who runs under it sees that within a second."""
        new = self._ahead.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._ahead)


@contextmanager
def stepped(folder: Path, java: Path) -> Iterator[Clock]:
    """Yield a clock for JVMs that `java`, a script, starts; afterwards nothing is left of those that were killed."""
    clock = Clock(folder)
    clock.wrap(java)
    try:
        yield clock
    finally:
        for pid in clock.pids.read_text().split() if clock.pids.exists() else ():
            (SHARED / f"faketime_shm_{pid}").unlink(missing_ok=True)
            (SHARED / f"sem.faketime_sem_{pid}").unlink(missing_ok=True)
