"""How a record is called over its whole way. Pure; `pipeline.lineage` writes these names, with Spark's words.

`partition:offset` of the raw record; `:index` for each tier that made several records of one; `&stream` for each tier that read it from
another than its first input, `stream/` before it all where that was a stream from outside. So no two records have the same name, and a
replay has the name that the record had.
"""

from collections.abc import Sequence

AGAIN = "again"
"""Header of a record from outside that is put again: the `partition:offset` that it had. Also a part of the path of one that was bad."""

AGAIN_NAMES = r"^\d{1,18}:\d{1,18}$"
"""What such a header says; anything else in it is none of ours."""


def first(inputs: Sequence[str], stream: str, partition: int, offset: int) -> str:
    """Name a record from outside that a tier with these inputs reads."""
    return f"{partition}:{offset}" if stream == inputs[0] else f"{stream}/{partition}:{offset}"


def later(inputs: Sequence[str], stream: str, origin: str) -> str:
    """Name a record of another tier as one with these inputs does."""
    return origin if stream == inputs[0] else f"{origin}&{stream}"


def raw(origin: str) -> str:
    """Return the raw record's own `partition:offset`, without what tiers have added."""
    partition, offset, *_ = origin.rpartition("/")[2].partition("&")[0].split(":")
    return f"{partition}:{offset}"


def position(origin: str) -> tuple[int, ...]:
    """Return the offset of the raw record and each index: they grow along a path, which has the names of the streams too."""
    return tuple(int(part.partition("&")[0]) for part in origin.split(":")[1:])
