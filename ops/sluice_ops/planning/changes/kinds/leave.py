"""Leave EC2: end every burst, that of one tier, or a part of it."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Move
from sluice_ops.model.ids import HostName, Tenant
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import LayerEntry, Layers
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.changes.kind import Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import PLANNED, refuse_given_up, tier_of
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, Hosts, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target, target


class Leave(Kind):
    name = "leave"
    summary = "Take tiers off EC2, then terminate the instances."
    details = (
        "With a tier, only its burst ends, and instances with other units stay. A tier that cannot release "
        "its workers in place is handed over to the site's own hosts."
    )
    example = "sluice leave, or: sluice leave --tier enrich --k 1"
    fields = (
        Field("tier", Input.TIER, "The tier whose burst ends. Without it, every burst.", False, option=True),
        Field(
            "k",
            Input.COUNT,
            "How many workers of the tier's burst end. Without it, all of them.",
            required=False,
            option=True,
        ),
    )
    forced = True
    resizes = True
    empties_burst_hosts = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        if spec.tier is not None:
            tier_of(spec, cluster)
        if spec.k is not None:
            _refuse_number(spec, cluster)
        after = cluster.with_layers(self.layers(spec, cluster, PLANNED, 0.0))
        leaving = (
            tier
            for tier in cluster.tiers.values()
            if tier.placement is not None
            and must_leave(tier.placement, target(tier.spec.name, after.rules), cluster.hosts)
        )
        refuse_given_up(spec, (tier for tier in leaving if spec.tier in {None, tier.spec.name}))
        return []

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return must_leave(now, aim, cluster.hosts)

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
        """Remove every entry that points to burst hosts alone, or some workers of a burst."""

        def is_burst(to: str | None) -> bool:
            zones = {host.zone for host in cluster.hosts.values() if to is not None and host.matches(to)}
            return to == f"zone:{BURST_ZONE}" or zones == {BURST_ZONE}

        def after(entry: LayerEntry) -> LayerEntry | None:
            if spec.tier is not None and entry.tenant != spec.tenant:
                return entry
            if isinstance(spec.k, int):
                left = entry.extra - spec.k
                if not entry.extra:
                    return entry
                return entry.model_copy(update={"extra": left}) if left > 0 else None
            return None if entry.extra or is_burst(entry.to) else entry

        entries = (after(entry) for entry in cluster.rules.layers.entries)
        return Layers(entries=tuple(entry for entry in entries if entry is not None))

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return check.on_burst_hosts


KIND = Leave()


def _refuse_number(spec: ChangeSpec, cluster: Cluster) -> None:
    """Raise RefusedError if a burst has not so many workers, or no tier is named."""
    if spec.tier is None:
        message = "leave needs a tier for k workers: `sluice leave --tier TIER --k K`"
        raise RefusedError(message)
    burst = cluster.rules.layers.present_burst(spec.tier)
    present = 0 if burst is None else burst.extra
    if not isinstance(spec.k, int) or not 0 < spec.k <= present:
        message = (
            f'tier "{spec.tier}" has a burst of {workers(present)}, so {spec.k} cannot leave EC2; ask for 1 '
            f"to {present}, or leave k out: `sluice leave --tier {spec.tier}`"
            if present
            else f'tier "{spec.tier}" has no burst; `sluice shares` lists the bursts'
        )
        raise RefusedError(message)


def must_leave(now: Placement, aim: Target, hosts: Hosts) -> bool:
    """Return whether a tier has more on burst hosts than its burst and its place allow.

    A tier with its place on burst hosts stays there, unless it has more slots than its number.
    """
    used = burst_hosts(now, hosts)
    away = {name for name in used if not hosts[name].matches(aim.to)}
    has_too_many = bool(used) and len(now.slots) > aim.k
    return has_too_many or now.driver in away or sum(name in away for name in now.slots) > aim.extra


def burst_hosts(placement: Placement, hosts: Hosts) -> list[HostName]:
    """Return the burst hosts that hold the driver or a slot of an incarnation."""
    return [name for name in sorted(placement.hosts) if name in hosts and hosts[name].zone == BURST_ZONE]
