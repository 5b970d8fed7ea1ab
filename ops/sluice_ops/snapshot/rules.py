"""The rules that planning follows: the site file under the layers, and the slots that are 100 %."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from sluice_ops.model.ids import BATCH
from sluice_ops.model.repair import Repair
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import why_no_spares
from sluice_ops.planning.placement.cluster import BURST_ZONE, Rules
from sluice_ops.planning.placement.shares import capacity_totals
from sluice_ops.site.site_file import Site
from sluice_ops.snapshot.view import View


def rules_of(site: Site, layers: Layers) -> Rules:
    """Return the rules of a site file under these layers, without capacity totals."""
    return Rules(
        shares=site.shares,
        locality=site.locality,
        spread=site.spread,
        separate=site.separate,
        dedicated=site.dedicated,
        budget=site.budget,
        layers=layers,
        shifts={name: shift.shares for name, shift in site.shifts.items()},
        partitions=site.partitions,
        batch_quantum=site.batch_quantum,
        batch_tenants=site.batch_tenants,
        reclaim_seconds=site.reclaim_seconds,
        repair=None
        if site.repair is None
        else Repair(site.repair.after, site.repair.changes_per_hour, site.repair.window),
        scaler=site.scaler,
        instance=site.ec2.capacity,
        max_instances=site.ec2.max_instances,
        alerts=site.alerts,
    )


def with_view(rules: Rules, view: View) -> Rules:
    """Return the rules with what they take from the view: capacity totals, and tiers without
    spares.
    """
    without = (name for name, tier in view.tiers.items() if why_no_spares(tier.spec) is not None)
    return replace(
        rules,
        capacity_totals=CapacityTotals(view, rules),
        without_spares=frozenset({BATCH, *without}),
    )


class CapacityTotals(Mapping[str, int]):
    """Tenant → the slots that are 100 %: what the site's own registered hosts hold when empty.

    A drained or lost host counts, so that a fault does not change shares. A burst host does not.
    The hosts are counted at the first question: without a per cent nothing asks.
    """

    def __init__(self, view: View, rules: Rules) -> None:
        """Count the hosts of this view when a share in per cent is first used."""
        self._view = view
        self._rules = rules

    def __getitem__(self, tenant: str) -> int:
        """Return the slots that are 100 % for a tenant."""
        return self._totals[tenant]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the tenants."""
        return iter(self._totals)

    def __len__(self) -> int:
        """Return the number of tenants."""
        return len(self._totals)

    @cached_property
    def _totals(self) -> dict[str, int]:
        facts = [host.facts for host in self._view.hosts.values() if host.facts is not None]
        rooms = ((host.cpu, host.memory) for host in facts if host.zone != BURST_ZONE)
        quanta: dict[str, Quantum] = {name: tier.spec.quantum for name, tier in self._view.tiers.items()}
        return capacity_totals(rooms, {**quanta, BATCH: self._rules.batch_quantum})
