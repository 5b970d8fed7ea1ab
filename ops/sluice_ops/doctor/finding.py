"""The result of one check of a doctor."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    """Works, but less well or less safely than possible."""
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    thing: str
    verdict: Verdict
    sentence: str
    advice: str = ""
    """The next step; empty if the verdict is OK."""
