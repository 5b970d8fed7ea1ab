"""A node with all that is below it."""

from collections.abc import Iterator
from typing import Protocol


class Lister(Protocol):
    """What is asked of the channel."""

    def children(self, path: str) -> list[str]:
        """Return the names below `path`."""


def deletion_order(channel: Lister, path: str) -> Iterator[str]:
    """Name a node and all below it, in the order in which they can be deleted."""
    for name in channel.children(path):
        yield from deletion_order(channel, f"{path}/{name}")
    yield path
