"""The rotation of the long tests.

Each commit runs one of 48 parts, so 48 commits in a row run all long tests. With fewer than 30
parts, one would take longer than 12 minutes; 48 leave room on a busy machine.

`tests/long_seconds.json` holds the seconds that each long test takes on two cores; until a part has
run alone, an estimate. A run prints both numbers, so that the file can be corrected. A key is a
file, or one test of a file (`file::test`, `file::test[case]`) if the file is too long for one part.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

PARTS = 48
PART_SECONDS = 660
"""The longest time of a part: continuous integration has to end within 45 minutes."""
SECONDS_FILE = Path(__file__).with_name("long_seconds.json")


def recorded_seconds() -> dict[str, float]:
    """Return the recorded seconds of each key."""
    seconds: dict[str, float] = json.loads(SECONDS_FILE.read_text())
    return seconds


def divide(seconds: Mapping[str, float], parts: int = PARTS) -> list[list[str]]:
    """Divide the keys into parts of about equal length.

    The longest key goes first, each into the part that is shortest so far.
    """
    division: list[list[str]] = [[] for _ in range(parts)]
    totals = [0.0] * parts
    for key in sorted(seconds, key=lambda key: (-seconds[key], key)):
        shortest = totals.index(min(totals))
        division[shortest].append(key)
        totals[shortest] += seconds[key]
    return [sorted(keys) for keys in division]


def key_of(test_id: str, keys: Iterable[str]) -> str | None:
    """Return the most specific key that a test belongs to, or None if no key matches."""
    matching = [key for key in keys if test_id == key or test_id.startswith((f"{key}::", f"{key}["))]
    return max(matching, key=len, default=None)
