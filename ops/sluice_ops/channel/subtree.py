"""List a node and all nodes below it, for deletion."""

from collections.abc import Iterator
from typing import Protocol


class Lister(Protocol):
    """The part of the channel that `deletion_order` needs."""

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below `path`."""


def deletion_order(channel: Lister, path: str) -> Iterator[str]:
    """Yield the paths of all nodes below `path` and then `path`: children before parents."""
    for name in channel.children(path):
        yield from deletion_order(channel, f"{path}/{name}")
    yield path
