"""The logs of the embedded platform: services in `logs`, slots and drivers below `hosts`."""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from sluice_ops.local.layout import Layout

POLL_SECONDS = 0.3


def find(layout: Layout) -> dict[str, Path]:
    """Return the log files, by the service's name or by `host/unit`."""
    services = {path.stem: path for path in sorted(layout.logs.glob("*.log"))}
    hosts = layout.home / "hosts"
    units = {f"{path.parts[-4]}/{path.parts[-2]}": path for path in sorted(hosts.glob("*/units/*/log"))}
    return services | units


def tail(path: Path, lines: int, *, follow: bool) -> Iterator[str]:
    """Yield the last lines of a log.

    With `follow`, continue with new lines, also after a rotation.
    """
    with path.open(errors="replace") as file:
        yield from deque(file, maxlen=lines)
        position = file.tell()
    while follow:
        time.sleep(POLL_SECONDS)
        size = path.stat().st_size if path.exists() else position  # the log of an ended unit may be gone
        if size == position:
            continue
        with path.open(errors="replace") as file:
            file.seek(position if size > position else 0)
            yield from file
            position = file.tell()
