"""The channel's state in the shape of the page: hosts, tiers, the change under way. Reads only."""

from typing import Any

from ops.channel import Channel
from ops.model import paths
from ops.model.assignment import HostFacts, HostRecord, Observed
from ops.model.ids import TierName
from ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord
from ops.model.operation import ChangeRecord
from ops.model.status import ControllerStatus
from ops.model.tier import TierSpec

SHOWN = 10
"""Changes that the page lists."""


def overview(channel: Channel) -> dict[str, Any]:
    """Return all of it."""
    found = channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
    status = None if found is None else found.value
    return {
        "controller": None if status is None else {"leader": status.leader, "sentence": status.sentence},
        "hosts": [_host(channel, name) for name in channel.children("/hosts")],
        "tiers": sorted((_tier(channel, name, status) for name in channel.children("/tiers")), key=_entry_first),
        "changes": _changes(channel),
    }


def _entry_first(tier: dict[str, Any]) -> tuple[int, str]:
    return (-int(tier["distance"]), str(tier["name"]))


def _host(channel: Channel, name: str) -> dict[str, Any]:
    facts = channel.read(paths.host(name), HostFacts)
    found = channel.read(paths.host_record(name), HostRecord)
    record = HostRecord() if found is None else found.value
    observed = channel.read(paths.observed(name), Observed)
    live = channel.exists(paths.live(name))
    return {
        "name": name,
        "zone": "" if facts is None else facts.value.zone,
        "labels": [] if facts is None else list(facts.value.labels),
        "state": record.seen(live=live).value,
        "by": record.by,
        "units": [] if observed is None else [{"id": unit.id, "state": unit.state.value} for unit in observed.value.units],
    }


def _tier(channel: Channel, name: str, status: ControllerStatus | None) -> dict[str, Any]:
    spec = channel.read(paths.tier(name), TierSpec)
    owner = channel.read(paths.owner(name), OwnerRecord)
    number = None if owner is None else owner.value.owner
    placed = None if number is None else channel.read(paths.incarnation(name, number), IncarnationSpec)
    report = None if number is None else channel.read(paths.report(name, number), IncarnationReport)
    line = None if status is None else status.tiers.get(TierName(name))
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
    }


def _changes(channel: Channel) -> list[dict[str, Any]]:
    """Return the last changes, the newest first, with what the journal of each one's operations says."""
    found = []
    for name in channel.children("/changes"):
        record = channel.read(paths.change(name), ChangeRecord) if paths.change(name) != paths.LOCK else None
        if record is not None:
            found.append(record.value)
    found.sort(key=lambda change: change.started_at, reverse=True)
    return [
        {
            "id": change.id,
            "what": " ".join(
                str(part)
                for part in (
                    change.spec.kind.value, change.spec.host, change.spec.tier, *change.spec.workers, change.spec.to, change.spec.k,
                    change.spec.shift, change.spec.release, change.spec.partitions,
                )
                if part is not None
            ),
            "state": change.state.value,
            "by": change.by,
            "started_at": change.started_at,
            "ended_at": change.ended_at,
            "moves": [
                {"tier": move.tier, "driver": move.after.driver, "workers": list(move.after.slots)} for move in change.plan.moves
            ],
        }
        for change in found[:SHOWN]
    ]  # fmt: skip
