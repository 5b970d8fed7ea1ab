"""The requests to placement: a number of units of one size, and the allowed hosts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.spread import Spread
from sluice_ops.planning.placement.cluster import Host, Hosts

DRIVER = "driver"
EXTRA = "extra"


@dataclass(frozen=True)
class Request:
    """A number of units of one size for one tenant, their allowed hosts, and their current
    hosts.
    """

    tenant: str
    count: int
    quantum: Quantum
    to: str | None = None
    keep: tuple[HostName, ...] = ()
    """The current hosts, where staying is cheaper than moving."""
    part: str = "slots"
    """`slots`, `extra` or `driver`, which tells the requests of one tenant apart."""
    beside: tuple[HostName, ...] = ()
    """For a driver: the hosts of its tier's workers."""
    spread: Spread | None = None
    """For workers: the most of them in one host, rack or zone."""
    taken: tuple[HostName, ...] = ()
    """The hosts of the tier's other workers, which count against `spread` too."""
    separate: frozenset[str] = frozenset()
    """The tiers that may not be on the same host."""
    pinned: Mapping[HostName, int] = field(default_factory=dict)
    """For workers: how many of them are on a host that can take them. A burst's are not pinned."""

    @property
    def wide(self) -> str | None:
        """`rack` if `spread` limits racks, else `zone` if it limits zones, else None."""
        if self.spread is None:
            return None
        return "rack" if self.spread.rack is not None else "zone" if self.spread.zone is not None else None

    def left_on(self, host: Host) -> int:
        """Return how many more workers may be on this host."""
        if self.spread is None or self.spread.host is None:
            return self.count
        return max(0, min(self.count, self.spread.host - self._taken_on[host.name]))

    def pinned_on(self, name: HostName) -> int:
        """Return how many of the units are pinned to a host, beside those on `taken`."""
        return 0 if self.part == EXTRA else max(0, self.pinned.get(name, 0) - self._taken_on[name])

    @cached_property
    def _taken_on(self) -> Counter[HostName]:
        return Counter(self.taken)


class Places:
    """Counts the workers in each limited host, rack or zone, while workers are placed one
    by one.
    """

    def __init__(
        self, limits: Iterable[tuple[str, int | None]], taken: Iterable[HostName], hosts: Hosts
    ) -> None:
        """Count the workers on the hosts `taken` first. A limit of None means no limit."""
        self._limits = [(kind, most) for kind, most in limits if most is not None]
        taken_hosts = [hosts[name] for name in taken if name in hosts]
        self._held = {kind: Counter(host.within(kind) for host in taken_hosts) for kind, _ in self._limits}

    def take(self, host: Host, count: int) -> int:
        """Place up to `count` workers on a host, as the limits allow; return the number placed."""
        held = [(self._held[kind], host.within(kind), most) for kind, most in self._limits]
        for counts, place, most in held:
            count = min(count, most - counts[place])
        if count <= 0:
            return 0
        for counts, place, _ in held:
            counts[place] += count
        return count
