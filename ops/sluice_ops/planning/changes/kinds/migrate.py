"""Move a tier to a place."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, Layers, Setting
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import PLANNED, notes_if_stopped, person_entry, tier_of
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target, target, with_entry, without_entry

ANYWHERE = "anywhere"
"""The place of `sluice migrate TIER anywhere`, which removes the place that a person set."""


class Migrate(Kind):
    name = "migrate"
    summary = "Move a tier to a host, a zone, a rack or a label. The tier stays there."
    details = (
        "Sluice starts and warms the next incarnation there, hands the tier over, verifies the "
        "handover, and releases the old slots."
    )
    example = "sluice migrate outbound zone:onprem"
    fields = (
        TIER,
        Field(
            "to",
            Input.PLACE,
            "A host's name, zone:NAME, rack:NAME, label:NAME, or `anywhere` to remove the place again.",
        ),
    )
    runbook = "migrate_tier"
    exact = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        tier = tier_of(spec, cluster)
        if spec.to is None:
            message = "migrate needs a place: a host's name, zone:…, rack:…, label:… or `anywhere`"
            raise RefusedError(message)
        aim = target(tier.spec.name, cluster.with_layers(self.layers(spec, cluster, PLANNED, 0.0)).rules)
        matching = [host for host in cluster.hosts.values() if host.matches(aim.to)]
        if not matching:
            hosts = cluster.hosts.values()
            zones = sorted({f"zone:{host.zone}" for host in hosts})
            racks = sorted({f"rack:{host.rack}" for host in hosts if host.rack})
            labels = sorted({f"label:{label}" for host in hosts for label in host.labels})
            known = ", ".join([*sorted(cluster.hosts), *zones, *racks, *labels])
            message = f'tier "{tier.spec.name}" cannot move to {spec.to}: no host is there; known: {known}'
            raise RefusedError(message)
        if not any(host.usable for host in matching):
            states = ", ".join(f"{host.name} is {host.state}" for host in matching)
            message = (
                f'tier "{tier.spec.name}" cannot move to {spec.to}: {states}; '
                "return a host there first: `sluice return HOST`"
            )
            raise RefusedError(message)
        return notes_if_stopped(tier)

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return not _is_at(now, aim, cluster.hosts)

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        if spec.to in {None, ANYWHERE}:
            return without_entry(cluster.rules.layers, spec.tenant, Layer.PERSON, Setting.PLACE)
        return with_entry(
            cluster.rules.layers, person_entry(spec, by, now).model_copy(update={"to": spec.to})
        )

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return check.displaced(gone=True)


KIND = Migrate()


def _is_at(now: Placement, aim: Target, hosts: Hosts) -> bool:
    """Return whether the driver and all slots, except those of a burst, are at the tier's place."""

    def is_there(name: HostName) -> bool:
        return name in hosts and hosts[name].matches(aim.to)

    return is_there(now.driver) and sum(not is_there(name) for name in now.slots) <= aim.extra
