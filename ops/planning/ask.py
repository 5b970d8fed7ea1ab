"""What placement is asked for: so many units of one size, and where they may be."""

from dataclasses import dataclass

from ops.model.ids import HostName
from ops.model.resources import Quantum
from ops.model.spread import Spread
from ops.planning.cluster import Host

DRIVER = "driver"
EXTRA = "extra"


@dataclass(frozen=True)
class Ask:
    """So many units of one size for one tenant, and where they may be and are."""

    tenant: str
    count: int
    quantum: Quantum
    to: str | None = None
    keep: tuple[HostName, ...] = ()
    part: str = "slots"
    """`slots`, `extra` or `driver`: asks of one tenant are told apart by it."""
    beside: tuple[HostName, ...] = ()
    """For a driver: where its tier's workers are placed."""
    spread: Spread | None = None
    """For workers: how far apart they have to be."""
    taken: tuple[HostName, ...] = ()
    """Where workers of the tier are that count beside these."""
    separate: frozenset[str] = frozenset()
    """The tiers that may not be on the same host."""

    @property
    def wide(self) -> str | None:
        """The innermost of the places larger than a host that are limited."""
        if self.spread is None:
            return None
        return "rack" if self.spread.rack is not None else "zone" if self.spread.zone is not None else None

    def left_on(self, host: Host) -> int:
        """Return how many more workers may be on this host."""
        if self.spread is None or self.spread.host is None:
            return self.count
        return max(0, min(self.count, self.spread.host - self.taken.count(host.name)))
