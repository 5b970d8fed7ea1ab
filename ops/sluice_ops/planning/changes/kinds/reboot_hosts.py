"""Drain some hosts, reboot them together, and return them: one batch of a rolling reboot."""

from collections.abc import Iterable

from sluice_ops.model.change import REBOOT_HOSTS, ChangeSpec
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds.reboot import Reboot
from sluice_ops.planning.placement.cluster import Cluster, RefusedError


class RebootHosts(Reboot):
    name = REBOOT_HOSTS
    summary = "Drain, reboot, check and return several hosts together while records flow."
    details = (
        "`rolling_reboot` posts it for each batch of hosts. It is refused if a tier would get fewer slots."
    )
    example = "sluice rolling-reboot rack:r1 --at-once 2"
    fields = ()
    runbook = ""
    command = False
    exact = True
    waits_for_lock = True
    held_back = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        unknown = sorted({*spec.hosts} - cluster.hosts.keys())
        if unknown or not spec.hosts:
            named = f"there is no host {listed(unknown)}" if unknown else f"{spec.kind} names no hosts"
            message = f"{named}; known hosts: {listed(sorted(cluster.hosts)) or 'none has registered yet'}"
            raise RefusedError(message)
        self.refuse_hosts(spec, cluster)
        return []


KIND = RebootHosts()
