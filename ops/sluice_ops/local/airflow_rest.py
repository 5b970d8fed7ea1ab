"""The few calls that a start makes to Airflow's REST API: is a tier's DAG there and un-paused, and does a run supervise its tier."""

import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

UNFINISHED = ("queued", "running")


class AirflowRest:
    """One session with the API server."""

    def __init__(self, url: str, user: str, password: str) -> None:
        """Log in."""
        self._url = url
        self._token: str | None = None
        answer = self._send("POST", "/auth/token", {"username": user, "password": password})
        self._token = answer["access_token"]

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)  # noqa: S310  the address is our own
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  likewise
            return json.load(answer)

    def knows(self, dag: str) -> bool:
        """Tell whether the DAG has been read."""
        try:
            self._send("GET", f"/api/v2/dags/{quote(dag)}")
        except urllib.error.HTTPError as error:
            if error.code != 404:  # noqa: PLR2004  not found
                raise
            return False
        return True

    def import_errors(self) -> list[str]:
        """Return what could not be read, with the last line of why."""
        found = self._send("GET", "/api/v2/importErrors")["import_errors"]
        return [f"{item['filename']}: {item['stack_trace'].strip().splitlines()[-1]}" for item in found]

    def supervise(self, dag: str) -> bool:
        """Un-pause the DAG and see to it that a run is under way; tell whether one had to be triggered."""
        self._send("PATCH", f"/api/v2/dags/{quote(dag)}?update_mask=is_paused", {"is_paused": False})
        states = "&".join(f"state={state}" for state in UNFINISHED)
        if self._send("GET", f"/api/v2/dags/{quote(dag)}/dagRuns?limit=1&{states}")["total_entries"]:
            return False
        run = f"up__{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        self._send("POST", f"/api/v2/dags/{quote(dag)}/dagRuns", {"dag_run_id": run, "logical_date": None})
        return True
