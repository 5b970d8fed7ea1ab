"""Links from a task to the pipeline's page in Airflow, and to its dashboard."""

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator, BaseOperatorLink, conf

from sluice_airflow.hooks.sluice import SluiceHook

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

PAGE = "sluice"
"""The path of the page below Airflow's address."""


def page_path(sluice_conn_id: str | None) -> str:
    """Return the path of a pipeline's page below Airflow's address."""
    return f"{PAGE}/" if sluice_conn_id is None else f"{PAGE}/?connection={sluice_conn_id}"


class PageLink(BaseOperatorLink):
    """The page with the tiers, hosts and changes of the task's pipeline."""

    name = "Sluice"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the page's address."""
        base = conf.get("api", "base_url", fallback=None) or ""
        return f"{base.rstrip('/')}/{page_path(getattr(operator, 'sluice_conn_id', None))}"


class DashboardLink(BaseOperatorLink):
    """The dashboard that the pipeline's connection names."""

    name = "Dashboard"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the dashboard's address; empty, and so no link, if the connection names none."""
        return SluiceHook(getattr(operator, "sluice_conn_id", None)).dashboard or ""


LINKS = (PageLink(), DashboardLink())
