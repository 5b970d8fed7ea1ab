"""A feed of test hits with numbered ids.

`python -m hits.feed --rate N [--count N] [--first K] [--json]`. `sluice feed` and tests call it.
The numbers of the fed hits are known, so a test can show losses and duplicates.
"""

import random
import sys
import time

from sluice.feed import FeedRecord, command, run

KINDS = ("view",) * 16 + ("click",) * 3 + ("buy",)
ADS = 110
"""How many ads occur in hits. One tenth of them are not booked."""


def hit(number: int, at: float) -> dict[str, object]:
    """Return hit `number`. The same number always gives the same user, ad and kind."""
    generator = random.Random(number)  # noqa: S311 — test data
    return {
        "id": f"hit-{number}",
        "user": f"user-{generator.randrange(1000)}",
        "ad": f"ad-{generator.randrange(ADS)}",
        "kind": generator.choice(KINDS),
        "at": int(at * 1000),
    }


def hit_now(number: int, _due: float) -> FeedRecord:
    new = hit(number, time.time())
    return FeedRecord(str(new["user"]), new)


def main(arguments: list[str] | None = None) -> int:
    parser = command("hits.feed", "Feed numbered hits into the pipeline.")
    return run(parser, parser.parse_args(arguments), "raw", hit_now)


if __name__ == "__main__":
    sys.exit(main())
