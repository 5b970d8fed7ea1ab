"""The fields of the runbooks' forms, made from the kinds of change and the site file.

Airflow calls this module at every parse of the DAGs. So it reads files only, and returns the same
values each time: a default that changed between two parses would make a new version of the DAG.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.sdk import Param

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_ops.model.change import DEADLINE_SECONDS, LONGEST_DEADLINE_SECONDS
from sluice_ops.model.ids import BATCH
from sluice_ops.model.tier import PublishedTier
from sluice_ops.planning.changes.faults import FAULTS
from sluice_ops.planning.changes.kind import HOST, Field, Input, Kind
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.site.site_file import HOST_NAME, Site

FOLLOW_CHANGE = "follow_change"
"""The DAG that shows a change of the control channel."""
REPLAY_TIER = "replay_tier"
REPLAY = "Process old or quarantined records of a tier again, beside the live records."
"""The description of the DAG `replay_tier`, and of the page's action."""
INPUTS, QUARANTINE = "inputs", "quarantine"
"""Which records a replay reads."""
BURST_TO_EC2, LEAVE_EC2 = "burst_to_ec2", "leave_ec2"
RUNBOOKS: Mapping[str, str] = {
    **{kind.name: kind.runbook for kind in KINDS.values() if kind.runbook},
    "burst": BURST_TO_EC2,
    "leave": LEAVE_EC2,
}
"""The DAG of each kind of change that a person may request in Airflow."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's connection, site file and tiers, from which its DAGs are made."""

    sluice_conn_id: str | None
    site: Site
    tiers: tuple[str, ...]
    published: tuple[PublishedTier, ...]

    @classmethod
    def of(cls, sluice_conn_id: str | None) -> "Pipeline":
        """Read the files that the connection names, or without one this process's own."""
        hook = SluiceHook(sluice_conn_id)
        return cls(sluice_conn_id, hook.site(), hook.tiers(), hook.published())

    def dag_id(self, name: str) -> str:
        """Return the id of a DAG: the name, with the connection's id before it if there is one."""
        return dag_id(name, self.sluice_conn_id)


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
    examples = [host.name for host in pipeline.site.hosts]
    return {"type": "string", "pattern": HOST_NAME, "examples": examples, "description": HOST.help}


def _tier(field: Field, pipeline: Pipeline) -> dict[str, Any]:
    if field.required:
        return {"type": "string", "enum": [*pipeline.tiers]}
    return {"type": ["null", "string"], "enum": [*pipeline.tiers, None], "default": None}


def _tenant(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    return {"type": "string", "enum": [*pipeline.tiers, BATCH]}


def _workers(field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    return {
        **_OPTIONAL_TEXT,
        "pattern": r"^[a-z0-9, -]*$",
        "examples": ["slot-counts-3-1"],
        "description": f"{field.help} Separate slots by commas.",
    }


def _place(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{_PLACE}$", "examples": places(pipeline)}


def places(pipeline: Pipeline) -> list[str]:
    """Return the hosts, zones, racks and labels of the site file."""
    hosts = pipeline.site.hosts
    names = [place.name for place in hosts]
    names += [f"zone:{zone}" for zone in sorted({place.zone for place in hosts})]
    names += [f"rack:{rack}" for rack in sorted({place.rack for place in hosts if place.rack})]
    names += [f"label:{label}" for label in sorted({label for place in hosts for label in place.labels})]
    return names


def _release(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    return {**_OPTIONAL_TEXT, "pattern": r"^(r[0-9]+-[0-9a-f]+)?$"}


def _count(field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    """Describe a number; the task that plans the change refuses too many, with the next step."""
    if field.required or field.default is not None:
        return {"type": "integer", "minimum": 1}
    return {"type": ["null", "integer"], "minimum": 1, "default": None}


def _amount(field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    return {
        **({"type": ["string", "integer"]} if field.required else _OPTIONAL_AMOUNT),
        "pattern": f"^{_AMOUNT}$" if field.required else f"^({_AMOUNT})?$",
        "minimum": 0,
        "maximum": 1000,
        "examples": ["3", "50%"],
        "description": field.help if field.required else f"{field.help} Empty: unchanged.",
    }


def _layer(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    names = ["person", "maintenance", "autoscaler"]
    return {"default": names[0], "type": "string", "enum": names}


def _shift(_field: Field, pipeline: Pipeline) -> dict[str, Any]:
    return {"type": "string", "enum": [*pipeline.site.shifts]}


def _fault(_field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    return {"type": "string", "enum": [*FAULTS]}


def _time(field: Field, _pipeline: Pipeline) -> dict[str, Any]:
    formats = "A duration: 30m, 2h or 1d; or a time in UTC: 06:00 or 2026-11-22T06:00."
    return {
        **_OPTIONAL_TEXT,
        "pattern": r"^$|^[0-9]",
        "examples": ["2h", "06:00", "2026-11-22T06:00"],
        "description": f"{field.help} {formats}",
    }


# Airflow's form cannot be submitted while a field without "null" is empty
_OPTIONAL_TEXT: dict[str, Any] = {"default": None, "type": ["null", "string"]}
_OPTIONAL_AMOUNT = {"default": None, "type": ["null", "string", "integer"]}
_PLACE = r"(zone:|rack:|label:)?[A-Za-z0-9][A-Za-z0-9_.-]*"
PLACES = f"^{_PLACE}(,{_PLACE})*$"
"""Several places, separated by commas."""
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
    Input.FAULT: _fault,
    Input.LAYER: _layer,
    Input.TIME: _time,
    Input.WORKERS: _workers,
}


def replay_fields(pipeline: Pipeline) -> dict[str, Param]:
    """Return the form fields of a replay."""
    place = "A time such as 2026-11-21T22:00Z, or a record's place such as hits/2:1700."
    return {
        "tier": Param(
            type="string",
            enum=[*pipeline.tiers],
            title="Tier",
            description="The tier that processes the records.",
        ),
        "records": Param(
            INPUTS,
            type="string",
            enum=[INPUTS, QUARANTINE],
            title="Records",
            description="The records of its inputs, or those that it put into quarantine.",
        ),
        "begin": Param(
            **_OPTIONAL_TEXT,
            title="From",
            description=f"{place} Empty: the oldest record; for quarantine, the oldest unread one.",
        ),
        "end": Param(**_OPTIONAL_TEXT, title="To", description=f"{place} Empty: the newest record."),
        "rate": Param(100, type="integer", minimum=1, title="Rate", description="Most records per second."),
    }


def reason_to_skip(site: Site, shift: str, due: datetime, now: datetime) -> str | None:
    """Return why a shift that was due does not begin; None if it begins."""
    configured = site.shifts.get(shift)
    if configured is not None and (day := configured.local(due).date()) in configured.not_on:
        return f"skipped: {day} is in shifts.{shift}.not_on of the site file. No share changes"
    since = next(
        (name for name, other in site.shifts.items() if name != shift and other.last(now) > due), None
    )
    if since is None:
        return None
    return (
        f"skipped: this shift was due at {due:%Y-%m-%d %H:%M} UTC, and the shift {since} has begun since. "
        "No share changes"
    )


def deadline(description: str, seconds: float = DEADLINE_SECONDS) -> Param:
    """Return the form field for the time after which something is aborted, with its default."""
    return Param(
        seconds,
        type="number",
        title="Deadline",
        minimum=5,
        maximum=LONGEST_DEADLINE_SECONDS,
        description=description,
    )


def common_fields() -> dict[str, Param]:
    """Return the form fields of every runbook."""
    return {
        "deadline": deadline(
            "Seconds that the whole run may take. After that the change is aborted: "
            "the tiers run on as before."
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Show the plan, and move nothing.",
        ),
    }
