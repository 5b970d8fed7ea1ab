"""What per cents are of: the site's own hosts as they have registered, whatever becomes of them. Used by `draft` and `sluice status`.

A host that is drained or lost still counts: a fault must not change what tenants are entitled to. Burst hosts do not: they come and go.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

from sluice_ops.model.ids import BATCH
from sluice_ops.model.resources import Quantum
from sluice_ops.planning.placement.cluster import BURST_ZONE, Rules
from sluice_ops.planning.placement.shares import wholes
from sluice_ops.snapshot.view import View


class Wholes(Mapping[str, int]):
    """Tenant → the slots that 100% are; counted when somebody asks, for where all numbers are in slots nobody does."""

    def __init__(self, view: View, rules: Rules) -> None:
        """Count, if need be, the hosts of this view."""
        self._view = view
        self._rules = rules

    def __getitem__(self, tenant: str) -> int:
        """Return the whole of one tenant."""
        return self._counted[tenant]

    def __iter__(self) -> Iterator[str]:
        """Go through the tenants."""
        return iter(self._counted)

    def __len__(self) -> int:
        """Return how many tenants there are."""
        return len(self._counted)

    @cached_property
    def _counted(self) -> dict[str, int]:
        own = (
            host.facts
            for host in self._view.hosts.values()
            if host.facts is not None and host.facts.zone != BURST_ZONE
        )
        rooms = ((facts.cpu, facts.memory) for facts in own)
        quanta: dict[str, Quantum] = {name: tier.spec.quantum for name, tier in self._view.tiers.items()}
        return wholes(rooms, {**quanta, BATCH: self._rules.batch_quantum})
