"""Take a host off the channel for good, with an entry in the trail."""

import time
from collections.abc import Mapping

from sluice_ops.channel import Channel, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import Entry, Outcome


def nodes_of(host: str) -> tuple[str, ...]:
    """Return the paths of a host's nodes, in the order of their deletion."""
    return (
        paths.host_logs(host),
        paths.host_record(host),
        paths.host(host),
        paths.observed(host),
        paths.assignment(host),
    )


def take_off(
    channel: Channel, nodes: Mapping[str, int | None], what: str, by: str, sentence: str = ""
) -> None:
    """Delete the existing nodes of a host and write a trail entry, in one transaction.

    `nodes` maps a path to the version that it must have. Raises ConflictError if a version differs.
    """
    entry = Entry(
        at=time.time(),
        by=by,
        layer=Layer.MAINTENANCE.name.lower(),
        what=what,
        outcome=Outcome.DONE,
        sentence=sentence,
    )
    deletions = [Write(path, None, version) for path, version in nodes.items() if channel.exists(path)]
    channel.multi([*deletions, trail_queue.write(Role.OPERATOR, entry)])
