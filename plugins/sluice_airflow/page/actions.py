"""The runbooks that the page offers, with the fields of Airflow's forms."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from sluice_airflow.forms import REPLAY, REPLAY_TIER, RUNBOOKS, Pipeline, fields, replay_fields
from sluice_ops.planning.changes.kinds import KINDS


def actions(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the replay, and each kind of change that has a runbook: its DAG, summary and fields.

    A field is a JSON schema, as in Airflow's form, with its name, and its default if it has one.
    """
    changes = [
        _action(name, pipeline.dag_id(runbook), KINDS[name].summary, fields(KINDS[name], pipeline))
        for name, runbook in RUNBOOKS.items()
    ]
    replay = _action("replay", pipeline.dag_id(REPLAY_TIER), REPLAY, replay_fields(pipeline))
    return [*changes, replay]


def _action(kind: str, dag_id: str, summary: str, form: Mapping[str, Param]) -> dict[str, Any]:
    shown = [_field(field, param) for field, param in form.items()]
    return {"kind": kind, "dag_id": dag_id, "summary": summary, "fields": shown}


def _field(name: str, param: Param) -> dict[str, Any]:
    default = {"default": param.value} if param.has_value else {}
    return {**param.schema, "name": name, "description": param.description, **default}
