"""Leave EC2."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Move
from sluice_ops.model.ids import HostName, Tenant
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layers
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import Kind, TierCheck
from sluice_ops.planning.changes.lookups import PLANNED, refuse_given_up
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Host, Hosts, Rules, TierNow
from sluice_ops.planning.placement.shares import Target, target


class Leave(Kind):
    name = "leave"
    summary = "Hand every tier over to the site's own hosts, then terminate the EC2 instances."
    example = "sluice leave"
    forced = True
    empties_burst_hosts = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        after = cluster.with_layers(self.layers(spec, cluster.rules, PLANNED, 0.0, cluster.hosts.values()))
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
        """Tell whether the tier is not yet as the change wants it."""
        return bool(to_leave(now, aim, cluster.hosts))

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Name the tiers that have their place on burst hosts and stay there, and where that place was set."""
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
                owner = f"{owners[-1]} has it" if owners else f"locality.{name} in the site file has it"
                yield (
                    f"{name} stays on {listed(staying)}: {owner} at {target(name, cluster.rules).to}. Instances that a tier runs on are "
                    f"kept, not terminated; give {name} another place first to have them go"
                )

    def layers(self, spec: ChangeSpec, rules: Rules, by: str, now: float, hosts: Iterable[Host]) -> Layers:
        """Take back every entry that points to burst hosts alone."""
        all_hosts = [*hosts]

        def is_burst(to: str | None) -> bool:
            zones = {host.zone for host in all_hosts if to is not None and host.matches(to)}
            return to == f"zone:{BURST_ZONE}" or zones == {BURST_ZONE}

        return Layers(
            entries=tuple(
                entry for entry in rules.layers.entries if not entry.extra and not is_burst(entry.to)
            )
        )

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what is not as the change wants it."""
        return check.on_burst_hosts


KIND = Leave()


def to_leave(now: Placement | None, aim: Target, hosts: Hosts) -> list[HostName]:
    """Name the burst hosts that a tier is on and has to leave: none where it has its place there, unless it has more than its number."""
    burst = [] if now is None else [hosts[name] for name in burst_hosts(now, hosts)]
    return [
        host.name
        for host in burst
        if not host.matches(aim.to) or (now is not None and len(now.slots) > aim.k)
    ]


def burst_hosts(placement: Placement, hosts: Hosts) -> list[HostName]:
    """Name the burst hosts that an incarnation has a part on."""
    return [name for name in sorted(placement.hosts) if name in hosts and hosts[name].zone == BURST_ZONE]
