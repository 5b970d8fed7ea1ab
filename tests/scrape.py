"""What a process shows to Prometheus, asked over HTTP."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from sluice_ops.model.exporter import Exporter


def scrape(exporter: Exporter, **labels: str) -> dict[str, float]:
    """Return the value of each figure that has these labels; where it has others besides, of them added up."""
    with urllib.request.urlopen(f"http://{exporter.address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found
