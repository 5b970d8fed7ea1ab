"""What the hosts hold now, as planning wants to see it: capacity less every unit of every incarnation that is not retired."""

from ops.controller.draft import Draft
from ops.model.assignment import HostState
from ops.model.ids import HostName
from ops.model.resources import Capacity
from ops.planning.cluster import Cluster, Host, Hosts, TierNow, holding


def cluster(draft: Draft) -> Cluster:
    """Return the cluster as this pass has it so far."""
    rules = draft.rules_now()
    hosts: Hosts = {name: host for name in draft.view.hosts if (host := _host(draft, name)) is not None}
    for name in draft.batch.values():
        if name in hosts:
            hosts = {**hosts, name: hosts[name].holding(rules.batch_quantum)}
    tiers: dict[str, TierNow] = {}
    for tier in draft.view.tiers.values():
        owning = draft.owning(tier.spec.name)
        tiers[tier.spec.name] = TierNow(tier.spec, None if owning is None else owning.placement)
        for incarnation in draft.held(tier.spec.name):
            hosts = holding(hosts, tier.spec, incarnation.placement)
    return Cluster(hosts, {tier.spec.name: tier for tier in tiers.values()}, tuple(sorted(draft.batch.values())), rules)


def _host(draft: Draft, name: HostName) -> Host | None:
    """Return a registered host; one whose agent is away takes nothing new, lost or not yet."""
    seen = draft.view.hosts[name]
    if seen.facts is None:
        return None
    state = draft.state_of(name) if seen.live else HostState.LOST
    capacity = Capacity(cpu=seen.facts.cpu, memory=seen.facts.memory)
    return Host(name, seen.facts.zone, seen.facts.labels, capacity, state)
