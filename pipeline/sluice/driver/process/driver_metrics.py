"""A driver's metrics for Prometheus.

The page "Metrics" of the documentation explains each, and what to do about its values.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from sluice import metrics
from sluice.driver.control.control_channel import ChannelFollower
from sluice.driver.counters import BOUNDS, Commits, Flow, Waits


class DriverMetrics:
    """Collects at a scrape what the driver knows already, without asking a service."""

    def __init__(self, follower: ChannelFollower, flow: Flow) -> None:
        """Take the state from `follower`, and the counters from `flow`."""
        self._follower = follower
        self._flow = flow

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        yield from self._life()
        yield from self._hung()
        yield from self._records()
        yield from self._times()
        yield from _state(self._flow.state)
        if self._flow.commits is not None:
            yield from _sink(self._flow.commits)
        for name, count in metrics.totals().items():
            yield CounterMetricFamily(f"sluice_own_{name}", metrics.text_of(name), value=count)

    def _life(self) -> Iterable[Metric]:
        report, flow = self._follower.report, self._flow
        yield _by("sluice_driver_state", "1 for the state that the driver is in.", "state", {report.state: 1})
        yield GaugeMetricFamily(
            "sluice_driver_owner", "Whether this incarnation owns the tier.", value=self._follower.owns
        )
        yield GaugeMetricFamily(
            "sluice_driver_last_look_timestamp_seconds",
            "When in, out and lag were last measured.",
            value=flow.looked,
        )
        yield CounterMetricFamily(
            "sluice_tier_query_restarts",
            "Restarts of the query after a failure.",
            value=flow.restarts,
        )

    def _hung(self) -> Iterable[Metric]:
        hung, flow = self._flow.hung, self._flow
        text = "How long a task has processed nothing although input waits for it; 0 below one minute."
        yield GaugeMetricFamily("sluice_tier_hung_seconds", text, value=0.0 if hung is None else hung.seconds)
        yield CounterMetricFamily(
            "sluice_tier_executors_ended",
            "Executors that were ended because one of their tasks hung.",
            value=flow.executors_ended,
        )

    def _records(self) -> Iterable[Metric]:
        flow = self._flow
        yield _counted(
            "sluice_tier_records_in", "Processed records of each input stream.", "stream", flow.records_in
        )
        yield _counted(
            "sluice_tier_records_out", "Records that came out, by stream or sink.", "to", flow.records_out
        )
        yield CounterMetricFamily(
            "sluice_tier_records_quarantined", "Bad records that went to quarantine.", value=flow.quarantined
        )
        yield _by("sluice_tier_lag_records", "Records of each input stream that wait.", "stream", flow.lag)
        yield _by(
            "sluice_tier_lag_seconds", "How long the oldest of them has waited.", "stream", flow.waiting
        )
        yield GaugeMetricFamily(
            "sluice_tier_metered",
            "Whether the tier lets records in batch by batch: throttled, or catching up after it.",
            value=flow.metered,
        )

    def _times(self) -> Iterable[Metric]:
        flow, gap = self._flow, self._follower.report.gap_seconds
        yield _histogram(
            "sluice_tier_latency_seconds",
            "From a record's arrival in the pipeline to this tier's output.",
            flow.waits,
        )
        yield GaugeMetricFamily(
            "sluice_tier_last_output_timestamp_seconds", "When a record last came out.", value=flow.last_out
        )
        yield GaugeMetricFamily(
            "sluice_tier_gap_seconds",
            "The largest gap in the output around the handover to this incarnation.",
            value=gap,
        )
        yield from flow.phases.collect()


def _state(held: Mapping[str, tuple[int, int]]) -> Iterable[Metric]:
    rows = {operator: rows for operator, (rows, _) in held.items()}
    memory = {operator: memory for operator, (_, memory) in held.items()}
    yield _by("sluice_tier_state_rows", "Rows that each of Spark's operators holds.", "operator", rows)
    yield _by(
        "sluice_tier_state_bytes",
        "Memory that each of Spark's operators holds its state in.",
        "operator",
        memory,
    )


def _sink(commits: Commits) -> Iterable[Metric]:
    yield CounterMetricFamily(
        "sluice_tier_records_filtered", "Records that were left out on purpose.", value=commits.filtered
    )
    yield CounterMetricFamily(
        "sluice_tier_records_replayed",
        "Replays, which were dropped.",
        value=commits.replays,
    )
    yield CounterMetricFamily(
        "sluice_tier_records_late", "Records that came too late for the state.", value=commits.late
    )
    yield CounterMetricFamily(
        "sluice_tier_records_lost",
        "Records that may be lost, because they are sent at most once.",
        value=commits.lost,
    )
    yield CounterMetricFamily(
        "sluice_tier_sink_retries",
        "Retries of a batch that the sink did not take.",
        value=commits.retries,
    )
    yield GaugeMetricFamily(
        "sluice_tier_marks", "Marks, which tell replays from new records.", value=commits.marks
    )


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counted(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, text: str, waits: Waits) -> HistogramMetricFamily:
    bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
    buckets = [(bound, float(count)) for bound, count in zip(bounds, waits.counts, strict=True)]
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=waits.seconds)
