"""The audit's figures for Prometheus; docs/metrics.md explains them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric


@dataclass(eq=False)
class AuditMetrics:
    """What the audit knows of each tier. Each field is set whole, so that another thread may read it."""

    lost: Mapping[str, bool] = field(default_factory=dict)
    """Whether records are lost, and nobody has settled it."""
    complete: Mapping[str, float] = field(default_factory=dict)
    """Everything that arrived before this moment has gone through. Unit: epoch seconds."""
    looked: Mapping[str, float] = field(default_factory=dict)
    """When it was last looked at with success. Unit: epoch seconds."""

    def collect(self) -> Iterable[Metric]:
        """Yield everything."""
        yield _by_tier("sluice_audit_lost", "Whether records are lost, and nobody has settled it.", self.lost)
        text = "Everything that arrived before this moment has gone through the tier."
        yield _by_tier("sluice_audit_complete_timestamp_seconds", text, self.complete)
        yield _by_tier(
            "sluice_audit_last_look_timestamp_seconds",
            "When the audit last looked at the tier with success.",
            self.looked,
        )


def _by_tier(name: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["tier"])
    for tier, value in values.items():
        family.add_metric([tier], value)
    return family
