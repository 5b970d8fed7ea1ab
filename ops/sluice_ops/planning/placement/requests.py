"""What placement is asked for: so many units of one size, and where they may be."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.spread import Spread
from sluice_ops.planning.placement.cluster import Host, Hosts

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
        return max(0, min(self.count, self.spread.host - self._taken_on.get(host.name, 0)))

    @cached_property
    def _taken_on(self) -> Counter[HostName]:
        return Counter(self.taken)


class Places:
    """How many more workers each of the places may take that are limited, while one after the other is put somewhere."""

    def __init__(
        self, limits: Iterable[tuple[str, int | None]], taken: Iterable[HostName], hosts: Hosts
    ) -> None:
        """Begin with those that are taken; a limit of None is none."""
        self._limits = [(kind, most) for kind, most in limits if most is not None]
        there = [hosts[name] for name in taken if name in hosts]
        self._held = {kind: Counter(host.within(kind) for host in there) for kind, _ in self._limits}

    def take(self, host: Host, count: int) -> int:
        """Put so many on a host, or as many as may be there; return how many."""
        held = [(self._held[kind], host.within(kind), most) for kind, most in self._limits]
        for counts, place, most in held:
            count = min(count, most - counts[place])
        if count <= 0:
            return 0
        for counts, place, _ in held:
            counts[place] += count
        return count
