"""Origins: the name of a record in the whole pipeline. Pure; `sluice.records.lineage` builds the
same names as Spark columns.

An origin consists of:

- `partition:offset` of the raw record;
- `:index` for each tier that made several records of one;
- `&stream` for each tier that read the record from its second or a later input;
- `stream/` in front, if the raw record came from the second or a later input of its tier.

So no two records have the same origin, and a replay has the origin of the original.
"""

import re
from collections.abc import Sequence

AGAIN = "again"
"""Marks the path of a record that was reprocessed from quarantine: `…/again:ORIGIN`."""
STREAM = re.compile("&[^:]*")
"""The name of a stream in an origin."""
REPLAY = ".replay-"
"""Stands between a tier's name and a number in the writer's name of a replay: `counts.replay-3`.

No tier's name contains it.
"""


def is_reprocessed(path: str) -> bool:
    """Tell whether a record with this path was reprocessed from quarantine."""
    return f"/{AGAIN}:" in path


def raw_origin(inputs: Sequence[str], stream: str, partition: int, offset: int) -> str:
    """Return the origin of a record from outside, for a tier with these inputs."""
    return f"{partition}:{offset}" if stream == inputs[0] else f"{stream}/{partition}:{offset}"


def origin_in_tier(inputs: Sequence[str], stream: str, origin: str) -> str:
    """Return the origin of another tier's record, for a tier with these inputs."""
    return origin if stream == inputs[0] else f"{origin}&{stream}"


def position(origin: str) -> tuple[int, ...]:
    """Return the offset of the raw record and each index; this tuple only grows along a path.

    The names of streams in the origin are left out: the path contains them, too.
    """
    if "&" in origin:
        origin = STREAM.sub("", origin)
    return tuple(map(int, origin.split(":")[1:]))
