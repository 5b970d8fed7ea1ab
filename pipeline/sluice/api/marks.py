"""High-water marks: they tell replays from new records, exactly and in a few bytes. Pure.

A path is the list of partitions that a record came through. Along one path, origins only grow,
whichever incarnation writes, for three reasons (decision 40):

- every tier keeps the order of records;
- every writer starts at or before the first missing record;
- no writer sends a record along another path than earlier writers did.

So one number for each path tells replays from new records, however late they arrive. After a long
pause, a watermark in time could not tell them apart.
"""

from collections.abc import Sequence

from sluice.api.origins import position

Marks = dict[str, tuple[int, ...]]
"""Path → the position of the last origin that came along the path."""


def first_seen(marks: Marks, paths: Sequence[str], origins: Sequence[str]) -> list[int]:
    """Return the numbers of the new rows, in order; raise the caller's marks in place."""
    new: list[int] = []
    for row, (path, origin) in enumerate(zip(paths, origins, strict=True)):
        at = position(origin)
        if path not in marks or at > marks[path]:
            marks[path] = at
            new.append(row)
    return new
