"""The page's access to Airflow: checks Airflow's users, and lists the connections to pipelines.

Airflow mounts a plugin's app without authentication, so every route of the page depends on
`READER`.
"""

from collections.abc import Iterable

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from fastapi import Depends
from sqlalchemy import select

from sluice_airflow.hooks.sluice import SluiceHook

READER = Depends(requires_access_view(AccessView.PLUGINS))
"""Answers 401 without Airflow's token (header or cookie), and 403 for a user without the right to
see plugins.
"""
User = GetUserDep
"""The user of a request."""


def connections() -> list[str]:
    """Return the ids of the connections to pipelines in Airflow's database, in order."""
    query = select(Connection.conn_id).where(Connection.conn_type == SluiceHook.conn_type)
    with create_session() as session:
        return sorted(session.scalars(query))


def may_trigger(user: User, dag_ids: Iterable[str]) -> list[str]:
    """Return the DAGs of which the user may start runs."""
    manager = get_auth_manager()
    return [
        dag_id
        for dag_id in dag_ids
        if manager.is_authorized_dag(
            method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
        )
    ]


def may_answer(user: User, dag_id: str | None) -> bool:
    """Tell whether the user may answer the forms of a DAG's tasks; None: of all DAGs."""
    return get_auth_manager().is_authorized_dag(
        method="PUT", access_entity=DagAccessEntity.HITL_DETAIL, details=DagDetails(id=dag_id), user=user
    )


def may_read_log(user: User, dag_id: str | None) -> bool:
    """Tell whether the user may read the logs of the tasks of a DAG; None: of all DAGs."""
    return get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.TASK_LOGS, details=DagDetails(id=dag_id), user=user
    )
