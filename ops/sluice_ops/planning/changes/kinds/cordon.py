"""Cordon a host."""

from collections.abc import Iterable

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.share import Layer
from sluice_ops.planning.changes.kind import HOST, Kind
from sluice_ops.planning.changes.lookups import host_of
from sluice_ops.planning.placement.cluster import Cluster


class Cordon(Kind):
    name = "cordon"
    summary = "Have nothing new placed on a host until it is returned; what runs there goes on."
    details = "`drain_host` also moves what runs there. `return_host` lets the host be used again."
    example = "sluice cordon h2"
    steps = (Step.PREFLIGHT, Step.CORDON)
    fields = (HOST,)
    runbook = "cordon_host"
    layer = Layer.MAINTENANCE

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        name = host_of(spec, cluster)
        state = cluster.hosts[name].state
        return (
            []
            if state in {HostState.UP, HostState.CORDONED, HostState.LOST}
            else [f"host {name} is {state}: nothing new goes there anyway"]
        )

    def effect(self, spec: ChangeSpec) -> str:
        """Say what the change does."""
        return f"nothing new is placed on {spec.host}; what runs there stays"


KIND = Cordon()
