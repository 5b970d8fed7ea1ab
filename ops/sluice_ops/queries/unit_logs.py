"""The logs of slots and drivers: files of their host, below SLUICE_HOME."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.3


def unit_logs(home: Path) -> dict[str, Path]:
    """Return the log files below `home` by `host/unit`, also of ended units."""
    hosts = home / "hosts"
    ended = {f"{path.parts[-3]}/{path.stem}": path for path in sorted(hosts.glob("*/ended/*.log"))}
    units = {f"{path.parts[-4]}/{path.parts[-2]}": path for path in sorted(hosts.glob("*/units/*/log"))}
    return ended | units


def tail(path: Path, lines: int, *, follow: bool = False) -> Iterator[str]:
    """Yield the last lines of a log.

    If the log has fewer, the first lines come from the end of the rotated log (`log.1`).
    With `follow`, continue with new lines, also after a rotation.
    """
    with path.open(errors="replace") as file:
        last = deque(file, maxlen=lines)
        position = file.tell()
    if len(last) < lines:
        rotated = path.with_name(f"{path.name}.1")
        with suppress(FileNotFoundError), rotated.open(errors="replace") as file:
            last.extendleft(reversed(deque(file, maxlen=lines - len(last))))
    yield from last
    while follow:
        time.sleep(POLL_SECONDS)
        size = path.stat().st_size if path.exists() else position  # the log of an ended unit may be gone
        if size == position:
            continue
        with path.open(errors="replace") as file:
            file.seek(position if size > position else 0)
            yield from file
            position = file.tell()
