"""Links from a task to the pipeline's page in Airflow, to its dashboard, and to a driver's log."""

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from airflow.sdk import BaseOperator, BaseOperatorLink, conf

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_ops.model.alert import PAGE

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


def address(path: str, sluice_conn_id: str | None) -> str:
    """Return the address of a page, with the pipeline's connection if there is one."""
    base = conf.get("api", "base_url", fallback=None) or ""
    words = "" if sluice_conn_id is None else urlencode({"connection": sluice_conn_id})
    return f"{base.rstrip('/')}/{path}{'?' if words else ''}{words}"


class PipelineLink(BaseOperatorLink):
    """A link that is the same for all tasks of a pipeline."""

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the address."""
        return self.of(getattr(operator, "sluice_conn_id", None))

    def of(self, sluice_conn_id: str | None) -> str:
        """Return the address for the connection's pipeline."""
        raise NotImplementedError


class PageLink(PipelineLink):
    """The page with the tiers, hosts and changes of the task's pipeline."""

    name = "Sluice"

    def of(self, sluice_conn_id: str | None) -> str:
        """Return the page's address."""
        return address(PAGE, sluice_conn_id)


class DashboardLink(PipelineLink):
    """The dashboard that the pipeline's connection names."""

    name = "Dashboard"

    def of(self, sluice_conn_id: str | None) -> str:
        """Return the dashboard's address; empty, and so no link, if the connection names none."""
        return SluiceHook(sluice_conn_id).dashboard or ""


class DriverLogLink(BaseOperatorLink):
    """The log of the driver of the task's tier."""

    name = "Driver log"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return the address of the log in the page."""
        path = f"{PAGE}/logs/{operator.tier}"  # type: ignore[attr-defined]
        return address(path, getattr(operator, "sluice_conn_id", None))


LINKS = (PageLink(), DashboardLink())
