"""What per cents are of: the site's own hosts as they have registered, whatever becomes of them. Used by `draft` and `sluice status`.

A host that is drained or lost still counts: a fault must not change what tenants are entitled to. Burst hosts do not: they come and go.
"""

from ops.controller.view import View
from ops.model.ids import BATCH
from ops.model.resources import Quantum
from ops.planning.cluster import BURST_ZONE, Rules
from ops.planning.shares import wholes


def wholes_of(view: View, rules: Rules) -> dict[str, int]:
    """Return the slots that 100% are, for each tenant."""
    own = (host.facts for host in view.hosts.values() if host.facts is not None and host.facts.zone != BURST_ZONE)
    rooms = ((facts.cpu, facts.memory) for facts in own)
    quanta: dict[str, Quantum] = {name: tier.spec.quantum for name, tier in view.tiers.items()}
    return wholes(rooms, {**quanta, BATCH: rules.batch_quantum})
