"""Metrics of a process, read over HTTP as Prometheus reads them."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from sluice_ops.model.exporter import Exporter


def scrape(exporter: Exporter, **labels: str) -> dict[str, float]:
    """Return the value of each metric with these labels, summed over all other labels."""
    with urllib.request.urlopen(f"http://{exporter.address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals
