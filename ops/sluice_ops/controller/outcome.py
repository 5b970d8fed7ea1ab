"""How a step stands after a pass."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Waiting:
    """It goes on; the sentence says what it waits for."""

    sentence: str


@dataclass(frozen=True)
class Done:
    """It has ended well."""

    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """It has ended; the sentence says why, and what to do."""

    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


Outcome = Waiting | Done | Failed
