"""What a doctor has to say about one thing that was looked at."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a thing is."""

    OK = "ok"
    NOTE = "note"
    """It works, less well than it could."""
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    thing: str
    verdict: Verdict
    sentence: str
    advice: str = ""
