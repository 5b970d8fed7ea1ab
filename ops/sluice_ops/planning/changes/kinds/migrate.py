"""Move a tier to a place, or single workers of a tier to a host.

A single worker moves by a handover, too: the next incarnation runs exactly where the present one
does, except for the workers that the change names (decision 67).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sluice_ops.model.assignment import slot_number
from sluice_ops.model.change import ChangeSpec, Move
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, Layers, Setting
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import PLANNED, notes_if_stopped, person_entry, refuse_light, tier_of
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, TierNow, moved
from sluice_ops.planning.placement.drift import drift
from sluice_ops.planning.placement.exactly import place_of_worker
from sluice_ops.planning.placement.shares import Target, target, with_entry, without_entry

ANYWHERE = "anywhere"
"""The place of `sluice migrate TIER anywhere`, which removes the place that a person set."""


class Migrate(Kind):
    name = "migrate"
    summary = (
        "Move a tier to a place, or a single worker to a host. A place is a host, a zone, a rack or a "
        "label; the tier stays there."
    )
    details = (
        "Sluice starts and warms the next incarnation there, hands the tier over, verifies the "
        "handover, and releases the old slots. With workers, only these move: the tier's driver and "
        "other workers get new slots on the same hosts."
    )
    example = "sluice migrate outbound zone:onprem, or: sluice migrate enrich h3 --worker slot-enrich-4-1"
    fields = (
        TIER,
        Field(
            "to",
            Input.PLACE,
            "A host's name, zone:NAME, rack:NAME, label:NAME, or `anywhere` to remove the place again.",
        ),
        Field(
            "workers",
            Input.WORKERS,
            "A single worker to move to a host, by its slot as `sluice slots` lists it. Without it, the "
            "whole tier moves.",
            required=False,
            option=True,
        ),
    )
    runbook = "migrate_tier"
    exact = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        tier = tier_of(spec, cluster)
        if spec.to is None:
            message = "migrate needs a place: a host's name, zone:…, rack:…, label:… or `anywhere`"
            raise RefusedError(message)
        if spec.workers:
            _refuse_workers(spec, tier, cluster)
            return []
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
        fixed = self.fixed_placement(spec, tier.spec.name, now)
        return not _is_at(now, aim, cluster.hosts) if fixed is None else fixed != now

    def destinations(self, spec: ChangeSpec, tier: TierName) -> Mapping[int, HostName]:
        if spec.to is None or tier != spec.tier:
            return {}
        return {slot_number(worker): HostName(spec.to) for worker in spec.workers}

    def remarks(self, spec: ChangeSpec, cluster: Cluster, moves: Iterable[Move]) -> Iterable[str]:
        """Note that a repair would move workers again, because the tier will have drifted."""
        for move in moves if spec.workers else ():
            tier, name = cluster.tiers[move.tier], move.tier
            before = move.after if move.before is None else move.before
            hosts = moved(cluster.hosts, tier.spec, before, move.after)
            for difference in drift(replace(tier, placement=move.after), target(name, cluster.rules), hosts):
                yield f"afterwards {name} {difference}: a repair moves workers of {name} again"

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        if spec.workers:
            return cluster.rules.layers
        if spec.to in {None, ANYWHERE}:
            return without_entry(cluster.rules.layers, spec.tenant, Layer.PERSON, Setting.PLACE)
        return with_entry(
            cluster.rules.layers, person_entry(spec, by, now).model_copy(update={"to": spec.to})
        )

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        if not spec.workers:
            return check.displaced(gone=True)
        return self.unmoved(spec, tier.spec.name, now)


KIND = Migrate()


def _is_at(now: Placement, aim: Target, hosts: Hosts) -> bool:
    """Return whether the driver and all slots, except those of a burst, are at the tier's place."""

    def is_there(name: HostName) -> bool:
        return name in hosts and hosts[name].matches(aim.to)

    return is_there(now.driver) and sum(not is_there(name) for name in now.slots) <= aim.extra


def _refuse_workers(spec: ChangeSpec, tier: TierNow, cluster: Cluster) -> None:
    """Raise RefusedError if a worker is unknown, or may not be on the host.

    `place_exactly` checks the host's room and the rules for the whole incarnation.
    """
    refuse_light(tier)
    name, hosts, to = tier.spec.name, cluster.hosts, HostName(spec.to or "")
    places = {} if tier.placement is None else dict(zip(tier.workers, tier.placement.slots, strict=False))
    unknown = [worker for worker in spec.workers if worker not in places]
    if unknown:
        its_workers = listed(f"{worker} on {host}" for worker, host in places.items())
        message = (
            f'tier "{name}" has no worker {listed(unknown)}; '
            f"its workers: {its_workers or f'none, because {name} does not run'}"
        )
        raise RefusedError(message)
    if to not in hosts:
        message = (
            f"{listed(spec.workers)} cannot move to {to}: a single worker moves to a host; "
            f"known hosts: {listed(sorted(hosts))}"
        )
        raise RefusedError(message)
    if not hosts[to].usable:
        message = (
            f"{listed(spec.workers)} cannot move to {to}: {to} is {hosts[to].state}; "
            f"choose another host, or return it first: `sluice return {to}`"
        )
        raise RefusedError(message)
    aim = target(name, cluster.rules)
    for worker in spec.workers:
        place = place_of_worker(places[worker], aim, hosts)
        if not hosts[to].matches(place):
            where = place or "one of the site's own hosts"
            message = (
                f"{worker} cannot move to {to}: it has to be at {where}; choose a host there, or move the "
                f"whole tier with `sluice migrate {name} {to}`"
            )
            raise RefusedError(message)
