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
    summary = "Let a drained or cordoned host be used again, after a check of its health."
    details = (
        "The check: its agent answers, and its capacity is there. Nothing is moved onto the host by "
        "this: the next change, or a failure elsewhere, places on it."
    )
    example = "sluice return h2"
    steps = (Step.PREFLIGHT, Step.HEALTH, Step.RETURN)
    fields = (HOST,)
    runbook = "return_host"
    layer = Layer.MAINTENANCE

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        name = host_of(spec, cluster)
        state = cluster.hosts[name].state
        if state is HostState.LOST:
            message = f"host {name} is lost: its agent does not answer; start it, then return the host"
            raise RefusedError(message)
        return [f"host {name} is up already"] if state is HostState.UP else []

    def effect(self, spec: ChangeSpec) -> str:
        """Say what the change does."""
        return f"{spec.host} may be given work again"


KIND = Return()
