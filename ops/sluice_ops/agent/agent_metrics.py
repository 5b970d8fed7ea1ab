"""An agent's figures for Prometheus: its units, and what each takes of the host; docs/metrics.md explains them."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from sluice_ops.agent.host.presence import Presence
from sluice_ops.agent.limits.control_groups import Containers, Usage
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit, state_of
from sluice_ops.agent.watch.disks import Disks
from sluice_ops.agent.watch.heartbeats import Heartbeats
from sluice_ops.agent.watch.neighbours import Neighbours
from sluice_ops.model.ids import UnitId

_UNIT = ("unit", "tenant", "kind")


class AgentMetrics:
    """Reads what the agent's last round has found, and the containers' own counters."""

    def __init__(  # noqa: PLR0913, PLR0917 — the agent's parts that have figures
        self,
        process_control: ProcessControl,
        containers: Containers,
        presence: Presence,
        neighbours: Neighbours,
        disks: Disks,
        heartbeats: Heartbeats,
    ) -> None:
        """Show what these know."""
        self._process_control = process_control
        self._containers = containers
        self._presence = presence
        self._neighbours = neighbours
        self._disks = disks
        self._heartbeats = heartbeats

    def collect(self) -> Iterable[Metric]:
        """Yield everything."""
        found = self._process_control.found
        states = Counter((found_unit.unit.kind, state_of(found_unit)) for found_unit in found)
        units = GaugeMetricFamily(
            "sluice_agent_units", "Units on the host, by what they are and how.", labels=["kind", "state"]
        )
        for (kind, state), count in states.items():
            units.add_metric([kind, state], count)
        yield units
        text = "Units that could not be started, stopped or weighed."
        yield GaugeMetricFamily(
            "sluice_agent_units_in_trouble", text, value=len(self._process_control.troubles)
        )
        text = "Assignments of an older controller that were refused."
        yield CounterMetricFamily("sluice_agent_assignments_refused", text, value=self._presence.refusals)
        hung = CounterMetricFamily(
            "sluice_agent_hung",
            "Drivers, Workers and executors that hung, and were ended for it.",
            labels=["kind"],
        )
        for kind, count in self._heartbeats.ended.items():
            hung.add_metric([kind], count)
        yield hung
        restarts = CounterMetricFamily(
            "sluice_unit_restarts", "How often a slot was started again after it had died.", labels=_UNIT
        )
        for found_unit in found:
            restarts.add_metric(_labels(found_unit), found_unit.restarts)
        yield restarts
        yield from _scheduled(found, self._neighbours.waited, self._neighbours.starved)
        disk = GaugeMetricFamily(
            "sluice_unit_disk_bytes", "What the unit's files take of the host's disk.", labels=_UNIT
        )
        taken = self._disks.taken
        for found_unit in found:
            if found_unit.unit.id in taken:
                disk.add_metric(_labels(found_unit), taken[found_unit.unit.id])
        yield disk
        yield from _usage(
            [
                (found_unit, usage)
                for found_unit in found
                if (usage := self._containers.usage(found_unit.unit.id)) is not None
            ]
        )


def _scheduled(
    found: Iterable[FoundUnit], waited: Mapping[UnitId, float], starved: Mapping[UnitId, float]
) -> Iterable[Metric]:
    text = "Processor time that the unit's threads have waited for, all together, since this agent knows it."
    waiting = CounterMetricFamily("sluice_unit_cpu_waited_seconds", text, labels=_UNIT)
    short = GaugeMetricFamily(
        "sluice_unit_starved",
        "1 while other things on the host keep the unit from its quantum.",
        labels=_UNIT,
    )
    for found_unit in found:
        if found_unit.unit.id in waited:
            waiting.add_metric(_labels(found_unit), waited[found_unit.unit.id])
        short.add_metric(_labels(found_unit), found_unit.unit.id in starved)
    return waiting, short


def _usage(used: list[tuple[FoundUnit, Usage]]) -> Iterable[Metric]:
    memory = GaugeMetricFamily(
        "sluice_unit_memory_bytes", "Memory in use, without file cache that can be given back.", labels=_UNIT
    )
    limit = GaugeMetricFamily(
        "sluice_unit_memory_limit_bytes", "At this much the kernel kills something in the unit.", labels=_UNIT
    )
    cpu = CounterMetricFamily(
        "sluice_unit_cpu_seconds", "Processor time that the unit has taken.", labels=_UNIT
    )
    for found_unit, usage in used:
        memory.add_metric(_labels(found_unit), usage.memory)
        if usage.limit is not None:
            limit.add_metric(_labels(found_unit), usage.limit)
        if usage.cpu is not None:
            cpu.add_metric(_labels(found_unit), usage.cpu)
    return memory, limit, cpu


def _labels(found_unit: FoundUnit) -> tuple[str, str, str]:
    return found_unit.unit.id, found_unit.unit.tenant, found_unit.unit.kind
