"""What was published last, as a file in the home: for the audit and Airflow, which must not depend on ZooKeeper for it."""

import json
from collections.abc import Iterable
from pathlib import Path

from sluice_ops.model.tier import TierSpec
from sluice_ops.site import endpoints
from sluice_ops.site.files import whole


def path() -> Path:
    """Return the file: the specification of each published tier, as JSON."""
    return endpoints.home() / "tiers.json"


def write(specs: Iterable[TierSpec]) -> None:
    """Replace the file."""
    with whole(path()) as unfinished:
        unfinished.write_text(json.dumps([spec.model_dump(mode="json") for spec in specs], indent=1))


def changed_at() -> int:
    """Return when the file was written last, in ns; 0 before anything was published."""
    return path().stat().st_mtime_ns if path().exists() else 0


def release() -> str | None:
    """Return the release that was published last; None before there was any."""
    if not path().exists():
        return None
    specs = [TierSpec.model_validate(spec, extra="allow") for spec in json.loads(path().read_text())]
    return next((spec.release for spec in specs), None)
