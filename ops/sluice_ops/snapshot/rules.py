"""The rules that planning follows: the site file under the layers, and the slots that are 100 %."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from sluice_ops.model.ids import BATCH
from sluice_ops.model.repair import Repair
from sluice_ops.model.resources import Quantum
from sluice_ops.model.scaler import Mode
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import why_no_spares
from sluice_ops.planning.placement.cluster import BURST_ZONE, Rules
from sluice_ops.planning.placement.shares import capacity_totals, fewest_for_threads
from sluice_ops.site.site_file import Site
from sluice_ops.snapshot.view import View


def rules_of(site: Site, layers: Layers) -> Rules:
    """Return the rules of a site file under these layers, without capacity totals."""
    return Rules(
        shares=site.shares,
        pipeline_share=site.pipeline_share,
        locality=site.locality,
        spread=site.spread,
        pinned=site.pinned,
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
        approval=site.approval,
        approval_hours=None if site.approval is None else site.approval.hours,
        reboot_window=site.reboot_window,
    )


def with_view(rules: Rules, view: View) -> Rules:
    """Return the rules with what they take from the view: capacity totals, the fewest workers of
    realtime tiers, tiers without spares or without workers, and tiers whose number the scaler
    sets.
    """
    without = (name for name, tier in view.tiers.items() if why_no_spares(tier.spec) is not None)
    with_totals = replace(
        rules,
        capacity_totals=CapacityTotals(view, rules),
        without_spares=frozenset({BATCH, *without}),
        light=frozenset(name for name, tier in view.tiers.items() if tier.spec.light),
        scaled=frozenset(
            name for name, decision in view.scaler.decisions.items() if decision.mode is Mode.ACT
        ),
    )
    if rules.pipeline_share is None:
        return with_totals
    drivers: dict[str, Quantum] = {name: tier.spec.driver for name, tier in view.tiers.items()}
    return replace(
        with_totals,
        fewest={name: fewest_for_threads(tier.spec, rules) for name, tier in view.tiers.items()},
        drivers=sum(
            (Fraction(1, total) for total in capacity_totals(_rooms(view), drivers).values() if total),
            Fraction(0),
        ),
    )


def _rooms(view: View) -> list[tuple[float, int]]:
    """Return cores and MiB of the site's own registered hosts."""
    facts = [host.facts for host in view.hosts.values() if host.facts is not None]
    return [(host.cpu, host.memory) for host in facts if host.zone != BURST_ZONE]


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
        quanta: dict[str, Quantum] = {name: tier.spec.quantum for name, tier in self._view.tiers.items()}
        return capacity_totals(_rooms(self._view), {**quanta, BATCH: self._rules.batch_quantum})
