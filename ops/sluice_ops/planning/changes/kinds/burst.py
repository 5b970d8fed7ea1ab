"""Burst: more workers for a tier, on EC2 instances."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.share import Layers
from sluice_ops.model.wording import workers
from sluice_ops.planning.changes.burst import burst_of, slots_after
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind
from sluice_ops.planning.changes.lookups import (
    check_number,
    notes_if_stopped,
    person_entry,
    refuse_light,
    tier_of,
)
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, RefusedError
from sluice_ops.planning.placement.shares import target, with_entry


class Burst(Kind):
    name = "burst"
    summary = "Give a tier k more workers, on EC2 instances."
    details = "A further burst adds k more workers. `leave_ec2` ends the bursts and terminates the instances."
    example = "sluice burst enrich 2"
    fields = (
        TIER,
        Field("k", Input.COUNT, "How many workers to add, each of one quantum.", required=False, default=1),
    )
    exact = True
    resizes = True
    launches = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        tier = tier_of(spec, cluster)
        refuse_light(tier)
        k = burst_of(spec)
        if spec.k not in {None, k} or k < 1:
            message = (
                f"burst needs k of 1 or more, not {spec.k}; "
                f"to remove burst slots, run `sluice leave --tier {tier.spec.name}` or leave_ec2"
            )
            raise RefusedError(message)
        to = spec.to or f"zone:{BURST_ZONE}"
        if not any(host.usable for host in cluster.hosts.values() if host.matches(to)):
            name = tier.spec.name
            message = (
                f'tier "{name}" cannot burst: no host at {to} is up; launch one with '
                f"`sluice burst {name} {k}` or burst_to_ec2, or start the host's agent"
            )
            raise RefusedError(message)
        slots = target(tier.spec.name, cluster.rules).slots
        before = cluster.rules.layers.present_burst(tier.spec.name)
        if before is not None and before.extra_to != to:
            message = (
                f'tier "{tier.spec.name}" has a burst of {workers(before.extra)} at {before.extra_to}; end '
                f"it with `sluice leave --tier {tier.spec.name}` before a burst at {to}"
            )
            raise RefusedError(message)
        check_number(tier, slots, slots + slots_after(spec, cluster.rules.layers), cluster)
        return notes_if_stopped(tier)

    def layers(self, spec: ChangeSpec, cluster: Cluster, by: str, now: float) -> Layers:
        layers = cluster.rules.layers
        update = {"extra": slots_after(spec, layers), "extra_to": spec.to or f"zone:{BURST_ZONE}"}
        return with_entry(layers, person_entry(spec, by, now).model_copy(update=update))


KIND = Burst()
