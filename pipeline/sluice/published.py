"""The specifications of the last published tiers, as a file in the home.

The audit and Airflow read this file, so that they work without ZooKeeper.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from sluice.api.column_types import columns
from sluice.api.declarations import Pipeline, Tier
from sluice_ops.model.tier import PublishedTier, TierSpec
from sluice_ops.site import project
from sluice_ops.site.files import atomic_file


def path() -> Path:
    """Return the path of the file, a JSON list with one `PublishedTier` for each tier."""
    return project.home() / "tiers.json"


def write(specs: Iterable[TierSpec], pipeline: Pipeline) -> None:
    tiers = [_described(spec, pipeline.tier(spec.name)).model_dump(mode="json") for spec in specs]
    with atomic_file(path()) as unfinished:
        unfinished.write_text(json.dumps(tiers, indent=1))


def _described(spec: TierSpec, tier: Tier) -> PublishedTier:
    streams = {
        stream.name: None if stream.columns is None else columns(stream.columns)
        for stream in (*tier.inputs, *tier.outputs)
    }
    tables = {sink.name: sink.columns for sink in tier.sinks if sink.transactional}
    return PublishedTier(**dict(spec), streams=streams, tables=tables)


def changed_at() -> int:
    """Return when the file was last written, in ns since the epoch; 0 before the first publish."""
    return path().stat().st_mtime_ns if path().exists() else 0


def release() -> str | None:
    """Return the name of the last published release; None before the first publish."""
    if not path().exists():
        return None
    specs = [TierSpec.model_validate(spec, extra="allow") for spec in json.loads(path().read_text())]
    return next((spec.release for spec in specs), None)
