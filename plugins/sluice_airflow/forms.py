"""The fields of the runbooks' forms, made from the kinds of change and the site file.

Airflow calls this module at every parse of the DAGs. So it reads files only, and returns the same
values each time: a default that changed between two parses would make a new version of the DAG.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.sdk import CronTriggerTimetable, Param

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_ops.model.change import DEADLINE_SECONDS, LONGEST_DEADLINE_SECONDS
from sluice_ops.model.ids import BATCH
from sluice_ops.planning.changes.kind import Field, Input, Kind
from sluice_ops.site.site_file import HOST_NAME, Site


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's connection, site file and tiers, from which its DAGs are made."""

    sluice_conn_id: str | None
    site: Site
    tiers: tuple[str, ...]

    @classmethod
    def of(cls, sluice_conn_id: str | None) -> "Pipeline":
        """Read the files that the connection names, or without one this process's own."""
        hook = SluiceHook(sluice_conn_id)
        return cls(sluice_conn_id, hook.site(), hook.tiers())

    def dag_id(self, name: str) -> str:
        """Return the id of a DAG: the name, with the connection's id before it if there is one."""
        return dag_id(name, self.sluice_conn_id)

    def schedule(self, shift: str) -> CronTriggerTimetable | None:
        """Return the schedule of a shift; None if the site file has no such shift: then only
        people trigger it.
        """
        configured = self.site.shifts.get(shift)
        return (
            None
            if configured is None
            else CronTriggerTimetable(configured.schedule, timezone=configured.timezone)
        )


def dag_id(name: str, sluice_conn_id: str | None) -> str:
    """Return the id of a DAG or an asset, which differs for each connection."""
    return name if sluice_conn_id is None else f"{sluice_conn_id}_{name}"


def fields(kind: Kind, pipeline: Pipeline) -> dict[str, Param]:
    """Return the form fields of a kind of change."""
    return {field.name: _param(field, pipeline) for field in kind.fields}


def templates(kind: Kind) -> dict[str, str]:
    """Return the fields of a change as templates that Airflow fills with the form's values."""
    return {
        field.name: f"{{{{ params.{field.name} }}}}"
        if field.required
        else f"{{{{ '' if params.{field.name} is none else params.{field.name} }}}}"
        for field in kind.fields
    }


def _param(field: Field, pipeline: Pipeline) -> Param:
    title = field.name if field.name == "k" else field.name.capitalize()
    schema = {"title": title, "description": field.help, **_SCHEMAS[field.input](field, pipeline)}
    if field.default is not None:
        schema["default"] = field.default
    return Param(**schema)


def _host(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    """Describe a host: one of the site file, a burst host, or a host that joined.

    Preflight refuses others.

    A form always names a host, although the CLI lets a person leave the host out to mean all hosts.
    """
    names = [host.name for host in pipeline.site.hosts]
    examples = f"One of {', '.join(names)}, a burst host such as ec2-0a1b2c3d, or a host that joined"
    return {
        "type": "string",
        "pattern": HOST_NAME,
        "examples": names,
        "description": f"{examples}; `sluice hosts` lists them.",
    }


def _tier(field: Field, pipeline: Pipeline) -> dict[str, Any]:
    if field.required:
        return {"type": "string", "enum": [*pipeline.tiers], "description": "The tier to change."}
    text = "One tier. Empty: all tiers."
    return {"type": ["null", "string"], "enum": [*pipeline.tiers, None], "default": None, "description": text}


def _tenant(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    text = "The tier to change, or batch."
    return {"type": "string", "enum": [*pipeline.tiers, BATCH], "description": text}


def _workers(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    text = (
        "Single workers by the slot names that `sluice slots` lists. "
        "Only these workers are paused. To pause a whole tier as well, name it above."
    )
    return {
        "default": "",
        "type": "string",
        "pattern": r"^[a-z0-9, -]*$",
        "examples": ["slot-counts-3-1"],
        "description": text,
    }


def _place(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    hosts = pipeline.site.hosts
    places = [place.name for place in hosts]
    places += [f"zone:{zone}" for zone in sorted({place.zone for place in hosts})]
    places += [f"rack:{rack}" for rack in sorted({place.rack for place in hosts if place.rack})]
    places += [f"label:{label}" for label in sorted({label for place in hosts for label in place.labels})]
    pattern = r"^(zone:|rack:|label:)?[A-Za-z0-9][A-Za-z0-9_.-]*$"
    return {"type": "string", "pattern": pattern, "examples": places}


def _release(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    text = "The release's name, such as r7-3f9a2c1b. Empty: the newest published release."
    return {"default": "", "type": "string", "pattern": r"^(r[0-9]+-[0-9a-f]+)?$", "description": text}


def _count(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    """Describe a number; the task that plans the change refuses too many, with the next step."""
    return {"type": "integer", "minimum": 1}


def _amount(field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    return {
        **({} if field.required else {"default": ""}),
        "type": ["string", "integer"],
        "pattern": f"^{_AMOUNT}$" if field.required else f"^({_AMOUNT})?$",
        "minimum": 0,
        "maximum": 1000,
        "examples": ["3", "50%"],
        "description": field.help if field.required else f"{field.help} Empty: unchanged.",
    }


def _layer(field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    names = ["person", "maintenance", "autoscaler"]
    return {"default": names[0], "type": "string", "enum": names, "description": field.help}


def _shift(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    return {"type": "string", "enum": [*pipeline.site.shifts]}


def _time(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    return {
        "default": "",
        "type": "string",
        "pattern": r"^$|^[0-9]",
        "examples": ["2h", "06:00", "2026-11-22T06:00"],
        "description": "How long, or until when in UTC: 30m, 2h, 1d, 06:00, 2026-11-22T06:00. Empty: "
        "until a person changes it.",
    }


_AMOUNT = r"[0-9]+(\.[0-9]+)?%?"
_SCHEMAS: dict[Input, Callable[[Field, Pipeline], dict[str, Any]]] = {
    Input.HOST: _host,
    Input.TIER: _tier,
    Input.TENANT: _tenant,
    Input.PLACE: _place,
    Input.COUNT: _count,
    Input.AMOUNT: _amount,
    Input.RELEASE: _release,
    Input.SHIFT: _shift,
    Input.LAYER: _layer,
    Input.TIME: _time,
    Input.WORKERS: _workers,
}


def shift_since(site: Site, shift: str, due: datetime, now: datetime) -> str | None:
    """Name another shift that has begun since this shift was due; None if no other shift has
    begun.
    """
    return next(
        (name for name, other in site.shifts.items() if name != shift and other.last(now) > due), None
    )


def common_fields() -> dict[str, Param]:
    """Return the form fields of every runbook."""
    return {
        "deadline": Param(
            DEADLINE_SECONDS,
            type="number",
            title="Deadline",
            minimum=5,
            maximum=LONGEST_DEADLINE_SECONDS,
            description=(
                "Seconds that the whole run may take. After that the change is aborted: "
                "the tiers run on as before."
            ),
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Show the plan, and move nothing.",
        ),
    }
