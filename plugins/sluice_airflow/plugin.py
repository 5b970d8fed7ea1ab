"""The plugin, which Airflow finds by the package's entry point."""

from airflow.sdk.plugins_manager import AirflowPlugin

from sluice_airflow.page.app import app


class SluicePlugin(AirflowPlugin):
    """Adds the page `Sluice` to Airflow's menu."""

    name = "sluice"
    fastapi_apps = [{"app": app, "url_prefix": "/sluice", "name": "Sluice"}]  # noqa: RUF012 - Airflow's way
    external_views = [  # noqa: RUF012
        {
            "name": "Sluice",
            "href": "sluice/",
            "destination": "nav",
            "url_route": "sluice",
            "category": "browse",
        }
    ]
