"""Which hosts fail: units of several tenants die there again and again, and these tenants do well on most of their other hosts.

Pure, like all of planning. Called by the controller, which notes what dies and cordons what is named here (decision record 0024).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sluice_ops.model.assignment import Death
from sluice_ops.model.ids import BATCH, HostName, Tenant, UnitId
from sluice_ops.planning.placement.cluster import Cluster
from sluice_ops.planning.placement.requests import DRIVER, Ask
from sluice_ops.planning.placement.shares import limits, target
from sluice_ops.planning.placement.solver import more_slots
from sluice_ops.planning.shortage.fitting import least, why_not

WINDOW_SECONDS = 1800.0
"""How long a death counts."""
DEATHS = 3
"""So many of what stands in one and the same place, within the window, are "again and again"."""
DOWN_SECONDS = 300.0
"""What has been down for so long counts likewise: it cannot even be started."""
TENANTS = 2
"""So many tenants have to fail on a host: what one does by itself is its own fault."""
MOST_PART = 0.2
"""More of the hosts are never quarantined at once, except for one: when many fail, it is something that they share."""


Age = Callable[[float], float]
"""How long ago a stamp was first seen. Unit: seconds."""


@dataclass(frozen=True)
class Evidence:
    """What has been seen of one host."""

    deaths: tuple[Death, ...]
    down: frozenset[UnitId] = frozenset()
    """Units that do not run now."""


def failing(
    seen: Mapping[HostName, Evidence], where: Callable[[Tenant], Iterable[HostName]], age: Age
) -> dict[HostName, str]:
    """Return the hosts that fail, the worst first, each with the reason.

    `where` tells on which hosts a tenant has units, and `age` for how long a death is known.
    """
    bad = {name: _tenants(evidence, age) for name, evidence in seen.items()}
    found: dict[HostName, tuple[int, str]] = {}
    for name, tenants in bad.items():
        if len(tenants) < TENANTS:
            continue
        to_blame = sorted(
            tenant for tenant in tenants if not _fails_elsewhere(tenant, name, bad, where(tenant))
        )
        if len(to_blame) >= TENANTS:
            count = sum(tenants[tenant] for tenant in to_blame)
            found[name] = (
                count,
                f"units of {', '.join(to_blame)} died there {count} times within {WINDOW_SECONDS / 60:.0f} min",
            )
    return {name: found[name][1] for name in sorted(found, key=lambda name: (-found[name][0], name))}


def allowed(count: int) -> int:
    """Return how many of so many hosts may be in quarantine at once."""
    return max(1, int(count * MOST_PART))


def room_without(names: AbstractSet[HostName], cluster: Cluster) -> str | None:
    """Say which minimum would find no room on the other hosts, were they empty; None when all do."""
    empty = {
        host.name: replace(host, used_cpu=0.0, used_memory=0, tiers=())
        for host in cluster.hosts.values()
        if host.usable and host.name not in names
    }
    return why_not(list(_minimums(cluster)), empty)


def _tenants(evidence: Evidence, age: Age) -> Counter[Tenant]:
    """Count the deaths of the tenants that fail again and again."""
    deaths = [death for death in evidence.deaths if age(death.at) <= WINDOW_SECONDS]
    times = Counter((death.tenant, death.place) for death in deaths)
    stuck = {
        (death.tenant, death.place)
        for death in evidence.deaths
        if death.unit in evidence.down and age(death.at) >= DOWN_SECONDS
    }
    again = {tenant for (tenant, place), count in times.items() if count >= DEATHS} | {
        tenant for tenant, _ in stuck
    }
    counted = Counter(death.tenant for death in deaths if death.tenant in again)
    return counted + Counter(dict.fromkeys(again - counted.keys(), 1))


def _fails_elsewhere(
    tenant: Tenant, name: HostName, bad: Mapping[HostName, Counter[Tenant]], hosts: Iterable[HostName]
) -> bool:
    """Tell whether a tenant fails on most of its other hosts too: then it is not the host."""
    others = [host for host in hosts if host != name]
    return 2 * sum(tenant in bad.get(host, ()) for host in others) > len(others)


def _minimums(cluster: Cluster) -> Iterable[Ask]:
    for name, tier in sorted(cluster.tiers.items()):
        if tier.wanted:
            aim = target(name, cluster.rules)
            yield more_slots(tier.spec, aim, min(aim.slots, least(tier.spec, cluster.rules)))
            yield Ask(name, 1, tier.spec.driver, aim.to, (), DRIVER, separate=aim.separate)
    lent = limits(BATCH, cluster.rules).minimum if BATCH in cluster.rules.shares else 0
    if lent:
        yield Ask(BATCH, lent, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to)
