"""The metrics of a source for Prometheus, at the address of the option `--metrics`.

The page "Metrics" of the documentation explains each, and what to do about its values.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sluice.ingest.source import SourceError
from sluice_ops.model.source import Trouble

Gauges: TypeAlias = Sequence[tuple[str, str, Callable[[], float]]]
"""Of each gauge: its name, its text, and its value."""


TROUBLE_SECONDS = 30.0
"""For so long Kafka may take nothing of what waits; then the source tells people."""
QUIET_SECONDS = 60.0
"""After this time without another try, nothing waits any more: the refused clients are gone."""


class Written:
    """Counts what Kafka has committed of a source, and knows since when records wait for Kafka."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to count. `clock` must be monotonic."""
        self._clock = clock
        self.records = self.bytes = self.refused = 0
        self.last = 0.0
        """When Kafka committed last. Wall clock."""
        self._waits_since: float | None = None
        self._refused_at: float | None = None
        """When Kafka refused the last try; None while a try lasts."""
        self._reason = ""

    def begin(self) -> None:
        """Tell that a transaction is written now."""
        self._refused_at = None
        if self._waits_since is None:
            self._waits_since, self._reason = self._clock(), "Kafka does not answer"

    def refuse(self, reason: str) -> None:
        """Count a transaction of which Kafka took nothing."""
        self.refused += 1
        self._refused_at, self._reason = self._clock(), reason

    def add(self, values: Iterable[bytes]) -> None:
        """Count committed records."""
        for value in values:
            self.records += 1
            self.bytes += len(value)
        self.last = time.time()
        self._waits_since = None

    def trouble(self) -> Trouble | None:
        """Return why nothing is written although records wait; None if all is well."""
        since, refused_at, now = self._waits_since, self._refused_at, self._clock()
        if since is None or now - since < TROUBLE_SECONDS:
            return None
        if refused_at is not None and now - refused_at > QUIET_SECONDS:
            return None
        return Trouble(since=time.time() - (now - since), sentence=self._reason)


class SourceMetrics(Collector):
    """Reads values that the source's threads hold already."""

    def __init__(
        self,
        name: str,
        written: Written,
        gauges: Gauges,
        answers: Counter[int] | None = None,
    ) -> None:
        """Take a source's counts, its own gauges, and its answers by status."""
        self._name, self._written, self._gauges, self._answers = name, written, gauges, answers

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        written, of_source = self._written, [self._name]
        for name, text, value in (
            ("records", "Records that Kafka has committed.", written.records),
            ("bytes", "Bytes of the records that Kafka has committed.", written.bytes),
            ("refusals", "Transactions of which Kafka took nothing.", written.refused),
        ):
            counter = CounterMetricFamily(f"sluice_source_{name}", text, labels=["source"])
            counter.add_metric(of_source, value)
            yield counter
        gauges = [(name, text, read()) for name, text, read in self._gauges]
        for name, text, gauge_value in (
            ("last_commit_timestamp_seconds", "When Kafka committed last.", written.last),
            *gauges,
        ):
            gauge = GaugeMetricFamily(f"sluice_source_{name}", text, labels=["source"])
            gauge.add_metric(of_source, gauge_value)
            yield gauge
        if self._answers is not None:
            answers = CounterMetricFamily(
                "sluice_source_answers", "Answers to clients.", labels=["source", "status"]
            )
            for status, count in sorted(self._answers.copy().items()):
                answers.add_metric([self._name, str(status)], count)
            yield answers


def serve(address: str | None) -> CollectorRegistry:
    """Serve a registry of metrics at `address` until the process ends; return the registry.

    Without an address, nothing is served. SourceError if the process cannot listen there.
    """
    registry = CollectorRegistry()
    if address is None:
        return registry
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host.strip("[]"), registry)
    except OSError as error:
        message = f"metrics cannot be served at {address}: {error.strerror or error}"
        raise SourceError(message) from error
    return registry
