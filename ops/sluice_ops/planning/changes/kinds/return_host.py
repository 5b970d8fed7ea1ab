"""Let a host be used again."""

from collections.abc import Iterable

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.share import Layer
from sluice_ops.planning.changes.kind import HOST, Kind
from sluice_ops.planning.changes.lookups import host_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError


class Return(Kind):
    name = "return"
    summary = "Let a drained or cordoned host be used again. Sluice checks its health first."
    details = (
        "The check: the host's agent answers, and the host has its capacity. Nothing moves onto the "
        "host now. The next change, or a failure elsewhere, may place units there."
    )
    example = "sluice return h2"
    steps = (Step.PREFLIGHT, Step.HEALTH, Step.RETURN)
    fields = (HOST,)
    runbook = "return_host"
    layer = Layer.MAINTENANCE

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        name = host_of(spec, cluster)
        state = cluster.hosts[name].state
        if state is HostState.LOST:
            message = (
                f"host {name} is lost: its agent does not answer; "
                f"start the agent, then run `sluice return {name}`"
            )
            raise RefusedError(message)
        return [f"host {name} is already up"] if state is HostState.UP else []

    def effect(self, spec: ChangeSpec) -> str:
        return f"units may be placed on {spec.host} again"


KIND = Return()
