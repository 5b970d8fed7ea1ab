"""The page's content, read from the control channel: controller, hosts, tiers, batch jobs,
and the last changes.
"""

from collections.abc import Iterator
from typing import Any

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts, HostRecord, Observed
from sluice_ops.model.batch import BatchRequest
from sluice_ops.model.change import ChangeRecord, ChangeSpec
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import TierSpec
from sluice_ops.operations.batch_jobs import read_grants
from sluice_ops.queries.batch_queue import jobs

SHOWN = 10
"""The number of changes that the page lists."""


def overview(channel: Channel) -> dict[str, Any]:
    """Return the page's content as JSON values."""
    read = channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
    status = None if read is None else read.value
    decided = channel.read(paths.SCALER, ScalerRecord)
    scaler = ScalerRecord() if decided is None else decided.value
    return {
        "controller": None if status is None else {"leader": status.leader, "sentence": status.sentence},
        "hosts": list(_hosts(channel)),
        "tiers": sorted(
            (_tier(channel, name, status, scaler) for name in channel.children("/tiers")), key=_entry_first
        ),
        "batch": _batch(channel),
        "changes": _changes(channel),
    }


def _entry_first(tier: dict[str, Any]) -> tuple[int, str]:
    return (-int(tier["distance"]), str(tier["name"]))


def _hosts(channel: Channel) -> Iterator[dict[str, Any]]:
    """Yield all hosts. Each kind of node is read for all hosts in one request."""
    names = channel.children("/hosts")
    below = channel.children_many([paths.host(name) for name in names])
    facts = channel.read_many([paths.host(name) for name in names], HostFacts)
    records = channel.read_many([paths.host_record(name) for name in names], HostRecord)
    observed = channel.read_many([paths.observed(name) for name in names], Observed)
    for name, nodes, fact, written, seen in zip(names, below, facts, records, observed, strict=True):
        record = HostRecord() if written is None else written.value
        yield {
            "name": name,
            "zone": "" if fact is None else fact.value.zone,
            "labels": [] if fact is None else list(fact.value.labels),
            "state": record.seen(live=paths.LIVE in nodes).value,
            "by": record.by,
            "units": []
            if seen is None
            else [{"id": unit.id, "state": unit.state.value} for unit in seen.value.units],
        }


def _tier(
    channel: Channel, name: str, status: ControllerStatus | None, scaler: ScalerRecord
) -> dict[str, Any]:
    spec = channel.read(paths.tier(name), TierSpec)
    owner = channel.read(paths.owner(name), OwnerRecord)
    number = None if owner is None else owner.value.owner
    placed = None if number is None else channel.read(paths.incarnation(name, number), IncarnationSpec)
    report = None if number is None else channel.read(paths.report(name, number), IncarnationReport)
    line = None if status is None else status.tiers.get(TierName(name))
    decision = scaler.decisions.get(TierName(name))
    return {
        "name": name,
        "kind": "" if spec is None else spec.value.kind.value,
        "mode": "" if spec is None else spec.value.mode.value,
        "distance": 0 if spec is None else spec.value.distance,
        "state": "unknown" if line is None else line.state.value,
        "sentence": "" if line is None else line.sentence,
        "error": "" if line is None else line.error or "",
        "incarnation": number,
        "next": None if owner is None else owner.value.next,
        "standby": None if owner is None else owner.value.standby,
        "phase": "" if owner is None else owner.value.phase.value,
        "driver": "" if placed is None else placed.value.placement.driver,
        "workers": [] if placed is None else list(placed.value.placement.slots),
        "gap_seconds": None if report is None else report.value.gap_seconds,
        "scaler": None
        if decision is None
        else decision.model_dump(mode="json", include={"mode", "wanted", "reason"}),
    }


def _batch(channel: Channel) -> list[dict[str, Any]]:
    """Return the batch jobs: those with slots first, then the queue."""
    names = channel.children(paths.BATCH_JOBS)
    reads = channel.read_many([paths.batch_job(name) for name in names], BatchRequest)
    requests = {name: read.value for name, read in zip(names, reads, strict=True) if read is not None}
    return [line.model_dump(mode="json") for line in jobs(requests, read_grants(channel))]


def _changes(channel: Channel) -> list[dict[str, Any]]:
    """Return the last changes, the newest first."""
    changes = []
    for name in channel.children("/changes"):
        record = channel.read(paths.change(name), ChangeRecord) if paths.change(name) != paths.LOCK else None
        if record is not None:
            changes.append(record.value)
    changes.sort(key=lambda change: change.started_at, reverse=True)
    return [
        {
            "id": change.id,
            "what": _words_of(change.spec),
            "state": change.state.value,
            "by": change.by,
            "started_at": change.started_at,
            "ended_at": change.ended_at,
            "moves": [
                {"tier": move.tier, "driver": move.after.driver, "workers": list(move.after.slots)}
                for move in change.plan.moves
            ],
        }
        for change in changes[:SHOWN]
    ]


def _words_of(spec: ChangeSpec) -> str:
    """Return a change in the words of its command, such as `scale enrich 3`."""
    words = (spec.kind, spec.host, spec.tier, *spec.workers, spec.to, spec.k)
    more = (spec.shift, spec.release, spec.partitions)
    return " ".join(str(word) for word in (*words, *more) if word is not None)
