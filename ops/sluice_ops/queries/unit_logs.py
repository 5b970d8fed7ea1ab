"""The logs of this machine: of services, and of slots and drivers, below SLUICE_HOME."""

import time
from collections.abc import Iterator
from pathlib import Path

from sluice_ops.process.log_files import last_lines, log_files, text_after

POLL_SECONDS = 0.3


def service_logs(home: Path) -> dict[str, Path]:
    """Return the log files of the embedded platform's services, by the service's name."""
    return {path.stem: path for path in sorted((home / "logs").glob("*.log"))}


def unit_logs(home: Path) -> dict[str, Path]:
    """Return the log files below `home` by `host/unit`, also of ended units and of executors."""
    return {
        f"{folder.name}/{name}": path
        for folder in sorted((home / "hosts").glob("*"))
        for name, path in log_files(folder).items()
    }


def tail(path: Path, lines: int, *, follow: bool = False) -> Iterator[str]:
    """Yield the last lines of a log; with `follow`, also new text, before and after a rotation."""
    last, position = last_lines(path, lines)
    yield from last
    while follow:
        time.sleep(POLL_SECONDS)
        text, position = text_after(path, position)
        yield from text.splitlines(keepends=True)
