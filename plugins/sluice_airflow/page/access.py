"""Access to the page: Airflow's users, checked by Airflow.

Airflow mounts a plugin's app without authentication, so every route of the page depends on
`READER`.
"""

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends

READER = Depends(requires_access_view(AccessView.PLUGINS))
"""Answers 401 without Airflow's token (header or cookie), and 403 for a user without the right to
see plugins.
"""
