"""High-water marks: which records were seen before, exactly and in a few bytes. Pure.

Along one path (the partitions that a record came through) origins only grow, whoever writes them, because every tier in between keeps the
order and every writer starts before what is missing. So one number for each path tells replays from new records, however late either is;
a watermark in time could not do that after a long pause.
"""

from collections.abc import Sequence

Marks = dict[str, tuple[int, int]]
"""Path → the offset and index of the last origin that was seen on it."""


def position(origin: str) -> tuple[int, int]:
    """Return the offset and the index of an origin, `partition:offset` or `partition:offset:index`."""
    parts = origin.split(":")
    return int(parts[1]), int(parts[2]) if len(parts) > 2 else 0  # noqa: PLR2004 — the index is the third part


def first_seen(marks: Marks, paths: Sequence[str], origins: Sequence[str]) -> list[int]:
    """Return the rows that are new, in order, and raise the marks (of the caller's copy)."""
    new: list[int] = []
    for row, (path, origin) in enumerate(zip(paths, origins, strict=True)):
        at = position(origin)
        if path not in marks or at > marks[path]:
            marks[path] = at
            new.append(row)
    return new
