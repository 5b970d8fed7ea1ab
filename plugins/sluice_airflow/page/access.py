"""Who may see the page: Airflow's own users, by Airflow's own checks. The only module that knows how Airflow does that.

Airflow mounts a plugin's app without any authentication of its own; every route of ours depends on this.
"""

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends

READER = Depends(requires_access_view(AccessView.PLUGINS))
"""401 without Airflow's token (a bearer's, or its cookie); 403 for a user who may not see plugins."""
