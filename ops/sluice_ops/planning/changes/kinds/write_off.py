"""Write off a lost host."""

from collections.abc import Iterable
from dataclasses import replace

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Plan, Step
from sluice_ops.model.share import Layer
from sluice_ops.model.wording import workers
from sluice_ops.planning.changes.kind import HOST, Kind
from sluice_ops.planning.changes.lookups import host_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError


class WriteOff(Kind):
    name = "write-off"
    summary = "Declare that a lost host will not come back. Its units are started elsewhere."
    details = (
        "A single lost host needs no write-off. When many hosts are lost at once, the brake keeps "
        "their units where they are; `sluice status` names the hosts. `sluice write-off` without a "
        "name writes all of them off."
    )
    example = "sluice write-off h2"
    steps = (Step.PREFLIGHT, Step.WRITE_OFF)
    fields = (
        replace(HOST, help="The host's name. Without it, all hosts that the brake holds.", required=False),
    )
    runbook = "write_off_host"
    layer = Layer.MAINTENANCE

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        if spec.host is None:
            return []
        name = host_of(spec, cluster)
        if cluster.hosts[name].state is not HostState.LOST:
            message = (
                f"host {name} is {cluster.hosts[name].state}, not lost: its agent answers; "
                f"to move everything off, run `sluice drain {name}`"
            )
            raise RefusedError(message)
        return []

    def effect(self, spec: ChangeSpec) -> str:
        hosts = spec.host or "every host that the brake holds"
        return f"{hosts} is written off: its units are started elsewhere"

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        """Add notes on the parts of tiers that are on the hosts."""
        return super().plan(spec, cluster, (*notes, *_lost_parts(spec, cluster)))


KIND = WriteOff()


def _lost_parts(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    gone = cluster.braked if spec.host is None else frozenset({spec.host})
    for tier in cluster.end_first():
        now = tier.placement
        parts = [] if now is None or now.driver not in gone else ["its driver"]
        if now is not None and gone.intersection(now.slots):
            parts.append(workers(sum(name in gone for name in now.slots)))
        if parts:
            yield f"{tier.spec.name} has {' and '.join(parts)} on a host that is written off"
