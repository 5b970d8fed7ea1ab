"""Failing hosts: units of several tenants die there repeatedly, but run well on most other hosts.

Pure, like all of planning. The controller records the deaths, calls this module and cordons the
hosts that it returns (decision 24).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sluice_ops.model.assignment import Death
from sluice_ops.model.ids import BATCH, HostName, Tenant, UnitId
from sluice_ops.planning.placement.cluster import Cluster
from sluice_ops.planning.placement.requests import DRIVER, Request
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import more_slots
from sluice_ops.planning.shortage.fitting import batch_minimum, fewest_slots, why_no_room_together

WINDOW_SECONDS = 1800.0
"""How long a death counts. Unit: seconds."""
DEATHS = 3
"""The deaths of one driver or slot number within the window that count as failing."""
DOWN_SECONDS = 300.0
"""A unit that is down for so long counts as failing too: it cannot be started. Unit: seconds."""
TENANTS = 2
"""The tenants that have to fail on a host. A tenant that fails alone is at fault itself."""
MOST_PART = 0.2
"""The largest part of the hosts in quarantine at once; one host may always be.

If more hosts fail, they have a common cause.
"""


Age = Callable[[float], float]
"""Returns how long ago a time stamp was first seen. Unit: seconds."""


@dataclass(frozen=True)
class Evidence:
    """The deaths on one host, and its units that are down."""

    deaths: tuple[Death, ...]
    down: frozenset[UnitId] = frozenset()
    """Units that do not run now."""


def failing(
    seen: Mapping[HostName, Evidence], where: Callable[[Tenant], Iterable[HostName]], age: Age
) -> dict[HostName, str]:
    """Return the failing hosts, the worst first, each with the reason.

    `where` returns the hosts of a tenant's units, and `age` how long a death is known.
    """
    failing_tenants = {name: _failing_tenants(evidence, age) for name, evidence in seen.items()}
    failures: dict[HostName, tuple[int, str]] = {}
    for name, tenants in failing_tenants.items():
        if len(tenants) < TENANTS:
            continue
        victims = sorted(
            tenant for tenant in tenants if not _fails_elsewhere(tenant, name, failing_tenants, where(tenant))
        )
        if len(victims) >= TENANTS:
            count = sum(tenants[tenant] for tenant in victims)
            window = f"{WINDOW_SECONDS / 60:.0f} min"
            failures[name] = (
                count,
                f"units of {', '.join(victims)} died there {count} times within {window}",
            )
    return {name: failures[name][1] for name in sorted(failures, key=lambda name: (-failures[name][0], name))}


def allowed(count: int) -> int:
    """Return how many of `count` hosts may be in quarantine at once."""
    return max(1, int(count * MOST_PART))


def room_without(names: AbstractSet[HostName], cluster: Cluster) -> str | None:
    """Return which minimum would find no room if all hosts except `names` were empty; None
    if none.
    """
    empty = {
        host.name: replace(host, used_cpu=0.0, used_memory=0, tiers=())
        for host in cluster.hosts.values()
        if host.usable and host.name not in names
    }
    return why_no_room_together(list(_minimums(cluster)), empty)


def _failing_tenants(evidence: Evidence, age: Age) -> Counter[Tenant]:
    """Return the tenants that fail on a host, with their deaths there."""
    deaths = [death for death in evidence.deaths if age(death.at) <= WINDOW_SECONDS]
    times = Counter((death.tenant, death.place) for death in deaths)
    stuck = {
        (death.tenant, death.place)
        for death in evidence.deaths
        if death.unit in evidence.down and age(death.at) >= DOWN_SECONDS
    }
    tenants = {tenant for (tenant, place), count in times.items() if count >= DEATHS} | {
        tenant for tenant, _ in stuck
    }
    counted = Counter(death.tenant for death in deaths if death.tenant in tenants)
    return counted + Counter(dict.fromkeys(tenants - counted.keys(), 1))


def _fails_elsewhere(
    tenant: Tenant,
    name: HostName,
    failing_tenants: Mapping[HostName, Counter[Tenant]],
    hosts: Iterable[HostName],
) -> bool:
    """Return whether a tenant also fails on most of its other hosts, so that this host is not the
    cause.
    """
    others = [host for host in hosts if host != name]
    return 2 * sum(tenant in failing_tenants.get(host, ()) for host in others) > len(others)


def _minimums(cluster: Cluster) -> Iterable[Request]:
    for name, tier in sorted(cluster.tiers.items()):
        if tier.wanted:
            aim = target(name, cluster.rules)
            yield more_slots(tier.spec, aim, min(aim.slots, fewest_slots(tier.spec, cluster.rules)))
            yield Request(name, 1, tier.spec.driver, aim.to, (), DRIVER, separate=aim.separate)
    lent = batch_minimum(cluster) if BATCH in cluster.rules.shares else 0
    if lent:
        yield Request(BATCH, lent, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to)
