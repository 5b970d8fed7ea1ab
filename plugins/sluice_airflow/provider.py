"""The provider's description for Airflow: its connection type, links and modules.

Airflow finds `get_provider_info` by the package's entry point.
"""

from typing import Any

PACKAGE = "sluice-platform"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description in Airflow's form."""
    return {
        "package-name": PACKAGE,
        "name": "Sluice",
        "description": "Drain, migrate, scale and supervise the tiers of always-on data pipelines.",
        "integrations": [{"integration-name": "Sluice", "tags": ["service"]}],
        "hooks": [_modules("hooks.sluice")],
        "operators": [_modules("operators.changes", "operators.batch", "operators.burst", "operators.tiers")],
        "sensors": [_modules("sensors.hours")],
        "triggers": [_modules("triggers.operations")],
        "notifications": ["sluice_airflow.notifiers.alerts.SluiceNotifier"],
        "extra-links": [
            f"sluice_airflow.links.{name}" for name in ("PageLink", "DashboardLink", "DriverLogLink")
        ],
        "asset-uris": [
            {
                "schemes": ["sluice"],
                "handler": None,
                "to_openlineage_converter": "sluice_airflow.lineage.dataset",
            }
        ],
        "connection-types": [
            {
                "connection-type": "sluice",
                "hook-name": "Sluice",
                "hook-class-name": "sluice_airflow.hooks.sluice.SluiceHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "login", "password", "schema"],
                    # Airflow 3.3's button Test sends port 0 for a connection without a port, and
                    # refuses the test because the stored port differs
                    "relabeling": {"port": "Port (0, for the button Test)"},
                    "placeholders": {"port": "0"},
                },
                "conn-fields": {
                    "site": _field("Site file", "Its path on Airflow's machines: /etc/sluice/site.yaml"),
                    "endpoints": _field(
                        "Endpoints file", "Its path on Airflow's machines: /etc/sluice/endpoints.json"
                    ),
                    "home": _field(
                        "Home",
                        "The folder of alerts and of tiers.json, which publishing writes. "
                        "Empty: the folder of the endpoints file",
                    ),
                    "dashboard": _field("Dashboard", "The address that a task's link Dashboard opens"),
                },
            }
        ],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": "Sluice", "python-modules": [f"sluice_airflow.{name}" for name in names]}


def _field(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}
