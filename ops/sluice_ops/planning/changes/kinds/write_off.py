"""Give up a lost host."""

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
    summary = "Say that a lost host will not come back: what was on it goes on elsewhere."
    details = (
        "One lost host needs no word from a person. When many hosts are lost at once, the brake holds "
        "what is on them where it is; `sluice status` names them. `sluice write-off` without a name "
        "writes all of them off."
    )
    example = "sluice write-off h2"
    steps = (Step.PREFLIGHT, Step.WRITE_OFF)
    fields = (replace(HOST, help="The host's name; without it, all that the brake holds.", required=False),)
    runbook = "write_off_host"
    layer = Layer.MAINTENANCE

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        if spec.host is None:
            return []
        name = host_of(spec, cluster)
        if cluster.hosts[name].state is not HostState.LOST:
            message = f"host {name} is {cluster.hosts[name].state}: its agent is there; `sluice drain {name}` moves everything off"
            raise RefusedError(message)
        return []

    def effect(self, spec: ChangeSpec) -> str:
        """Say what the change does."""
        return f"{spec.host or 'every host that is lost'} is not waited for any more: what ran there is started elsewhere"

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        """Add what of each tier is on the hosts that are written off."""
        return super().plan(spec, cluster, (*notes, *_lost(spec, cluster)))


KIND = WriteOff()


def _lost(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    gone = {
        name
        for name, host in cluster.hosts.items()
        if host.state is HostState.LOST and spec.host in {None, name}
    }
    for tier in cluster.end_first():
        now = tier.placement
        parts = [] if now is None or now.driver not in gone else ["its driver"]
        if now is not None and gone.intersection(now.slots):
            parts.append(workers(sum(name in gone for name in now.slots)))
        if parts:
            yield f"{tier.spec.name} has {' and '.join(parts)} there"
