"""Move everything off a host."""

from collections.abc import Iterable
from typing import ClassVar

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer
from sluice_ops.planning.changes.kind import HOST, Kind, TierCheck
from sluice_ops.planning.changes.lookups import host_of, refuse_given_up
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target


class Drain(Kind):
    name = "drain"
    summary = (
        "Move everything off a host while records flow; the host takes nothing new until it is returned."
    )
    details = (
        "Afterwards `return_host` lets the host be used again. No record is lost: each tier is handed "
        "over to an incarnation on other hosts that was started and warmed beside it."
    )
    example = "sluice drain h2 --deadline 300"
    steps: ClassVar[tuple[Step, ...]] = (
        Step.PREFLIGHT,
        Step.CORDON,
        Step.PREPARE,
        Step.CUT,
        Step.VERIFY,
        Step.RELEASE,
    )
    fields = (HOST,)
    runbook = "drain_host"
    layer = Layer.MAINTENANCE
    forced = True
    empties_host = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        name = host_of(spec, cluster)
        state = cluster.hosts[name].state
        if state is HostState.LOST:
            message = (
                f"host {name} is lost: what ran there has been started elsewhere; bring its agent back first"
            )
            raise RefusedError(message)
        if state is HostState.DRAINED and self.steps[-1] is Step.RELEASE:
            message = f"host {name} is drained already; `sluice return {name}` lets it be used again"
            raise RefusedError(message)
        if state is HostState.REBOOTING:
            message = f"host {name} is rebooting; wait for it, or return it"
            raise RefusedError(message)
        if not any(host.usable for host in cluster.hosts.values() if host.name != name) and any(
            tier.placement is not None and name in tier.placement.hosts for tier in cluster.tiers.values()
        ):
            message = f"host {name} is the last one that is up; return another one first"
            raise RefusedError(message)
        refuse_given_up(
            spec,
            (
                tier
                for tier in cluster.tiers.values()
                if tier.placement is not None and name in tier.placement.hosts
            ),
        )
        return []

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Tell whether the tier is not yet as the change wants it."""
        return spec.host in now.hosts

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what is not as the change wants it."""
        return [f"is on {spec.host}"] if spec.host in now.hosts else []


KIND = Drain()
