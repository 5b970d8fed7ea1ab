"""The plugin, which Airflow finds by the package's entry point."""

from hashlib import sha256

from airflow.sdk.plugins_manager import AirflowPlugin

from sluice_airflow.page.app import BUNDLE, app, bundle

PREFIX = "sluice"


class SluicePlugin(AirflowPlugin):
    """Adds the page `Sluice` to Airflow's menu.

    The addresses are relative: Airflow adds the path of a proxy.
    """

    name = "sluice"
    fastapi_apps = [{"app": app, "url_prefix": f"/{PREFIX}", "name": "Sluice"}]  # noqa: RUF012 - Airflow's way
    react_apps = [  # noqa: RUF012
        {
            "name": "Sluice",
            "bundle_url": f"{PREFIX}/{BUNDLE}?v={sha256(bundle()).hexdigest()[:12]}",
            "destination": "nav",
            "url_route": PREFIX,
            "category": "browse",
        }
    ]
