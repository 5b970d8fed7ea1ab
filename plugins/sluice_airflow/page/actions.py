"""The runbooks that the page offers, with the fields of Airflow's forms."""

from typing import Any

from airflow.sdk import Param

from sluice_airflow.forms import RUNBOOKS, Pipeline, fields
from sluice_ops.planning.changes.kinds import KINDS


def actions(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return each kind of change that has a runbook: its DAG, its summary, and its fields.

    A field is a JSON schema, as in Airflow's form, with its name, and its default if it has one.
    """
    return [
        {
            "kind": name,
            "dag_id": pipeline.dag_id(runbook),
            "summary": KINDS[name].summary,
            "fields": [_field(field, param) for field, param in fields(KINDS[name], pipeline).items()],
        }
        for name, runbook in RUNBOOKS.items()
    ]


def _field(name: str, param: Param) -> dict[str, Any]:
    default = {"default": param.value} if param.has_value else {}
    return {**param.schema, "name": name, "description": param.description, **default}
