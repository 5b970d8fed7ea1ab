"""The plugin, which Airflow finds by the package's entry point."""

from hashlib import sha256

from airflow.sdk.plugins_manager import AirflowPlugin

from sluice_airflow.page.app import BUNDLE, app, bundle

PREFIX = "sluice"
_COMPONENT = {"bundle_url": f"{PREFIX}/{BUNDLE}?v={sha256(bundle()).hexdigest()[:12]}"}


class SluicePlugin(AirflowPlugin):
    """Adds the page `Sluice` to Airflow's menu, a tab to its DAGs, and a tile to its home.

    The addresses are relative: Airflow adds the path of a proxy.
    """

    name = "sluice"
    fastapi_apps = [{"app": app, "url_prefix": f"/{PREFIX}", "name": "Sluice"}]  # noqa: RUF012 - Airflow's way
    react_apps = [  # noqa: RUF012
        {**_COMPONENT, "name": "Sluice", "destination": "nav", "url_route": PREFIX, "category": "browse"},
        # Airflow shows the tab of every DAG: of a tier's the tier, of a runbook's its changes
        {**_COMPONENT, "name": "Sluice", "destination": "dag", "url_route": f"{PREFIX}-dag"},
        {
            **_COMPONENT,
            "name": "Sluice overview",
            "destination": "dashboard",
            "url_route": f"{PREFIX}-overview",
        },
    ]
