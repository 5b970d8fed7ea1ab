"""The log files of a host's units, and how to read their ends.

The agent appends units' logs to `log`, and copies a long one to `log.1` before it empties `log`.
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

EXECUTOR = "/executor"
"""The end of the name of an executor's log; the name begins with that of its slot."""


def log_files(folder: Path) -> dict[str, Path]:
    """Return the logs in a host's folder by name: those of units, of ended units, and of executors.

    Of the executors of one slot, only the last one has a name.
    """
    ended = {path.stem: path for path in sorted(folder.glob("ended/*.log"))}
    units = {path.parent.name: path for path in sorted(folder.glob("units/*/log"))}
    executors = {
        f"{path.parts[-6]}{EXECUTOR}": path
        for path in sorted(folder.glob("units/*/scratch/work/*/*/stderr"), key=_written_at)
    }
    return ended | units | executors


def last_lines(path: Path, lines: int) -> tuple[list[str], int]:
    """Return the last lines of a log, with their line ends, and the position of its end.

    If the log has fewer, the first lines come from the end of the rotated log (`log.1`).
    """
    with path.open("rb") as file:
        last = deque(file, maxlen=lines)
        position = file.tell()
    if len(last) < lines:
        with suppress(FileNotFoundError), _rotated(path).open("rb") as file:
            last.extendleft(reversed(deque(file, maxlen=lines - len(last))))
    return [line.decode(errors="replace") for line in last], position


def text_after(path: Path, position: int, most: int = -1) -> tuple[str, int]:
    """Return what was appended to a log after a position, and the new position.

    `most` limits the bytes that are read of the log; they then end with a line. If the log was
    rotated, the text begins with the end of the rotated log. Nothing if the log is gone.
    """
    rotated = b""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                with suppress(FileNotFoundError):
                    rotated = _rotated(path).read_bytes()[position:]
                position = 0
            file.seek(position)
            data = file.read(most)
    except FileNotFoundError:
        return "", position
    if len(data) == most:
        data = data[: data.rfind(b"\n") + 1] or data
    return (rotated + data).decode(errors="replace"), position + len(data)


def _rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # the executor's files were removed meanwhile
        return 0.0
