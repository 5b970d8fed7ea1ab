"""High-water marks: which records were seen before, exactly and in a few bytes. Pure.

Along one path (the partitions that a record came through) origins only grow, whoever writes them, because every tier in between keeps the
order, every writer starts before what is missing, and none sends a record another way than those before it did (decision record 0040). So
one number for each path tells replays from new records, however late either is; a watermark in time could not do that after a long pause.
"""

from collections.abc import Sequence

from sluice.api.origins import position

Marks = dict[str, tuple[int, ...]]
"""Path → the position of the last origin that was seen on it."""


def first_seen(marks: Marks, paths: Sequence[str], origins: Sequence[str]) -> list[int]:
    """Return the rows that are new, in order, and raise the marks (of the caller's copy)."""
    new: list[int] = []
    for row, (path, origin) in enumerate(zip(paths, origins, strict=True)):
        at = position(origin)
        if path not in marks or at > marks[path]:
            marks[path] = at
            new.append(row)
    return new
