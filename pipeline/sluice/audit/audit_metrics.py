"""The audit's metrics for Prometheus. The page "Metrics" of the documentation explains them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric


@dataclass(eq=False)
class AuditMetrics:
    """The results of the audit by tier.

    The audit replaces a field as a whole, so another thread may read it.
    """

    lost: Mapping[str, bool] = field(default_factory=dict)
    """Whether a tier has losses that are not settled."""
    complete: Mapping[str, float] = field(default_factory=dict)
    """All records that arrived before this time have gone through. Unit: epoch seconds."""
    looked: Mapping[str, float] = field(default_factory=dict)
    """The time of the last successful check. Unit: epoch seconds."""

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        yield _by_tier(
            "sluice_audit_lost", "Whether the tier has losses that nobody has settled yet.", self.lost
        )
        text = "All records that arrived before this time have gone through the tier."
        yield _by_tier("sluice_audit_complete_timestamp_seconds", text, self.complete)
        yield _by_tier(
            "sluice_audit_last_look_timestamp_seconds",
            "The time of the audit's last successful check of the tier.",
            self.looked,
        )


def _by_tier(name: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["tier"])
    for tier, value in values.items():
        family.add_metric([tier], value)
    return family
