"""Documentation, dashboard and alerts name only exported metrics, and name all of them where they
should.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from sluice_ops.model.access import PROCESSES
from sluice_ops.model.exporter import Exporter
from tests.unit.example_metrics import (
    agent_metrics,
    audit_metrics,
    controller_metrics,
    driver_metrics,
    families,
    source_metrics,
)

FOLDER = Path(__file__).resolve().parents[3] / "docs"
ADDED = {"job", "instance", *Exporter.model_fields} - {"address"}
"""Labels that Prometheus adds to every series of a target."""
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
VARIABLES = {"$__rate_interval": "1m", "$tier": "entry"}

Labels = dict[str, set[str]]


@pytest.fixture(scope="module")
def exported() -> dict[str, tuple[str, set[str]]]:
    """Return the type and the labels of each metric."""
    metrics = {}
    for collector in (
        driver_metrics(),
        agent_metrics(),
        controller_metrics(),
        audit_metrics(),
        source_metrics(),
    ):
        for family in families(collector):
            assert family.samples, f"{family.name}: the example process has no sample of this metric"
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            metrics[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    return metrics


@pytest.fixture(scope="module")
def series(exported: dict[str, tuple[str, set[str]]]) -> Labels:
    """Return the labels of each series name that an expression may use."""
    labels_by_name: Labels = {}
    for name, (kind, labels) in exported.items():
        for suffix in SUFFIXES[kind]:
            labels_by_name[name.removesuffix("_total") + suffix] = labels | (
                {"le"} if suffix == "_bucket" else set()
            )
    return labels_by_name


def test_the_tables_list_every_metric_with_its_type_and_labels(
    exported: dict[str, tuple[str, set[str]]],
) -> None:
    rows = re.findall(
        r"^\| `(sluice_\w+)` \| (\w+) \| ([^|]*)\|", (FOLDER / "metrics.md").read_text(), re.MULTILINE
    )
    assert len(rows) == len({name for name, _, _ in rows})
    assert {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == exported


def test_metrics_named_in_the_documentation_are_exported(series: Labels) -> None:
    named = set(re.findall(r"\bsluice_(?!ops\b)\w+", (FOLDER / "metrics.md").read_text()))
    assert named - series.keys() <= {
        "sluice_tier_latency_seconds",
        "sluice_tier_batch_phase_seconds",
        "sluice_controller_pass_seconds",
        "sluice_batch_reclaim_seconds",
        "sluice_own_",  # the pipeline names these
    }


def dashboard() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((FOLDER / "metrics" / "dashboard.json").read_text())
    return parsed


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((FOLDER / "metrics" / "alerts.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("expression", [*dashboard_expressions(), *(rule["expr"] for rule in rules())])
def test_each_expression_parses_and_uses_exported_series_and_labels(series: Labels, expression: str) -> None:
    for name, labels in selected(expression):
        assert name in series, f"{name} is not exported"
        assert labels <= series[name] | ADDED, f"{name} has no label {labels - series[name] - ADDED}"
    grouped = {
        label.strip() for listed in re.findall(r"\bby \(([^)]*)\)", expression) for label in listed.split(",")
    }
    assert all(grouped <= series[name] | ADDED for name, _ in selected(expression)), grouped


def selected(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each series that an expression selects, with the labels in its matchers."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    selectors: list[promql_parser.VectorSelector] = []

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    yield from (
        (selector.name, {matcher.name for matcher in selector.matchers.matchers}) for selector in selectors
    )


def test_the_dashboard_shows_every_metric(series: Labels, exported: dict[str, tuple[str, set[str]]]) -> None:
    used = {name for expression in dashboard_expressions() for name, _ in selected(expression)}
    missing = {
        name
        for name in exported
        if name not in used and not any(f"{name}{suffix}" in used for suffix in SUFFIXES["histogram"])
    }
    assert missing == set()
    assert used <= series.keys()


def test_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for position in (panel["gridPos"] for panel in panels)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


def test_each_alert_has_a_summary_and_an_action_with_known_labels(series: Labels) -> None:
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["annotations"].keys() == {"summary", "effect", "action"}, rule["alert"]
        available = set().union(*(series[name] for name, _ in selected(rule["expr"]))) | ADDED
        used = {
            label
            for annotation in rule["annotations"].values()
            for label in re.findall(r"\$labels\.(\w+)", annotation)
        }
        assert used <= available, rule["alert"]
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_prometheus_scrapes_the_embedded_controller_and_loads_the_alerts() -> None:
    read = yaml.safe_load((FOLDER / "metrics" / "prometheus.yml").read_text())
    assert read["scrape_configs"][0]["http_sd_configs"][0]["url"] == "http://127.0.0.1:27009/targets"
    assert all((FOLDER / "metrics" / name).exists() for name in read["rule_files"])


def test_each_role_has_its_labels_in_the_documentation() -> None:
    text = (FOLDER / "metrics.md").read_text()
    assert all(f"| `{role}` |" in text for role in PROCESSES)
