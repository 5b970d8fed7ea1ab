"""Links from a task to the pipeline's page in Airflow, to its dashboard, and to a driver's log."""

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.sdk import BaseOperator, BaseOperatorLink, conf

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_ops.model.alert import PAGE

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


def address(path: str, operator: BaseOperator) -> str:
    """Return the address of a page, with the connection of the operator's pipeline if any."""
    base = conf.get("api", "base_url", fallback=None) or ""
    connection = getattr(operator, "sluice_conn_id", None)
    words = "" if connection is None else urlencode({"connection": connection})
    return f"{base.rstrip('/')}/{path}{'?' if words else ''}{words}"


class PageLink(BaseOperatorLink):
    """The page with the tiers, hosts and changes of the task's pipeline."""

    name = "Sluice"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the page's address."""
        return address(PAGE, operator)


class DashboardLink(BaseOperatorLink):
    """The dashboard that the pipeline's connection names."""

    name = "Dashboard"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the dashboard's address; empty, and so no link, if the connection names none."""
        return SluiceHook(getattr(operator, "sluice_conn_id", None)).dashboard or ""


class DriverLogLink(BaseOperatorLink):
    """The log of the driver of the task's tier."""

    name = "Driver log"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the address of the log in the page."""
        return address(f"{PAGE}/logs/{operator.tier}", operator)  # type: ignore[attr-defined]


LINKS = (PageLink(), DashboardLink())
