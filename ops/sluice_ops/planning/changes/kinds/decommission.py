"""Take a host out of service for good."""

from collections.abc import Iterable

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds.drain import Drain
from sluice_ops.planning.changes.lookups import host_of
from sluice_ops.planning.placement.cluster import BURST_ZONE, Cluster, RefusedError
from sluice_ops.planning.shortage.remaining import why_too_small


class Decommission(Drain):
    name = "decommission"
    summary = "Take a host out of service for good, while records flow."
    details = (
        "The host is drained and checked to be empty. Its agent ends, and its registration, credential "
        "and labels are removed. An agent of this name is refused afterwards, until it joins with a "
        "new token. A dead host can be decommissioned, too. The change is refused if the hosts that "
        "remain do not hold the guaranteed minimums."
    )
    example = "sluice decommission h4"
    steps = (*Drain.steps, Step.DECOMMISSION)
    runbook = "decommission_host"

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        name = host_of(spec, cluster)
        host = cluster.hosts[name]
        if host.zone == BURST_ZONE:
            message = f"host {name} is an EC2 instance; to terminate it, run `sluice leave`"
            raise RefusedError(message)
        if host.state is HostState.LOST:
            _refuse_used(name, cluster)
        else:
            self.refuse_hosts(spec, cluster)
        if (why := why_too_small((name,), cluster)) is not None:
            raise RefusedError(why)
        if host.state is not HostState.LOST:
            return []
        return [f"the agent of {name} is silent: what runs on the machine, and its files, are not checked"]


KIND = Decommission()


def _refuse_used(name: HostName, cluster: Cluster) -> None:
    """Raise RefusedError if units are still assigned to a lost host."""
    tiers = [
        tier.spec.name
        for tier in cluster.end_first()
        if tier.placement is not None and name in tier.placement.hosts
    ]
    if name in cluster.braked:
        message = (
            f"host {name} is lost, and the brake keeps its units there; if the machine is gone for good, "
            f"run `sluice write-off {name}` first"
        )
        raise RefusedError(message)
    if tiers:
        message = (
            f"host {name} is lost, and {listed(tiers)} could not be placed elsewhere yet; `sluice status` "
            "shows the reason"
        )
        raise RefusedError(message)
