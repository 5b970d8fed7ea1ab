"""Move everything off a host."""

from collections.abc import Iterable
from typing import ClassVar

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import HOST, Field, Kind, TierCheck
from sluice_ops.planning.changes.lookups import host_of, refuse_given_up
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target


class Drain(Kind):
    name = "drain"
    summary = (
        "Move everything off a host while records flow. The host takes nothing new until it is returned."
    )
    details = (
        "Sluice starts and warms the next incarnation of each tier on other hosts, then hands the tier "
        "over. No record is lost. Afterwards `return_host` lets the host be used again."
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
    fields: ClassVar[tuple[Field, ...]] = (HOST,)
    runbook = "drain_host"
    layer = Layer.MAINTENANCE
    forced = True
    empties_host = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        host_of(spec, cluster)
        self.refuse_hosts(spec, cluster)
        return []

    def refuse_hosts(self, spec: ChangeSpec, cluster: Cluster) -> None:
        """Raise RefusedError if one of the known hosts cannot be drained now."""
        names = spec.named_hosts
        for name in names:
            self._refuse_state(name, cluster.hosts[name].state)
        on_them = [
            tier
            for tier in cluster.tiers.values()
            if tier.placement is not None and not tier.placement.hosts.isdisjoint(names)
        ]
        if on_them and not any(host.usable for host in cluster.hosts.values() if host.name not in names):
            are = "is the only host" if len(names) == 1 else "are the only hosts"
            message = (
                f"host {listed(names)} {are} that {'is' if len(names) == 1 else 'are'} up; "
                "return another host first: `sluice return HOST`"
            )
            raise RefusedError(message)
        refuse_given_up(spec, on_them)

    def _refuse_state(self, name: HostName, state: HostState) -> None:
        if state is HostState.LOST:
            message = f"host {name} is lost: the controller starts its units elsewhere; start its agent first"
            raise RefusedError(message)
        if state is HostState.DRAINED and self.steps[-1] is Step.RELEASE:
            message = f"host {name} is already drained; to use the host again, run `sluice return {name}`"
            raise RefusedError(message)
        if state is HostState.REBOOTING:
            message = f"host {name} is rebooting; wait until it is up, or run `sluice return {name}`"
            raise RefusedError(message)

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return not now.hosts.isdisjoint(spec.named_hosts)

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return [f"is on {host}" for host in spec.named_hosts if host in now.hosts]


KIND = Drain()
