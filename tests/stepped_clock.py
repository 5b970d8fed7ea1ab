"""JVMs whose wall clock a test steps while they run.

libfaketime steps the clock; the Debian package is `libfaketime`. Only the wall clock is stepped.
Monotonic clocks and all other processes are unaffected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.packages import needed

NAME = "*/faketime/libfaketimeMT.so.1"
CACHE_SECONDS = 1
"""How long a process keeps the step that it has read."""
SHARED = Path("/dev/shm")  # noqa: S108 - libfaketime leaves files of killed processes here


def library() -> Path:
    """Return libfaketime's library."""
    return needed("libfaketime", lambda: next(Path("/usr/lib").glob(NAME), None))


class Clock:
    """The wall clock of JVMs that are started with this JAVA_HOME."""

    def __init__(self, folder: Path) -> None:
        """Create a JAVA_HOME, and the file with the clock's step, in a folder."""
        self.home = folder / "java"
        self._ahead = folder / "ahead"
        self.pids = folder / "pids"
        self._settings = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._ahead),
            "FAKETIME_CACHE_DURATION": str(CACHE_SECONDS),  # without a cache, each call opens the file
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # with 1, the JVM's waits return at once and its threads spin
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def wrap(self, java: Path) -> None:
        """Make `java` of this JAVA_HOME run the given script under the stepped clock."""
        program = self.home / "bin" / "java"
        program.parent.mkdir(parents=True)
        faketime_settings = " ".join(f'{key}="{value}"' for key, value in self._settings.items())
        program.write_text(
            java.read_text().replace("exec ", f'echo $$ >> "{self.pids}"\nexec env {faketime_settings} ')
        )
        program.chmod(0o755)
        self.step(0)

    def step(self, seconds: int) -> None:
        """Set the clock to `seconds` from the true time; running processes follow within a
        second.
        """
        new = self._ahead.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._ahead)


@contextmanager
def stepped(folder: Path, java: Path) -> Iterator[Clock]:
    """Yield a clock for JVMs that the script `java` starts.

    At the end, delete what libfaketime keeps for killed JVMs.
    """
    clock = Clock(folder)
    clock.wrap(java)
    try:
        yield clock
    finally:
        for pid in clock.pids.read_text().split() if clock.pids.exists() else ():
            (SHARED / f"faketime_shm_{pid}").unlink(missing_ok=True)
            (SHARED / f"sem.faketime_sem_{pid}").unlink(missing_ok=True)
