"""Calls to Airflow's REST API at a start: unpause each tier's DAG, and trigger a run of it."""

import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

UNFINISHED = ("queued", "running")
"""States of a run that is not over."""


class AirflowRest:
    """A session with Airflow's API server, logged in as a user."""

    def __init__(self, url: str, user: str, password: str) -> None:
        """Log in; urllib.error.URLError if Airflow does not answer."""
        self._url = url
        self._token: str | None = None
        response = self._send("POST", "/auth/token", {"username": user, "password": password})
        self._token = response["access_token"]

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        url = self._url + path  # from the endpoints file
        request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
            return json.load(response)

    def knows(self, dag: str) -> bool:
        """Return True if Airflow has parsed the DAG."""
        try:
            self._send("GET", f"/api/v2/dags/{quote(dag)}")
        except urllib.error.HTTPError as error:
            if error.code != 404:  # noqa: PLR2004  HTTP's "not found"
                raise
            return False
        return True

    def import_errors(self) -> list[str]:
        """Return the files that Airflow cannot parse, each with the last line of its error."""
        errors = self._send("GET", "/api/v2/importErrors")["import_errors"]
        return [f"{error['filename']}: {error['stack_trace'].strip().splitlines()[-1]}" for error in errors]

    def supervise(self, dag: str) -> bool:
        """Unpause the DAG and trigger a run, unless one is unfinished; return True if triggered."""
        self._send("PATCH", f"/api/v2/dags/{quote(dag)}?update_mask=is_paused", {"is_paused": False})
        states = "&".join(f"state={state}" for state in UNFINISHED)
        if self._send("GET", f"/api/v2/dags/{quote(dag)}/dagRuns?limit=1&{states}")["total_entries"]:
            return False
        run = f"up__{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        self._send("POST", f"/api/v2/dags/{quote(dag)}/dagRuns", {"dag_run_id": run, "logical_date": None})
        return True
