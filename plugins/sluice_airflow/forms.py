"""The fields of the runbooks' forms, from the site file. Read whenever Airflow parses the DAGs, so: files only, and the same every time.

A default that changed from one parse to the next would make a new version of the DAG each time.
"""

import json
import os
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from airflow.sdk import CronTriggerTimetable, Param
from airflow.sdk.definitions._internal.types import NOTSET

from sluice_ops.model.ids import BATCH
from sluice_ops.site import endpoints, site_file

DEADLINE_SECONDS = 900
_ROOT = Path(__file__).resolve().parents[2]


@cache
def the_site() -> site_file.Site:
    """Return the site file's content: `SLUICE_SITE`, or `site.yaml` in the checkout."""
    return site_file.load(Path(os.environ.get("SLUICE_SITE", _ROOT / "site.yaml")))


def tiers() -> tuple[str, ...]:
    """Return the tiers' names: as they were published, else those that the site file gives shares to."""
    try:
        published = json.loads((endpoints.home() / "tiers.json").read_text())
        return tuple(tier["name"] for tier in published)
    except (OSError, ValueError, TypeError, KeyError):
        return tuple(name for name in the_site().shares if name != BATCH)


def host() -> Param:
    """Ask for a host: one of the site file, one that was burst to, or one that has joined. Preflight refuses those that there are not."""
    names = [known.name for known in the_site().hosts]
    return Param(
        NOTSET,
        type="string",
        title="Host",
        pattern=site_file.HOST_NAME,
        examples=names,
        description=f"One of {', '.join(names)}, a burst host such as ec2-0a1b2c3d, or one that has joined; `sluice hosts` lists them.",
    )


def tenant() -> Param:
    """Ask for a tier, or batch."""
    return Param(
        NOTSET,
        type="string",
        title="Tier",
        enum=[*tiers(), BATCH],
        description="The tier to change, or batch.",
    )


def tier(default: str | None = None) -> Param:
    """Ask for a tier of the pipeline."""
    names = list(tiers())
    return Param(
        default if default in names else NOTSET,
        type="string",
        title="Tier",
        enum=names,
        description="The tier to change.",
    )


def one_tier() -> Param:
    """Ask for a tier, or for none, which means all."""
    names = [*tiers(), None]
    return Param(
        None,
        type=["null", "string"],
        title="Tier",
        enum=names,
        description="One tier alone; if not given, all of them.",
    )


def workers() -> Param:
    """Ask for single workers, or for none."""
    return Param(
        "",
        type="string",
        title="Workers",
        pattern=r"^[a-z0-9, -]*$",
        examples=["slot-counts-3-1"],
        description="Single workers by their slots, as `sluice slots` lists them; then no tier is paused but one that is named.",
    )


def to() -> Param:
    """Ask where a tier has to go."""
    known = the_site()
    places = [place.name for place in known.hosts]
    places += [f"zone:{zone}" for zone in sorted({place.zone for place in known.hosts})]
    places += [f"rack:{rack}" for rack in sorted({place.rack for place in known.hosts if place.rack})]
    places += [
        f"label:{label}" for label in sorted({label for place in known.hosts for label in place.labels})
    ]
    return Param(
        NOTSET,
        type="string",
        title="To",
        pattern=r"^(zone:|rack:|label:)?[A-Za-z0-9][A-Za-z0-9_.-]*$",
        examples=places,
        description="A host's name, zone:NAME, rack:NAME or label:NAME.",
    )


def release() -> Param:
    """Ask for a release of the pipeline's code."""
    return Param(
        "",
        type="string",
        title="Release",
        pattern=r"^(r[0-9]+-[0-9a-f]+)?$",
        description="Its name, such as r7-3f9a2c1b; empty: the one that was published last.",
    )


def partitions() -> Param:
    """Ask over how many partitions a state is to be spread."""
    return Param(
        NOTSET,
        type="integer",
        title="Partitions",
        minimum=1,
        maximum=1000,
        description="Over how many partitions the state is to be spread: a few for each thread of the tier's workers.",
    )


_AMOUNT = r"[0-9]+(\.[0-9]+)?%?"


def amount() -> Param:
    """Ask for a number of quanta, or a part of the cluster."""
    return _amount(
        NOTSET,
        "k",
        f"^{_AMOUNT}$",
        "Workers, each of one quantum; or per cent of the quanta that the hosts hold.",
    )


def minimum() -> Param:
    """Ask for a new minimum, or for none."""
    return _amount("", "Minimum", f"^({_AMOUNT})?$", "And never fewer, as long as k holds. Empty: as it is.")


def maximum() -> Param:
    """Ask for a new maximum, or for none."""
    return _amount("", "Maximum", f"^({_AMOUNT})?$", "And never more, as long as k holds. Empty: as it is.")


def layer() -> Param:
    """Ask whose word a number is."""
    words = ["person", "maintenance", "autoscaler"]
    return Param(
        "person",
        type="string",
        title="Layer",
        enum=words,
        description="Whose word it is; a person goes before maintenance, and that before an autoscaler.",
    )


def _amount(default: Any, title: str, pattern: str, description: str) -> Param:
    return Param(
        default,
        type=["string", "integer"],
        title=title,
        pattern=pattern,
        minimum=0,
        maximum=1000,
        examples=["3", "50%"],
        description=description,
    )


def k(default: int | None = None) -> Param:
    """Ask for a number of quanta."""
    return Param(
        NOTSET if default is None else default,
        type="integer",
        title="k",
        minimum=1,
        maximum=1000,
        description="Workers, each of one quantum.",
    )


def until() -> Param:
    """Ask until when a number is to hold."""
    return Param(
        "",
        type="string",
        title="Until",
        pattern=r"^$|^[0-9]",
        examples=["2h", "06:00", "2026-11-22T06:00"],
        description="How long, or until when in UTC: 30m, 2h, 1d, 06:00, 2026-11-22T06:00. Empty: until somebody changes it.",
    )


def schedule(shift: str) -> CronTriggerTimetable | None:
    """Return when a shift begins; None when the site file has no such shift, which leaves the runbook to people."""
    configured = the_site().shifts.get(shift)
    return (
        None
        if configured is None
        else CronTriggerTimetable(configured.schedule, timezone=configured.timezone)
    )


def shift_since(shift: str, due: datetime, now: datetime) -> str | None:
    """Name another shift whose hour has come since this one's, which was due then; None when there is none."""
    return next(
        (name for name, other in the_site().shifts.items() if name != shift and other.last(now) > due), None
    )


def everywhere() -> dict[str, Param]:
    """Return the fields that every runbook has."""
    return {
        "deadline": Param(
            DEADLINE_SECONDS,
            type="number",
            title="Deadline",
            minimum=5,
            maximum=86400,
            description="Seconds that the whole run may take. What is not done by then is aborted, to a running pipeline.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Show the plan, and move nothing.",
        ),
    }
