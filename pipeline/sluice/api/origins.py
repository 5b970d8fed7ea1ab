"""How a record is called over its whole way. Pure; `sluice.records.lineage` writes these names, with Spark's words.

`partition:offset` of the raw record; `:index` for each tier that made several records of one; `&stream` for each tier that read it from
another than its first input, `stream/` before it all where that was a stream from outside. So no two records have the same name, and a
replay has the name that the record had.
"""

from collections.abc import Sequence

AGAIN = "again"
"""A part of the path of a record that was bad and is taken up from quarantine, with its origin after it."""
REPLAY = ".replay-"
"""Between a tier's name and a number, it names a replay of the tier as the writer of records; no tier is called so."""


def is_again(path: str) -> bool:
    """Tell whether a record that came this way was taken up from quarantine."""
    return f"/{AGAIN}:" in path


def first(inputs: Sequence[str], stream: str, partition: int, offset: int) -> str:
    """Name a record from outside that a tier with these inputs reads."""
    return f"{partition}:{offset}" if stream == inputs[0] else f"{stream}/{partition}:{offset}"


def later(inputs: Sequence[str], stream: str, origin: str) -> str:
    """Name a record of another tier as one with these inputs does."""
    return origin if stream == inputs[0] else f"{origin}&{stream}"


def position(origin: str) -> tuple[int, ...]:
    """Return the offset of the raw record and each index: they grow along a path, which has the names of the streams too."""
    return tuple(int(part.partition("&")[0]) for part in origin.split(":")[1:])
