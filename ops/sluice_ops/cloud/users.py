"""Who would be interrupted if an instance was terminated. Called by whatever terminates: the CLI and Airflow's runbooks."""

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord


def tiers_by_host(channel: Channel) -> dict[HostName, list[str]]:
    """Return which tiers' owners have a part on each host."""
    users: dict[HostName, list[str]] = {}
    for tier in channel.children("/tiers"):
        owner = channel.read(paths.owner(tier), OwnerRecord)
        if owner is None or owner.value.owner is None or owner.value.stopped:
            continue
        placed = channel.read(paths.incarnation(tier, owner.value.owner), IncarnationSpec)
        for host in () if placed is None else sorted(placed.value.placement.hosts):
            users.setdefault(host, []).append(tier)
    return users
