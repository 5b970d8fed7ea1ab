"""When the controller may repair drift by itself."""

from dataclasses import dataclass
from typing import Protocol

REPAIR_SECONDS = 300.0
"""The default of `Repair.after`. A host that reboots is back sooner."""
REPAIRS_PER_HOUR = 6
"""The default of `Repair.changes_per_hour`."""


class Window(Protocol):
    """Some hours, again and again, in which something holds."""

    def opens(self, now: float) -> float | None:
        """Return when the window opens next, in epoch seconds; None if it is open."""


@dataclass(frozen=True)
class Repair:
    """The rules of automatic repairs."""

    after: float = REPAIR_SECONDS
    """How long a tier must have drifted. Unit: seconds."""
    changes_per_hour: int = REPAIRS_PER_HOUR
    """The most repairs that begin within an hour."""
    window: Window | None = None
    """None: at any time."""
