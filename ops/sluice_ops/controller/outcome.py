"""The three outcomes of a step in one pass."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Waiting:
    """The step continues in the next pass; the sentence names what the step waits for."""

    sentence: str


@dataclass(frozen=True)
class Done:
    """The step has ended well."""

    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The step has failed; the sentence says why, and what to do next."""

    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


Outcome = Waiting | Done | Failed
