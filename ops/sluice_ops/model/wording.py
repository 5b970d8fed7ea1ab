"""Parts of sentences for people.

Lists show the first names and the number of further names, so that a message stays short on ten
thousand hosts.
"""

from collections.abc import Iterable

MOST = 12
"""The most names in one list."""


def listed(names: Iterable[str]) -> str:
    """Return the first names with commas, and the number of further names."""
    all_names = list(names)
    more = f" and {len(all_names) - MOST} more" if len(all_names) > MOST else ""
    return ", ".join(all_names[:MOST]) + more


def page(name: str, section: str = "") -> str:
    """Return how a message names a page of the documentation, which is no part of an installation.

    `name` is the page's name on the first page of the documentation.
    """
    where = f', section "{section}"' if section else ""
    return f'the page "{name}" of the documentation{where}'


def counted(count: int, noun: str) -> str:
    """Return `1 host`, or `2 hosts`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def workers(count: int) -> str:
    """Return `1 worker`, or `2 workers`."""
    return counted(count, "worker")


def spares(count: int) -> str:
    """Return `1 spare`, or `2 spares`."""
    return counted(count, "spare")
