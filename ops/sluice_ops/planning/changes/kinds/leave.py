"""Leave EC2: end every burst."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Move
from sluice_ops.model.ids import HostName, Tenant
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layers
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import Kind, TierCheck
from sluice_ops.planning.changes.lookups import PLANNED, refuse_given_up
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Hosts, TierNow
from sluice_ops.planning.placement.shares import Target, target


class Leave(Kind):
    name = "leave"
    summary = "Move the tiers back from EC2, then terminate the instances."
    example = "sluice leave"
    forced = True
    empties_burst_hosts = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        after = cluster.with_layers(self.layers(spec, cluster, PLANNED, 0.0))
        leaving = (
            tier
            for tier in cluster.tiers.values()
            if to_leave(tier.placement, target(tier.spec.name, after.rules), cluster.hosts)
        )
        refuse_given_up(spec, (tier for tier in leaving if spec.tier in {None, tier.spec.name}))
        return []

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return bool(to_leave(now, aim, cluster.hosts))

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Name the tiers that stay on burst hosts because their place is there, and its owner."""
        moved = {move.tier: move.after for move in moves}
        for tier in cluster.end_first() if spec.tier is None else ():
            name = tier.spec.name
            now = moved.get(name, tier.placement)
            staying = [] if now is None else burst_hosts(now, cluster.hosts)
            if staying:
                owners = [
                    entry.owner
                    for entry in cluster.rules.layers.entries
                    if entry.tenant == Tenant(name) and entry.to is not None
                ]
                owner = owners[-1] if owners else f"locality.{name} in the site file"
                yield (
                    f"{name} stays on {listed(staying)}: {owner} set its place, "
                    f"{target(name, cluster.rules).to}. Instances on which a tier runs are not terminated. "
                    f"To terminate them, first move the tier with `sluice migrate {name} PLACE`, then leave "
                    "again"
                )

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        """Remove every entry that points to burst hosts alone."""

        def is_burst(to: str | None) -> bool:
            zones = {host.zone for host in cluster.hosts.values() if to is not None and host.matches(to)}
            return to == f"zone:{BURST_ZONE}" or zones == {BURST_ZONE}

        return Layers(
            entries=tuple(
                entry for entry in cluster.rules.layers.entries if not entry.extra and not is_burst(entry.to)
            )
        )

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return check.on_burst_hosts


KIND = Leave()


def to_leave(now: Placement | None, aim: Target, hosts: Hosts) -> list[HostName]:
    """Return the burst hosts that a tier has to leave.

    A tier with its place on burst hosts stays there, unless it has more slots than its number.
    """
    burst = [] if now is None else [hosts[name] for name in burst_hosts(now, hosts)]
    return [
        host.name
        for host in burst
        if not host.matches(aim.to) or (now is not None and len(now.slots) > aim.k)
    ]


def burst_hosts(placement: Placement, hosts: Hosts) -> list[HostName]:
    """Return the burst hosts that hold the driver or a slot of an incarnation."""
    return [name for name in sorted(placement.hosts) if name in hosts and hosts[name].zone == BURST_ZONE]
