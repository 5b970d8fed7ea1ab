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
    summary = "Place nothing new on a host until it is returned. Units that run there continue."
    details = "`drain_host` also moves the units off. `return_host` lets the host be used again."
    example = "sluice cordon h2"
    steps = (Step.PREFLIGHT, Step.CORDON)
    fields = (HOST,)
    runbook = "cordon_host"
    layer = Layer.MAINTENANCE

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        name = host_of(spec, cluster)
        state = cluster.hosts[name].state
        return (
            []
            if state in {HostState.UP, HostState.CORDONED, HostState.LOST}
            else [f"host {name} is {state}, so nothing new is placed there already"]
        )

    def effect(self, spec: ChangeSpec) -> str:
        return f"nothing new is placed on {spec.host}; units that run there stay"


KIND = Cordon()
