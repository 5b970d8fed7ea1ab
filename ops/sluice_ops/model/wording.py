"""Parts of sentences for people.

Of names the first few, and how many more there are, so that a sentence stays one on ten thousand hosts.
"""

from collections.abc import Iterable

MOST = 12
"""Names in one sentence."""


def listed(names: Iterable[str]) -> str:
    """Write names with commas."""
    all_names = list(names)
    more = f" and {len(all_names) - MOST} more" if len(all_names) > MOST else ""
    return ", ".join(all_names[:MOST]) + more


def workers(count: int) -> str:
    """Write how many workers."""
    return f"{count} worker{'' if count == 1 else 's'}"
