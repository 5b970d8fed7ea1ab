"""An agent's metrics for Prometheus: its units, and the host's resources that each unit uses.

The page "Metrics" of the documentation explains them.
"""

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
    """A collector that reads the results of the agent's last round and the kernel's counters."""

    def __init__(  # noqa: PLR0913, PLR0917 — the agent's parts that have metrics
        self,
        process_control: ProcessControl,
        containers: Containers,
        presence: Presence,
        neighbours: Neighbours,
        disks: Disks,
        heartbeats: Heartbeats,
    ) -> None:
        self._process_control = process_control
        self._containers = containers
        self._presence = presence
        self._neighbours = neighbours
        self._disks = disks
        self._heartbeats = heartbeats

    def collect(self) -> Iterable[Metric]:
        found_units = self._process_control.units
        states = Counter((found_unit.unit.kind, state_of(found_unit)) for found_unit in found_units)
        units = GaugeMetricFamily(
            "sluice_agent_units", "Units on the host, by kind and state.", labels=["kind", "state"]
        )
        for (kind, state), count in states.items():
            units.add_metric([kind, state], count)
        yield units
        text = "Units whose last start, stop, weight change or removal failed; the agent retries."
        yield GaugeMetricFamily(
            "sluice_agent_units_in_trouble", text, value=len(self._process_control.troubles)
        )
        text = "Refused assignments that an older controller wrote."
        yield CounterMetricFamily("sluice_agent_assignments_refused", text, value=self._presence.refusals)
        hung = CounterMetricFamily(
            "sluice_agent_hung",
            "Drivers, Workers and executors that the agent killed because they hung.",
            labels=["kind"],
        )
        for kind, count in self._heartbeats.ended.items():
            hung.add_metric([kind], count)
        yield hung
        restarts = CounterMetricFamily(
            "sluice_unit_restarts", "How often the agent started a slot again after its death.", labels=_UNIT
        )
        for found_unit in found_units:
            restarts.add_metric(_labels(found_unit), found_unit.restarts)
        yield restarts
        yield from _waiting(found_units, self._neighbours.waited, self._neighbours.starved)
        disk = GaugeMetricFamily(
            "sluice_unit_disk_bytes", "Disk space of the unit's files on the host.", labels=_UNIT
        )
        used_bytes = self._disks.used_bytes
        for found_unit in found_units:
            if found_unit.unit.id in used_bytes:
                disk.add_metric(_labels(found_unit), used_bytes[found_unit.unit.id])
        yield disk
        yield from _usage(
            [
                (found_unit, usage)
                for found_unit in found_units
                if (usage := self._containers.usage(found_unit.unit.id)) is not None
            ]
        )


def _waiting(
    units: Iterable[FoundUnit], waited: Mapping[UnitId, float], starved: Mapping[UnitId, float]
) -> Iterable[Metric]:
    text = "Time that all threads of the unit waited for a processor, since this agent first saw the unit."
    waiting = CounterMetricFamily("sluice_unit_cpu_waited_seconds", text, labels=_UNIT)
    short = GaugeMetricFamily(
        "sluice_unit_starved",
        "1 while other processes of the host take the processor time of the unit's quantum.",
        labels=_UNIT,
    )
    for found_unit in units:
        if found_unit.unit.id in waited:
            waiting.add_metric(_labels(found_unit), waited[found_unit.unit.id])
        short.add_metric(_labels(found_unit), found_unit.unit.id in starved)
    return waiting, short


def _usage(usages: list[tuple[FoundUnit, Usage]]) -> Iterable[Metric]:
    memory = GaugeMetricFamily(
        "sluice_unit_memory_bytes", "Memory in use, without reclaimable file cache.", labels=_UNIT
    )
    limit = GaugeMetricFamily(
        "sluice_unit_memory_limit_bytes",
        "The memory at which the kernel kills a process of the unit.",
        labels=_UNIT,
    )
    cpu = CounterMetricFamily("sluice_unit_cpu_seconds", "Processor time that the unit used.", labels=_UNIT)
    for found_unit, usage in usages:
        memory.add_metric(_labels(found_unit), usage.memory)
        if usage.limit is not None:
            limit.add_metric(_labels(found_unit), usage.limit)
        if usage.cpu is not None:
            cpu.add_metric(_labels(found_unit), usage.cpu)
    return memory, limit, cpu


def _labels(found_unit: FoundUnit) -> tuple[str, str, str]:
    return found_unit.unit.id, found_unit.unit.tenant, found_unit.unit.kind
