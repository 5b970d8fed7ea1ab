"""A feed of Nexmark's events.

`python -m nexmark.feed --rate N [--count N] [--first K] [--seed S] [--json]`. `sluice feed` and
tests call it.
"""

import sys
from collections.abc import Callable

from nexmark.events import event
from sluice.feed import FeedRecord, command, run


def event_of(seed: int) -> Callable[[int, float], FeedRecord]:
    """Return what makes an event of its number; it happens when it is due."""
    return lambda number, due: FeedRecord(None, event(seed, number, int(due * 1000)))


def main(arguments: list[str] | None = None) -> int:
    parser = command("nexmark.feed", "Feed Nexmark's events.")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other events (default: 1)")
    chosen = parser.parse_args(arguments)
    return run(parser, chosen, "raw", event_of(chosen.seed))


if __name__ == "__main__":
    sys.exit(main())
