"""`python -m docs.site.alert_rules` writes docs/metrics/alerts.yml from the catalogue of alerts."""

from pathlib import Path

from sluice_ops.planning.alerts.rules import rules_file

FILE = Path(__file__).resolve().parents[1] / "metrics" / "alerts.yml"

if __name__ == "__main__":
    FILE.write_text(rules_file())
