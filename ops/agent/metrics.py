"""An agent's figures for Prometheus: its units, and what each takes of the host; docs/metrics.md explains them."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ops.agent.containers import Containers, Usage
from ops.agent.hands import Hands
from ops.agent.presence import Presence
from ops.agent.reconcile import Found, state_of

_UNIT = ("unit", "tenant", "kind")


class AgentMetrics:
    """Reads what the agent's last round has found, and the containers' own counters."""

    def __init__(self, hands: Hands, containers: Containers, presence: Presence) -> None:
        """Show what these know."""
        self._hands = hands
        self._containers = containers
        self._presence = presence

    def collect(self) -> Iterable[Metric]:
        """Yield everything."""
        found = self._hands.found
        states = Counter((item.unit.kind, state_of(item)) for item in found)
        units = GaugeMetricFamily("sluice_agent_units", "Units on the host, by what they are and how.", labels=["kind", "state"])
        for (kind, state), count in states.items():
            units.add_metric([kind, state], count)
        yield units
        text = "Units that could not be started, stopped or weighed."
        yield GaugeMetricFamily("sluice_agent_units_in_trouble", text, value=len(self._hands.troubles))
        text = "Assignments of an older controller that were refused."
        yield CounterMetricFamily("sluice_agent_assignments_refused", text, value=self._presence.refusals)
        restarts = CounterMetricFamily("sluice_unit_restarts", "How often a slot was started again after it had died.", labels=_UNIT)
        for item in found:
            restarts.add_metric(_labels(item), item.restarts)
        yield restarts
        yield from _usage([(item, usage) for item in found if (usage := self._containers.usage(item.unit.id)) is not None])


def _usage(used: list[tuple[Found, Usage]]) -> Iterable[Metric]:
    memory = GaugeMetricFamily("sluice_unit_memory_bytes", "Memory in use, without file cache that can be given back.", labels=_UNIT)
    limit = GaugeMetricFamily("sluice_unit_memory_limit_bytes", "At this much the kernel kills something in the unit.", labels=_UNIT)
    cpu = CounterMetricFamily("sluice_unit_cpu_seconds", "Processor time that the unit has taken.", labels=_UNIT)
    for item, usage in used:
        memory.add_metric(_labels(item), usage.memory)
        limit.add_metric(_labels(item), usage.limit)
        if usage.cpu is not None:
            cpu.add_metric(_labels(item), usage.cpu)
    return memory, limit, cpu


def _labels(item: Found) -> tuple[str, str, str]:
    return item.unit.id, item.unit.tenant, item.unit.kind
