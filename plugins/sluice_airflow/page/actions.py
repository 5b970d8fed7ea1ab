"""The runbooks that the page offers, with the fields of Airflow's forms."""

from typing import Any

from airflow.sdk import Param

from sluice_airflow.forms import Pipeline, fields
from sluice_ops.planning.changes.kinds import KINDS


def actions(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return each kind of change that has a runbook: its DAG, its summary, and its fields.

    A field is a JSON schema, as in Airflow's form, with its name, and its default if it has one.
    """
    return [
        {
            "kind": kind.name,
            "dag_id": pipeline.dag_id(kind.runbook),
            "summary": kind.summary,
            "fields": [_field(name, param) for name, param in fields(kind, pipeline).items()],
        }
        for kind in KINDS.values()
        if kind.runbook
    ]


def _field(name: str, param: Param) -> dict[str, Any]:
    default = {"default": param.value} if param.has_value else {}
    return {**param.schema, "name": name, "description": param.description, **default}
